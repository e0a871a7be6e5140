//! Soft state: what the leader learned by listening, and may forget.
//!
//! A new leader starts with every mounted agent silent and not connected, and learns the rest as
//! they mount again. Losing it is safe: it decides only where new things go and who is asked.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{AgentId, Incarnation, PoolTime, SegmentId};

use crate::segment::{SlabKey, SlabPhase};
use crate::settings::Settings;
use crate::state::State;

/// How an agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// It is connected and heard.
    Alive,
    /// It is silent or not connected: nothing new is placed on it.
    Suspect,
    /// This leader has no contact with it.
    Lost,
}

/// What is known of an agent's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contact {
    pub(crate) incarnation: Incarnation,
    /// It has mounted at this leader, and that connection is open.
    pub(crate) attached: bool,
    /// It has said that writes of older epochs are over: only then may its holes, which the
    /// puts of former leaders may still fill, be used again.
    pub(crate) acknowledged: bool,
    pub(crate) last_heard: PoolTime,
    /// Since when nothing new is placed on it. An agent is lost only after it was seen suspect
    /// for a while: a leader that was itself paused hears the waiting heartbeats first.
    pub(crate) suspect_since: Option<PoolTime>,
    /// How busy it was before the last heartbeat, per mille.
    pub(crate) load_permille: u16,
}

/// From this load on an agent gets new things only when nobody else can take them, per mille. It
/// leaves it some time to serve readers while it finishes what it has.
const OVERLOADED_PERMILLE: u16 = 900;

impl Contact {
    pub(crate) const fn mounted(
        incarnation: Incarnation,
        acknowledged: bool,
        now: PoolTime,
    ) -> Self {
        Self {
            incarnation,
            attached: true,
            acknowledged,
            last_heard: now,
            suspect_since: None,
            load_permille: 0,
        }
    }

    pub(crate) const fn is_alive(&self) -> bool {
        self.attached && self.acknowledged && self.suspect_since.is_none()
    }

    /// Whether a former leader knew it, and this one waits for it to say that it knows the new one.
    /// Some heartbeats after a fail-over that is so of none that lives.
    pub(crate) const fn is_awaited(&self) -> bool {
        !self.acknowledged
    }

    /// Whether it has more to do than it can.
    pub(crate) const fn is_overloaded(&self) -> bool {
        self.load_permille >= OVERLOADED_PERMILLE
    }

    /// Whether it has been silent, and known to be, for so long that its bytes are given up.
    pub(crate) fn is_lost(&self, settings: &Settings, now: PoolTime) -> bool {
        let silent = now.since_ms(self.last_heard) >= settings.agent_ttl_ms;
        let grace_ms = settings
            .agent_ttl_ms
            .saturating_sub(settings.agent_suspect_ms);
        silent
            && self
                .suspect_since
                .is_some_and(|since| now.since_ms(since) >= grace_ms)
    }
}

/// A ready slab in which nothing is reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Empty {
    pub(crate) since: PoolTime,
    /// Whether it held something since it was given. Until then only idleness takes it back, or
    /// two tenants would take a slab from each other before either writes.
    pub(crate) used: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Soft {
    /// Every mounted agent has one.
    pub(crate) contacts: BTreeMap<AgentId, Contact>,
    pub(crate) empty: BTreeMap<SlabKey, Empty>,
    /// Slabs that are being taken back, proposed ones included.
    pub(crate) taking: BTreeSet<SlabKey>,
    /// Segments of which the agent could not make a slab, and until when it is not asked again:
    /// what one slab lacked, the next would lack too.
    pub(crate) failed: BTreeMap<SegmentId, PoolTime>,
    /// Slabs that are being emptied for another tenant, and until when: nothing new is placed
    /// there.
    pub(crate) closed: BTreeMap<SlabKey, PoolTime>,
}

impl Soft {
    pub(crate) fn new(state: &State, now: PoolTime) -> Self {
        let mut soft = Self {
            contacts: BTreeMap::new(),
            empty: BTreeMap::new(),
            taking: BTreeSet::new(),
            failed: BTreeMap::new(),
            closed: BTreeMap::new(),
        };
        for (id, agent) in state
            .agents()
            .filter(|(_, agent)| !agent.segments.is_empty())
        {
            let contact = Contact {
                incarnation: agent.incarnation,
                attached: false,
                acknowledged: false,
                last_heard: now,
                suspect_since: Some(now),
                load_permille: 0,
            };
            soft.contacts.insert(id, contact);
        }
        for segment in state.segments() {
            for (index, slab) in &segment.slabs {
                let key = (segment.id, *index);
                if slab.phase == SlabPhase::Ready && slab.alloc.is_empty() {
                    soft.empty.insert(
                        key,
                        Empty {
                            since: now,
                            used: true,
                        },
                    );
                } else if slab.phase == SlabPhase::Taking {
                    soft.taking.insert(key);
                }
            }
        }
        soft
    }

    pub(crate) fn health(&self, agent: AgentId) -> Health {
        match self.contacts.get(&agent) {
            Some(contact) if contact.is_alive() => Health::Alive,
            Some(_) => Health::Suspect,
            None => Health::Lost,
        }
    }
}
