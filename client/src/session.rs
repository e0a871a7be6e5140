//! What a client does next: which failures are repeated, when a put starts again, which replica
//! is read. Pure: told attempts, time left and randomness.

use std::time::Duration;

use larder_types::Reason;

#[cfg(test)]
mod tests;

/// The most times one call is sent. The deadline usually ends it before.
pub const CALLS_MAX: u32 = 64;
/// The most times a put is started.
pub const PUT_STARTS_MAX: u32 = 8;
/// The most times the master is asked where an object is. An object that is replaced again and
/// again may have moved each time.
pub const GET_ASKS_MAX: u32 = 8;
/// The most times one extent is written under one grant.
pub const WRITES_MAX: u32 = 3;

/// The first pause between two attempts.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// The longest: clients come back within about that after a fail-over.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How long to wait before attempt `attempt + 1`, where `attempt` counts from 1: doubling, the
/// upper half of it random, so that clients of a restarted master do not come at once.
#[must_use]
pub fn pause(attempt: u32, random: u64) -> Duration {
    jittered(PAUSE_FIRST, PAUSE_MAX, attempt, random)
}

fn jittered(first: Duration, max: Duration, attempt: u32, random: u64) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let whole = first.saturating_mul(1 << doublings).min(max);
    let half_us = u64::try_from((whole / 2).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(half_us + random % (half_us + 1))
}

/// The first pause between two rounds over several masters.
const ROUND_FIRST: Duration = Duration::from_millis(10);
/// The longest while a fail-over may be under way.
const ROUND_MAX: Duration = Duration::from_millis(100);
/// How long a fail-over may be under way: an election takes less than a second.
pub const FAIL_OVER: Duration = Duration::from_secs(2);

/// How long to wait after round `round`, counted from 1, in which none of several masters led;
/// `since` is how long that has been so. Doubling, the upper half of it random.
#[must_use]
pub fn round_pause(round: u32, since: Duration, random: u64) -> Duration {
    if since >= FAIL_OVER {
        return pause(round, random);
    }
    jittered(ROUND_FIRST, ROUND_MAX, round, random)
}

/// How long to wait after round `round`, counted from 1, of asking the other masters while the
/// present one is silent for `since`. It may only be slow, so this goes easier on the others than
/// a search does.
#[must_use]
pub fn doubt_pause(round: u32, since: Duration, random: u64) -> Duration {
    let max = if since < FAIL_OVER { 200 } else { 2_000 };
    jittered(ROUND_MAX, Duration::from_millis(max), round, random)
}

/// What became of a call to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// It never left: no master could have seen it.
    NotSent,
    /// The connection broke after it left: it may have been done.
    Lost,
    /// The master refused the call as a whole.
    Refused(Reason),
    /// Nothing that another attempt would change.
    Final,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Do it again after this pause.
    Again(Duration),
    /// Tell the caller.
    Fail,
}

/// Whether a call is sent again. `attempt` counts from 1; `repeatable` says that doing it twice
/// is the same as once.
#[must_use]
pub fn after_call(
    fault: CallFault,
    repeatable: bool,
    attempt: u32,
    left: Duration,
    random: u64,
) -> Next {
    let again = match fault {
        CallFault::NotSent => true,
        CallFault::Lost => repeatable,
        CallFault::Refused(reason) => matches!(
            reason,
            Reason::NotLeader | Reason::Starting | Reason::Overloaded | Reason::SessionUnknown
        ),
        CallFault::Final => false,
    };
    if again && attempt < CALLS_MAX {
        within(left, pause(attempt, random))
    } else {
        Next::Fail
    }
}

/// What stopped a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutFault {
    /// Its start was refused; `ours` = an earlier attempt of ours may still stand.
    Start {
        /// Why.
        reason: Reason,
        /// Whether the key may be held by an earlier attempt of the same put.
        ours: bool,
    },
    /// Bytes could not be written; `stale` = the grant is no longer good, or the agent is gone.
    Write {
        /// Whether a new grant may help.
        stale: bool,
    },
    /// Its end was refused; `moved` = another session than that of its start brought the end.
    End {
        /// Why.
        reason: Reason,
        /// Whether the session changed in between.
        moved: bool,
    },
}

