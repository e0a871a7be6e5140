//! What waits to be sent, and what is next: classes share by weight, inside a class tenants do,
//! inside a tenant the earliest deadline goes first. Bounded, and pure.
//!
//! Sharing is start-time fair queueing (Goyal, Vin and Chen, 1996) on two levels. Each flow has a
//! tag, the virtual time at which its next slice starts; the lowest tag is next and rises by bytes
//! ÷ weight. A flow that comes back from idleness starts at the present virtual time: it neither
//! saved anything up nor has to catch up. Deficit round robin was rejected: its order within a
//! round is arbitrary, and a small foreground slice could wait for a quantum of each other flow.
//!
//! A tenant at its limit of bandwidth steps aside until its bucket holds enough again. There is a
//! queue for each peer, so that none waits for another; weights and limits are of all of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use slotmap::{SlotMap, new_key_type};

use super::class::Class;
use super::tenants::Tenants;

new_key_type! {
    /// Something that waits. Stale ones find nothing.
    pub struct Ticket;
}

/// What a queue holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Entries.
    pub entries: usize,
    /// Bytes of all entries.
    pub bytes: u64,
    /// Entries of one tenant.
    pub tenant_entries: usize,
}

/// The queue takes no more for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entries} transfers of {bytes} bytes wait already; try again, or start fewer at once")]
pub struct QueueFull {
    /// How many wait.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// What is next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// This one, and its bytes.
    Entry(T, u64),
    /// Nothing before this time, in ns: those that wait are at their limit of bandwidth.
    At(u64),
    /// Nothing waits.
    Idle,
}

#[derive(Debug)]
struct Entry<T> {
    flow: usize,
    bytes: u64,
    item: T,
}

/// All that waits of one tenant in one class.
#[derive(Debug)]
struct Flow {
    class: Class,
    tenant: u32,
    tag: u128,
    /// By deadline, then by arrival. May hold some that have left.
    line: BinaryHeap<Reverse<(u64, u64, Ticket)>>,
    live: usize,
    /// Whether it stands in its class's line or aside.
    is_lined: bool,
}

#[derive(Debug, Default)]
struct Line {
    tag: u128,
    /// The virtual time: the tag of what was sent last.
    now: u128,
    /// Flows that have something, by tag.
    ready: BinaryHeap<Reverse<(u128, usize)>>,
}

/// So much finer than a byte are tags: a weight up to this changes them.
const TAG_UNIT: u128 = 1 << 20;
/// Lines may hold so many entries that have left, beyond as many as are there.
const SLACK: usize = 64;

