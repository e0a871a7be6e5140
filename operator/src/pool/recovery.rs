//! Whether the masters lost their log and made the pool again from what its agents hold.

use crate::conditions::Wanted;
use crate::master_api::StatusDocument;
use crate::reasons::{ConditionType, Reason};

/// The condition of a pool that was made again, or is being; `None` of one that was not.
#[must_use]
pub fn condition(status: &StatusDocument) -> Option<Wanted> {
    let wanted = |is_done, reason, message: String| {
        let condition = ConditionType::RecoveredFromInventory;
        Some(Wanted::new(condition, is_done, reason, message))
    };
    let generation = status.epoch.generation;
    if status.rebuilding {
        let told = match status.agents_told {
            Some(told) => format!(
                ": {told} of {} that came have told everything",
                status.agents
            ),
            None => String::new(),
        };
        let message = format!(
            "the masters lost their log, or its end, and make generation {generation} of the pool \
             from what its agents hold{told}; calls hear Starting until that is done"
        );
        return wanted(false, Reason::Rebuilding, message);
    }
    if !status.of_inventory {
        return None;
    }
    // Only what stays as long as the generation does: another text is another event.
    let message = format!(
        "the masters lost their log, or its end, and made generation {generation} of the pool from \
         what its agents held: all complete objects of agents that lived are there; pins that were \
         set after the put are gone, and removals of the last moments may have been undone"
    );
    wanted(true, Reason::InventoryTaken, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master_api::EpochDocument;

    fn status(generation: u64) -> StatusDocument {
        StatusDocument {
            epoch: EpochDocument { generation },
            agents: 2,
            ..StatusDocument::default()
        }
    }

    #[test]
    fn a_pool_that_began_says_nothing_whatever_its_generation() {
        assert_eq!(condition(&status(1)), None);
        // From a snapshot.
        assert_eq!(condition(&status(7)), None);
    }

    #[test]
    fn it_is_false_while_the_inventory_is_taken_and_then_true() {
        let said = |status| {
            let wanted: Wanted = condition(&status).expect("something to say");
            assert_eq!(wanted.condition, ConditionType::RecoveredFromInventory);
            (wanted.status, wanted.reason, wanted.message)
        };
        let going_on = StatusDocument {
            rebuilding: true,
            of_inventory: true,
            agents_told: Some(1),
            ..status(3)
        };
        let (status_is, reason, message) = said(going_on.clone());
        assert_eq!((status_is, reason), (false, Reason::Rebuilding));
        for part in ["generation 3", "1 of 2 that came", "calls hear Starting"] {
            assert!(message.contains(part), "{message}");
        }
        // Of a master that does not count.
        let uncounted = StatusDocument {
            agents_told: None,
            ..going_on.clone()
        };
        assert!(said(uncounted).2.contains("agents hold; calls"));

        let done = StatusDocument {
            rebuilding: false,
            agents_told: None,
            ..going_on
        };
        let (status_is, reason, message) = said(done.clone());
        assert_eq!((status_is, reason), (true, Reason::InventoryTaken));
        assert!(message.contains("generation 3"), "{message}");
        let later = StatusDocument {
            objects: 9,
            agents: 1,
            ..done
        };
        assert_eq!(said(later).2, message, "nothing new to tell");
    }
}
