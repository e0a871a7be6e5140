//! What is done to a pool, by name, and what that asks of the pool.

use std::fmt;
use std::str::FromStr;

/// What is done to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The leader is killed.
    Kill9,
    /// The leader is stopped for a while and wakes again.
    Pause,
    /// The same for 30 s.
    LongPause,
    /// A standby is killed.
    Standby,
    /// The leader of three masters is cut off: from all, from the masters only, or one way only.
    Partition,
    /// The leader of five masters is cut off together with one standby.
    PartitionPair,
    /// A standby of three is cut off for 30 s and comes back.
    FollowerCut,
    /// The leader hands its office over because it was asked to.
    Switchover,
    /// The disk of one master, or of all, is full for a while.
    DiskFull,
    /// The disk of one master, or of all, is slow for a while.
    SlowDisk,
    /// The wall clock of some processes is set an hour off, and back.
    Clock,
    /// One master's machine loses its power.
    PowerOne,
    /// All masters' machines lose their power at once.
    PowerAll,
    /// The same with the sync policy `Always`.
    PowerAllAlways,
    /// All masters are killed at once; they keep their disks.
    Down,
    /// All masters are killed at once and lose their disks.
    Wiped,
    /// An agent is killed.
    AgentKill9,
    /// An agent is stopped for a while and wakes again.
    AgentPause,
}

impl Fault {
    /// Every fault, in the order in which `all` injects them.
    pub const ALL: [Self; 18] = [
        Self::Kill9,
        Self::Pause,
        Self::Partition,
        Self::PartitionPair,
        Self::DiskFull,
        Self::SlowDisk,
        Self::Clock,
        Self::PowerOne,
        Self::PowerAll,
        Self::PowerAllAlways,
        Self::Down,
        Self::Wiped,
        Self::Standby,
        Self::AgentKill9,
        Self::AgentPause,
        Self::Switchover,
        Self::FollowerCut,
        Self::LongPause,
    ];

    /// Its name in the names of results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill9 => "kill9",
            Self::Pause => "pause",
            Self::LongPause => "pause_30s",
            Self::Standby => "standby_kill9",
            Self::Partition => "partition",
            Self::PartitionPair => "partition_pair",
            Self::FollowerCut => "follower_cut",
            Self::Switchover => "switchover",
            Self::DiskFull => "disk_full",
            Self::SlowDisk => "slow_disk",
            Self::Clock => "clock",
            Self::PowerOne => "power_one",
            Self::PowerAll => "power_all",
            Self::PowerAllAlways => "power_all_always",
            Self::Down => "all_kill9",
            Self::Wiped => "all_wiped",
            Self::AgentKill9 => "agent_kill9",
            Self::AgentPause => "agent_pause",
        }
    }

    /// Masters of the pool.
    #[must_use]
    pub const fn masters(self) -> usize {
        match self {
            Self::PartitionPair => 5,
            _ => 3,
        }
    }

    /// Whether agents are hit: then there are three, and each object has two replicas.
    #[must_use]
    pub const fn hits_agents(self) -> bool {
        matches!(self, Self::AgentKill9 | Self::AgentPause)
    }

    /// Whether every master needs a network of its own.
    #[must_use]
    pub const fn needs_network(self) -> bool {
        matches!(
            self,
            Self::Partition | Self::PartitionPair | Self::FollowerCut
        )
    }

    /// Whether the fault is about what writes cost all the while: then the writers never rest.
    #[must_use]
    pub const fn times_writes(self) -> bool {
        matches!(self, Self::FollowerCut | Self::Switchover)
    }

    /// Whether it takes as long as was asked for, or always 30 s.
    #[must_use]
    pub const fn is_long(self) -> bool {
        matches!(self, Self::LongPause | Self::FollowerCut)
    }

    /// Whether masters' machines lose their power.
    #[must_use]
    pub const fn cuts_power(self) -> bool {
        matches!(self, Self::PowerOne | Self::PowerAll | Self::PowerAllAlways)
    }

    /// Whether what was acknowledged in the last moment may go back: by the sync policy, or a
    /// removal whose bytes no agent had erased when all masters lost their log.
    #[must_use]
    pub const fn may_undo(self) -> bool {
        matches!(self, Self::PowerAll | Self::Wiped)
    }

    /// Whether the log is synced before anything is acknowledged.
    #[must_use]
    pub const fn syncs_always(self) -> bool {
        matches!(self, Self::PowerAllAlways)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no fault '{text}'; choose one of {names} or all")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_found_by_its_name() {
        for fault in Fault::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        assert!("flood".parse::<Fault>().is_err());
    }
}