/// The queue of one peer. Tenants are numbered by its owner; it keeps a line for each that ever
/// used it.
#[derive(Debug)]
pub struct Queue<T> {
    limits: QueueLimits,
    entries: SlotMap<Ticket, Entry<T>>,
    bytes: u64,
    arrivals: u64,
    flows: Vec<Flow>,
    by_owner: BTreeMap<(Class, u32), usize>,
    lines: [Line; Class::ALL.len()],
    now: u128,
    /// Entries by tenant, of those that have any.
    tenants: BTreeMap<u32, usize>,
    /// Flows at their limit, and when to look at them again, in ns.
    aside: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<T> Queue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            entries: SlotMap::with_key(),
            bytes: 0,
            arrivals: 0,
            flows: Vec::new(),
            by_owner: BTreeMap::new(),
            lines: Default::default(),
            now: 0,
            tenants: BTreeMap::new(),
            aside: BinaryHeap::new(),
        }
    }

    /// Entries that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Their bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts something in line.
    ///
    /// # Errors
    /// [`QueueFull`], with what was to be put.
    pub fn push(
        &mut self,
        (class, tenant): (Class, u32),
        deadline_ns: u64,
        bytes: u64,
        item: T,
    ) -> Result<Ticket, (QueueFull, T)> {
        let of_tenant = self.tenants.get(&tenant).copied().unwrap_or_default();
        // Something larger than all goes alone: it could never go otherwise.
        let is_over =
            !self.entries.is_empty() && self.bytes.saturating_add(bytes) > self.limits.bytes;
        if self.entries.len() >= self.limits.entries
            || of_tenant >= self.limits.tenant_entries
            || is_over
        {
            let full = QueueFull {
                entries: self.entries.len(),
                bytes: self.bytes,
            };
            return Err((full, item));
        }
        Ok(self.readmit((class, tenant), deadline_ns, bytes, item))
    }

    /// Puts something in line that was admitted before, or belongs to what was: bounds do not
    /// count.
    pub fn readmit(
        &mut self,
        (class, tenant): (Class, u32),
        deadline_ns: u64,
        bytes: u64,
        item: T,
    ) -> Ticket {
        *self.tenants.entry(tenant).or_default() += 1;
        self.bytes += bytes;
        self.arrivals += 1;
        let flow = self.flow(class, tenant);
        let ticket = self.entries.insert(Entry { flow, bytes, item });
        let owner = &mut self.flows[flow];
        owner
            .line
            .push(Reverse((deadline_ns, self.arrivals, ticket)));
        owner.live += 1;
        if !owner.is_lined {
            self.make_ready(flow);
        }
        ticket
    }

    /// Takes one out that is not wanted any more.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let entry = self.leave(ticket)?;
        let flow = &mut self.flows[entry.flow];
        if flow.line.len() > 2 * flow.live + SLACK {
            let entries = &self.entries;
            flow.line
                .retain(|Reverse((_, _, ticket))| entries.contains_key(*ticket));
        }
        Some(entry.item)
    }

    /// Takes what is next at `now_ns`, by the weights and limits of `tenants`.
    pub fn pop(&mut self, tenants: &mut Tenants, now_ns: u64) -> Next<T> {
        self.come_back(now_ns);
        while let Some(class) = self.next_class() {
            let Some(Reverse((tag, flow))) = self.lines[class as usize].ready.pop() else {
                continue;
            };
            let Some((ticket, bytes)) = self.first_of(flow) else {
                // All of it has left meanwhile.
                self.flows[flow].is_lined = false;
                continue;
            };
            let tenant = self.flows[flow].tenant;
            if let Err(at_ns) = tenants.take(tenant, bytes, now_ns) {
                self.aside.push(Reverse((at_ns, flow)));
                continue;
            }
            let Some(entry) = self.leave(ticket) else {
                continue;
            };
            self.charge(class, tag, flow, cost(bytes, tenants.weight(tenant)), bytes);
            return Next::Entry(entry.item, bytes);
        }
        match self.aside.peek() {
            Some(Reverse((at_ns, _))) if !self.entries.is_empty() => Next::At(*at_ns),
            _ => Next::Idle,
        }
    }

    /// Where the next one comes from: the class with the lowest tag that has something ready.
    fn next_class(&self) -> Option<Class> {
        let has_some = |class: &Class| !self.lines[*class as usize].ready.is_empty();
        let ready = Class::ALL.into_iter().filter(has_some);
        ready.min_by_key(|class| (self.lines[*class as usize].tag, *class))
    }

    /// Moves the virtual times on by what was sent, and puts the flow in line again.
    fn charge(&mut self, class: Class, tag: u128, flow: usize, cost_of_flow: u128, bytes: u64) {
        let line = &mut self.lines[class as usize];
        self.now = self.now.max(line.tag);
        line.tag = self.now + cost(bytes, class.weight());
        line.now = line.now.max(tag);
        let owner = &mut self.flows[flow];
        owner.tag = tag + cost_of_flow;
        owner.is_lined = owner.live > 0;
        if owner.is_lined {
            line.ready.push(Reverse((owner.tag, flow)));
        }
    }

    /// A flow has something again.
    fn make_ready(&mut self, flow: usize) {
        let owner = &mut self.flows[flow];
        let line = &mut self.lines[owner.class as usize];
        if line.ready.is_empty() {
            line.tag = line.tag.max(self.now);
        }
        owner.tag = owner.tag.max(line.now);
        owner.is_lined = true;
        line.ready.push(Reverse((owner.tag, flow)));
    }

    /// Flows whose bucket may hold enough by now.
    fn come_back(&mut self, now_ns: u64) {
        while let Some(Reverse((at_ns, flow))) = self.aside.peek().copied() {
            if at_ns > now_ns {
                return;
            }
            self.aside.pop();
            self.make_ready(flow);
        }
    }

    /// The first of a flow that is still there.
    fn first_of(&mut self, flow: usize) -> Option<(Ticket, u64)> {
        let line = &mut self.flows[flow].line;
        while let Some(Reverse((_, _, ticket))) = line.peek() {
            if let Some(entry) = self.entries.get(*ticket) {
                return Some((*ticket, entry.bytes));
            }
            line.pop();
        }
        None
    }

    fn leave(&mut self, ticket: Ticket) -> Option<Entry<T>> {
        let entry = self.entries.remove(ticket)?;
        self.bytes -= entry.bytes;
        let flow = &mut self.flows[entry.flow];
        flow.live -= 1;
        let tenant = flow.tenant;
        if let Some(count) = self.tenants.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&tenant);
            }
        }
        Some(entry)
    }

    fn flow(&mut self, class: Class, tenant: u32) -> usize {
        let flows = &mut self.flows;
        *self.by_owner.entry((class, tenant)).or_insert_with(|| {
            flows.push(Flow {
                class,
                tenant,
                tag: 0,
                line: BinaryHeap::new(),
                live: 0,
                is_lined: false,
            });
            flows.len() - 1
        })
    }
}

fn cost(bytes: u64, weight: u64) -> u128 {
    u128::from(bytes.max(1)) * TAG_UNIT / u128::from(weight)
}

#[cfg(test)]
mod tests;
