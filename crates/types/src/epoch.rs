//! Epochs and versions: what fences stale leaders, clients and bytes.

use std::fmt;

/// Who may command: the generation of the log and the Raft term within it. Ordered; never runs
/// backwards. A receiver refuses commands and writes of a lower epoch than the highest it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Epoch {
    /// One life of the log; rises by a start over without a trusted log.
    pub generation: u64,
    /// The Raft term.
    pub term: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.term)
    }
}

/// Which put of a key these bytes come from. Given at start; ordered; unique in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Version {
    /// The epoch in which the put started.
    pub epoch: Epoch,
    /// Counts the puts of that epoch, from 1.
    pub counter: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.counter)
    }
}

/// Names one copy of an object from agent to agent. Drawn from the versions of its epoch, so that
/// it is never given twice: what an agent says of a former leader's copy names none of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CopyId(pub Version);

impl fmt::Display for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_generation_is_above_every_term_of_the_old() {
        let old = Epoch {
            generation: 1,
            term: 900,
        };
        let new = Epoch {
            generation: 2,
            term: 1,
        };
        assert!(new > old);
        let last = Version {
            epoch: old,
            counter: u64::MAX,
        };
        assert!(
            Version {
                epoch: new,
                counter: 1
            } > last
        );
    }
}
