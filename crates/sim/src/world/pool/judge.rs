//! What must be true of all masters and agents at every moment.

use std::collections::BTreeMap;

use larder_master::sim::Look;
use larder_types::Epoch;

use super::super::network::Node;

/// How many findings are kept.
const FINDINGS_MAX: usize = 16;

/// What was seen of a pool so far, and what of it must not be.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// What was wrong.
    pub(super) findings: Vec<String>,
    /// The digest of the state after an entry, by term and index: the same on every master.
    digests: BTreeMap<(u64, u64), (u64, Node)>,
    /// The highest term in which a master was certain to lead alone, and who that was. From then
    /// on nobody is in a lower one.
    certain: Option<(u64, Node)>,
    /// The newest of each master, with its time.
    pub(super) last: BTreeMap<Node, (u64, Look)>,
    /// What the last master said that ended by itself.
    pub(super) last_ending: Option<String>,
    epochs: BTreeMap<Node, Epoch>,
    /// How many terms were led.
    pub(super) terms: u64,
    looks: u64,
    /// The highest generation that was served, and when each began to be.
    served: u64,
    served_ns: Vec<u64>,
}

impl Judge {
    /// Something that must not be.
    pub(super) fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// A master ended by itself.
    pub(super) fn end(&mut self, ending: String, is_broken: bool) {
        if is_broken {
            self.find(ending.clone());
        }
        self.last_ending = Some(ending);
    }

    /// A master was looked into within one quantum, or between two moments.
    pub(super) fn see(&mut self, master: Node, (before_ns, now_ns): (u64, u64), look: Look) {
        self.looks += 1;
        for finding in &look.findings {
            self.find(format!("check of {master}: {finding}"));
        }
        if let Some(at) = look.applied {
            let (digest, other) = *self.digests.entry(at).or_insert((look.digest, master));
            if digest != look.digest {
                let (term, index) = at;
                self.find(format!(
                    "{master} and {other} differ after entry {index} of term {term}"
                ));
            }
        }
        // When it is not known at which moment it was certain, nothing follows.
        if let Some(term) = look.certain_term.filter(|_| before_ns == now_ns) {
            let is_before = |highest, other| term < highest || (term == highest && master != other);
            match self.certain {
                Some((highest, other)) if is_before(highest, other) => {
                    self.find(format!(
                        "{master} is certain to lead alone in term {term}, and {other} was in term \
                         {highest} before"
                    ));
                }
                Some((highest, _)) if term == highest => {}
                _ => {
                    self.terms += 1;
                    self.certain = Some((term, master));
                }
            }
        }
        if look.certain_term.is_some() && !look.is_rebuilding && look.generation > self.served {
            self.served = look.generation;
            self.served_ns.push(now_ns);
        }
        self.last.insert(master, (now_ns, look));
    }

    /// All masters lost their disks: terms and entries are counted anew, generations are not.
    pub(super) fn wiped(&mut self) {
        self.digests.clear();
        self.certain = None;
    }

    /// A master's process is gone.
    pub(super) fn forget(&mut self, master: Node) {
        self.last.remove(&master);
    }

    /// The highest epoch that an agent has written down.
    pub(super) fn see_epoch(&mut self, agent: Node, epoch: Epoch) {
        let before = self.epochs.entry(agent).or_insert(epoch);
        if epoch < *before {
            let finding = format!("{agent} went back from epoch {before} to {epoch}");
            self.find(finding);
        } else {
            *before = epoch;
        }
    }

    /// Whether some master leads and is certain of it.
    pub(super) fn is_led(&self) -> bool {
        let mut looks = self.last.values();
        looks.any(|(_, look)| look.certain_term.is_some())
    }

    /// How often the pool was made again from what its agents hold.
    pub(super) fn rebuilds(&self) -> u64 {
        (self.served_ns.len() as u64).saturating_sub(1)
    }

    /// When it was made again after this moment; the end of time if it was not.
    pub(super) fn rebuilt_after_ns(&self, at_ns: u64) -> u64 {
        let mut served_ns = self.served_ns.iter().copied();
        served_ns.find(|ns| *ns > at_ns).unwrap_or(u64::MAX)
    }

    /// Whether all of these have applied the same.
    pub(super) fn are_equal(&self, masters: &[Node]) -> bool {
        let applied = |node: &Node| {
            let (_, look) = self.last.get(node)?;
            look.applied
        };
        let first = masters.first().and_then(applied);
        first.is_some() && masters.iter().all(|node| applied(node) == first)
    }

    /// How often masters were looked into, and how many terms there were: for the trace.
    pub(super) fn counts(&self) -> String {
        let epochs: Vec<String> = self.epochs.values().map(ToString::to_string).collect();
        let last = self.digests.last_key_value();
        format!(
            "{} looks, {} terms, {epochs:?}, {last:?}",
            self.looks, self.terms
        )
    }
}
