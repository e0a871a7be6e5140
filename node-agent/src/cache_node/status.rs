//! What a CacheNode's status shall say: pure, from what the agent knows and what stands there.
//!
//! Nothing in it moves by itself. Figures of the inventory are those of the agent's start, and the
//! used bytes count whole slabs, which is how the master counts what a node holds.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_crds::{CacheNodeStatus, Condition, HugepageFacts, MemoryFacts, NodeCapability};
use larder_types::Incarnation;
use serde_json::{Value, json};

use crate::membership::Facts;
use crate::step::Status;

/// The type of the one condition that the agent owns. Those of other writers stay.
const READY: &str = "Ready";
/// The longest text that the schema takes: of a reason, and of an address.
const REASON_BYTES_MAX: usize = 1_024;
const ADDRESS_BYTES_MAX: usize = 300;
/// The most page sizes that the schema takes; no processor has more than four.
const HUGEPAGES_MAX: usize = 8;

/// What does not change while the agent runs.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    pod_uid: Option<String>,
    incarnation: Incarnation,
    address: String,
    segments: u32,
    slab_bytes: u64,
    total_bytes: u64,
    numa_count: Option<u32>,
    hugepages: Vec<HugepageFacts>,
    capabilities: Vec<NodeCapability>,
}

/// How an agent stands to its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// A master has taken its segments in.
    Serving,
    /// No master has.
    NotMounted,
    /// It was told to stop.
    Stopped,
}

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) readiness: Readiness,
    /// Bytes of all slabs that belong to tenants.
    pub(crate) used_bytes: u64,
}

impl Fixed {
    pub(crate) fn new(facts: &Facts<'_>, pod_uid: Option<String>) -> Self {
        let inventory = facts.inventory;
        let hugepages = inventory.hugepages.iter().flatten().take(HUGEPAGES_MAX);
        let capabilities = inventory.capabilities.iter().map(|one| NodeCapability {
            name: one.name.to_owned(),
            available: one.available,
            reason: Some(cut(&one.reason, REASON_BYTES_MAX)),
        });
        let numa = inventory.numa.as_ref().ok();
        Self {
            pod_uid,
            incarnation: facts.incarnation,
            address: facts.address.to_owned(),
            segments: u32::try_from(facts.segments).unwrap_or(u32::MAX),
            slab_bytes: facts.slab_bytes,
            total_bytes: facts.total_bytes,
            numa_count: numa.and_then(|nodes| u32::try_from(nodes.len()).ok()),
            hugepages: hugepages
                .map(|pages| HugepageFacts {
                    page_bytes: pages.page_bytes,
                    total: pages.total,
                    free: pages.free,
                })
                .collect(),
            capabilities: capabilities.collect(),
        }
    }

    /// What changes, as the control side has it.
    pub(crate) fn moving(&self, status: &Status) -> Moving {
        let slabs = status.slabs.held + status.slabs.taking;
        Moving {
            readiness: if status.mounted {
                Readiness::Serving
            } else {
                Readiness::NotMounted
            },
            used_bytes: slabs.saturating_mul(self.slab_bytes),
        }
    }
}

impl Readiness {
    /// Status, reason and message of the condition.
    const fn condition(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Serving => ("True", "Serving", "a master has taken its segments in"),
            Self::NotMounted => (
                "False",
                "NotMounted",
                "no master has its segments; the agent goes on trying, its log says why",
            ),
            Self::Stopped => ("False", "Stopped", "the agent was told to stop"),
        }
    }
}