/// Whether a put starts again with a new version. `attempt` counts the starts, from 1.
#[must_use]
pub fn after_put(fault: PutFault, attempt: u32, left: Duration, random: u64) -> Next {
    let again = match fault {
        // Our own put of a session that broke may still stand there until the master has seen
        // the session end; somebody else's put is for the caller to know.
        PutFault::Start {
            reason: Reason::BeingWritten,
            ours,
        } => ours,
        PutFault::Start { reason, .. } => matches!(reason, Reason::StaleEpoch),
        PutFault::Write { stale } => stale,
        PutFault::End { reason, moved } => match reason {
            Reason::StaleEpoch => true,
            Reason::StaleOwner | Reason::NotWriting | Reason::StaleVersion => moved,
            _ => false,
        },
    };
    if let PutFault::Start {
        reason: Reason::Starting,
        ..
    } = fault
    {
        return when_joined(attempt, left, random);
    }
    if again && attempt < PUT_STARTS_MAX {
        within(left, pause(attempt, random))
    } else {
        Next::Fail
    }
}

/// After a fail-over the agents join the new leader within some hundred milliseconds, and what
/// needs them is asked again until then: nothing was begun that could be done twice.
fn when_joined(attempt: u32, left: Duration, random: u64) -> Next {
    if attempt < CALLS_MAX {
        within(left, jittered(ROUND_FIRST, ROUND_MAX, attempt, random))
    } else {
        Next::Fail
    }
}

/// What stopped the writing of one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// The lane broke, or the agent still waits for the end of an earlier attempt.
    Interrupted,
    /// The grant is no longer good.
    Stale,
    /// Another attempt changes nothing.
    Final,
}

/// Whether an extent is written again under the same grant. Writing the same version twice is
/// safe: the agent answers a repeat with the receipt that it has.
#[must_use]
pub fn after_write(fault: WriteFault, attempt: u32, left: Duration, random: u64) -> Next {
    match fault {
        WriteFault::Interrupted if attempt < WRITES_MAX => within(left, pause(attempt, random)),
        _ => Next::Fail,
    }
}

/// What stopped the reading of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFault {
    /// The object moved or changed, or its agent is gone: the master knows more by now.
    Moved,
    /// A new leader waits for the agents that hold the object.
    Awaited,
    /// The bytes are wrong.
    Corrupt,
    /// Another attempt changes nothing.
    Final,
}

/// Whether the master is asked again, after no replica of its last answer could be read. `asks`
/// counts from 1.
#[must_use]
pub fn after_get(faults: &[ReadFault], asks: u32, left: Duration, random: u64) -> Next {
    let moved = faults.contains(&ReadFault::Moved);
    if !moved && faults.contains(&ReadFault::Awaited) {
        return when_joined(asks, left, random);
    }
    if moved && asks < GET_ASKS_MAX {
        within(left, pause(asks, random))
    } else {
        Next::Fail
    }
}

/// The order in which replicas are read: those of the local agent first, the others in a random
/// order, so that readers spread. Returns positions in `local`.
#[must_use]
pub fn read_order(local: &[bool], random: u64) -> Vec<usize> {
    let mut far: Vec<usize> = (0..local.len()).filter(|at| !local[*at]).collect();
    let mut state = random;
    for last in (1..far.len()).rev() {
        // A step of an LCG; the upper bits are the good ones. At most 3 replicas are shuffled.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let pick = (state >> 33) as usize % (last + 1);
        far.swap(last, pick);
    }
    let near = (0..local.len()).filter(|at| local[*at]);
    near.chain(far).collect()
}

/// `Again` only if something of the time is left after the pause.
fn within(left: Duration, pause: Duration) -> Next {
    if pause < left {
        Next::Again(pause)
    } else {
        Next::Fail
    }
}