/// The status from the old one. Conditions of other writers are kept; the time of ours moves only
/// with its status.
pub(crate) fn desired(
    fixed: &Fixed,
    moving: Moving,
    old: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> CacheNodeStatus {
    let (status, reason, message) = moving.readiness.condition();
    let before = old.iter().find(|one| one.type_ == READY);
    let since = before.filter(|before| before.status == status);
    let ready = Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since.map_or(Time(now), |since| since.last_transition_time.clone()),
    };
    let mut conditions = old.to_vec();
    match conditions.iter_mut().find(|one| one.type_ == READY) {
        Some(known) => *known = ready,
        None => conditions.push(ready),
    }
    let is_mounted = moving.readiness == Readiness::Serving;
    CacheNodeStatus {
        observed_generation: generation,
        conditions,
        agent_uid: fixed.pod_uid.clone(),
        incarnation: Some(format!("{:016x}", fixed.incarnation.0)),
        address: Some(cut(&fixed.address, ADDRESS_BYTES_MAX)),
        numa_count: fixed.numa_count,
        memory: Some(MemoryFacts::new(fixed.total_bytes, moving.used_bytes)),
        hugepages: fixed.hugepages.clone(),
        capabilities: fixed.capabilities.clone(),
        segments: Some(if is_mounted { fixed.segments } else { 0 }),
        drain: None,
    }
}

/// The merge patch from `old` to `new`, or `None` if there is nothing to write.
///
/// Not a server-side apply: that could not take away what somebody else put into our lists. The
/// resource version makes sure that no other writer's condition is lost. What the operator says of
/// a drain stays as it is.
pub(crate) fn patch(
    old: Option<&CacheNodeStatus>,
    new: &CacheNodeStatus,
    resource_version: Option<&str>,
) -> Result<Option<Value>, serde_json::Error> {
    let new = &CacheNodeStatus {
        drain: old.and_then(|old| old.drain.clone()),
        ..new.clone()
    };
    if old == Some(new) {
        return Ok(None);
    }
    let (old, mut status) = (serde_json::to_value(old)?, serde_json::to_value(new)?);
    if let (Some(old), Some(new)) = (old.as_object(), status.as_object_mut()) {
        for key in old.keys() {
            // In a merge patch null takes a field away.
            new.entry(key.clone()).or_insert(Value::Null);
        }
        new.remove("drain");
    }
    Ok(Some(json!({
        "metadata": { "resourceVersion": resource_version },
        "status": status,
    })))
}

fn cut(text: &str, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev();
    let end = end.into_iter().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use larder_crds::{DrainState, NodeDrain};

    use super::*;
    use crate::inventory::{Inventory, SystemRoot};
    use crate::step::SlabCounts;

    const SERVING: Moving = Moving {
        readiness: Readiness::Serving,
        used_bytes: 4,
    };
    const LOST: Moving = Moving {
        readiness: Readiness::NotMounted,
        used_bytes: 4,
    };

    fn fixed() -> Fixed {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/server");
        let facts = Facts {
            inventory: &Inventory::read(&SystemRoot::new(&folder), 8),
            incarnation: Incarnation(0xab),
            address: "10.0.0.1:7410",
            segments: 2,
            slab_bytes: 2,
            total_bytes: 8,
        };
        Fixed::new(&facts, Some("pod-1".into()))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn ready(status: &CacheNodeStatus) -> &Condition {
        let mut found = status.conditions.iter().filter(|one| one.type_ == READY);
        let ready = found.next().expect("the condition");
        assert!(found.next().is_none(), "once");
        ready
    }

    #[test]
    fn everything_that_the_agent_knows_is_told() {
        let status = desired(&fixed(), SERVING, &[], Some(3), at(7));
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(status.agent_uid.as_deref(), Some("pod-1"));
        assert_eq!(status.incarnation.as_deref(), Some("00000000000000ab"));
        assert_eq!(status.address.as_deref(), Some("10.0.0.1:7410"));
        assert_eq!((status.numa_count, status.segments), (Some(3), Some(2)));
        let memory = status.memory.clone().expect("memory");
        assert_eq!((memory.total_bytes, memory.used_bytes), (8, 4));
        assert_eq!(status.hugepages.len(), 2);
        assert_eq!(status.capabilities.len(), 7);
        assert!(status.capabilities.iter().all(|one| one.reason.is_some()));
        let ready = ready(&status);
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("True", "Serving")
        );
        assert_eq!(ready.observed_generation, Some(3));
        assert_eq!(ready.last_transition_time, Time(at(7)));
    }

    #[test]
    fn the_time_of_a_condition_moves_only_with_its_status() {
        let fixed = fixed();
        let lost = desired(&fixed, LOST, &[], Some(1), at(1));
        assert_eq!(lost.segments, Some(0));
        let stopped = Moving {
            readiness: Readiness::Stopped,
            ..LOST
        };
        let stopped = desired(&fixed, stopped, &lost.conditions, Some(1), at(2));
        assert_eq!(ready(&stopped).reason, "Stopped");
        assert_eq!(ready(&stopped).last_transition_time, Time(at(1)));
        let serving = desired(&fixed, SERVING, &stopped.conditions, Some(1), at(3));
        assert_eq!(ready(&serving).last_transition_time, Time(at(3)));
        assert_eq!(
            serving,
            desired(&fixed, SERVING, &serving.conditions, Some(1), at(9))
        );
    }

    #[test]
    fn nothing_is_written_when_nothing_differs() {
        let fixed = fixed();
        let status = desired(&fixed, SERVING, &[], Some(1), at(1));
        let again = desired(&fixed, SERVING, &status.conditions, Some(1), at(2));
        assert_eq!(patch(Some(&status), &again, Some("5")).expect("json"), None);
        let first = patch(None, &status, Some("5"))
            .expect("json")
            .expect("a write");
        assert_eq!(first["metadata"]["resourceVersion"], "5");
        // What the API server keeps is what was meant.
        let kept: CacheNodeStatus = serde_json::from_value(first["status"].clone()).expect("read");
        assert_eq!(kept, status);
    }

    #[test]
    fn what_a_hand_changed_is_undone_and_others_conditions_stay() {
        let fixed = fixed();
        let ours = desired(&fixed, SERVING, &[], Some(1), at(1));
        let mut edited = ours.clone();
        edited.capabilities.push(NodeCapability {
            name: "flying".into(),
            available: true,
            reason: None,
        });
        edited.address = None;
        let others = Condition {
            type_: "Drained".into(),
            ..ready(&ours).clone()
        };
        edited.conditions.push(others.clone());
        let wanted = desired(&fixed, SERVING, &edited.conditions, Some(1), at(2));
        let patch = patch(Some(&edited), &wanted, None)
            .expect("json")
            .expect("a write");
        assert_eq!(
            patch["status"]["capabilities"]
                .as_array()
                .expect("a list")
                .len(),
            7
        );
        assert_eq!(patch["status"]["address"], "10.0.0.1:7410");
        assert!(wanted.conditions.contains(&others));
    }

    #[test]
    fn what_the_operator_says_of_a_drain_is_not_touched() {
        let fixed = fixed();
        let ours = desired(&fixed, SERVING, &[], Some(1), at(1));
        let drained = CacheNodeStatus {
            drain: Some(NodeDrain {
                state: DrainState::Draining,
                started_at: Time(at(1)),
                objects_left: None,
                bytes_left: Some(7),
                extents_left: None,
                message: None,
            }),
            ..ours.clone()
        };
        assert_eq!(patch(Some(&drained), &ours, None).expect("json"), None);
        let lost = desired(&fixed, LOST, &drained.conditions, Some(1), at(2));
        let patch = patch(Some(&drained), &lost, None)
            .expect("json")
            .expect("a write");
        assert!(patch["status"].get("drain").is_none(), "{patch}");
    }

    #[test]
    fn a_field_that_is_not_ours_to_fill_is_taken_away() {
        let without = Fixed {
            pod_uid: None,
            ..fixed()
        };
        let status = desired(&fixed(), SERVING, &[], None, at(1));
        let wanted = desired(&without, SERVING, &status.conditions, None, at(1));
        let patch = patch(Some(&status), &wanted, None)
            .expect("json")
            .expect("a write");
        assert!(
            patch["status"]
                .as_object()
                .expect("a status")
                .contains_key("agentUid")
        );
        assert!(patch["status"]["agentUid"].is_null());
    }

    #[test]
    fn used_bytes_are_whole_slabs() {
        let slabs = SlabCounts {
            making: 5,
            held: 2,
            taking: 1,
        };
        let status = Status {
            mounted: true,
            slabs,
            ..Status::default()
        };
        let moving = fixed().moving(&status);
        assert_eq!(
            moving,
            Moving {
                readiness: Readiness::Serving,
                used_bytes: 6
            }
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 5), "abc");
        assert_eq!(cut("aéé", 4), "aé");
    }
}
