//! Cache events: what appeared in the cache and what went, told to whoever asks.
//!
//! ```text
//! log      pure: what is kept, by tenant, with its numbers
//! waiting  pure: subscribers that have everything there is
//! zmq      the same as hashes of blocks, on sockets of other programs' kind
//! ```
//!
//! The leader owns it all and fills it from committed ops; it stands apart from the state and is
//! lost with the leader, whose successor numbers its events with another epoch.

pub(crate) mod config;
mod log;
mod waiting;
#[cfg_attr(not(feature = "zmq"), path = "no_zmq.rs")]
pub(crate) mod zmq;

use std::collections::{BTreeMap, BTreeSet};

use larder_store::{Gone, GoneCause, Op};
use larder_telemetry::metrics::CounterHandle;
use larder_telemetry::{Metric, Registry};
use larder_types::{Epoch, Key, PoolTime, TenantId, Version};
use larder_wire::events::{CacheChange, CacheEvent, EventPage, Sequence};

use crate::event::ConnectionId;
use config::EventsConfig;
use log::{EventLog, Limits};
use waiting::Waiting;

pub(crate) use waiting::Waiter;

/// One counter for each change.
type ChangeCounters = [CounterHandle; CacheChange::NAMES.len()];

/// The events of one leader, and who wants them.
#[derive(Debug)]
pub(crate) struct Events {
    log: EventLog,
    pub(crate) waiting: Waiting,
    feeds: zmq::Feeds,
    /// Tenants with events that their subscribers have not been told of.
    touched: BTreeSet<TenantId>,
    registry: Registry,
    counters: BTreeMap<TenantId, ChangeCounters>,
    /// Tenants whose gauges stand on the page.
    shown: BTreeSet<TenantId>,
}

impl Events {
    /// The events of a leader that begins with an empty pool.
    pub(crate) fn new(
        epoch: Epoch,
        config: &EventsConfig,
        mut feeds: zmq::Feeds,
        registry: Registry,
    ) -> Self {
        let limits = Limits {
            events: config.capacity,
            bytes: config.capacity_bytes,
        };
        feeds.begin();
        Self {
            log: EventLog::new(epoch, limits),
            waiting: Waiting::default(),
            feeds,
            touched: BTreeSet::new(),
            registry,
            counters: BTreeMap::new(),
            shown: BTreeSet::new(),
        }
    }

    /// An op was applied, and these objects went with it: before what the op itself says, since
    /// a put may come where a lost object stood.
    pub(crate) fn take(&mut self, op: &Op, gone: Vec<Gone>) {
        for one in gone {
            self.push(&one.tenant, one.key, one.version, change_of(one.cause));
        }
        match op {
            Op::PutEnd {
                tenant,
                key,
                version,
                size_bytes,
                replaces,
                ..
            } => {
                let change = CacheChange::Stored {
                    size_bytes: *size_bytes,
                    replaces: *replaces,
                };
                self.push(tenant, key.clone(), *version, change);
            }
            Op::Remove {
                tenant,
                key,
                version,
                cause,
            } => self.push(tenant, key.clone(), *version, change_of((*cause).into())),
            Op::TenantForgotten { tenant } => self.forget_tenant(tenant),
            _ => {}
        }
    }

    fn push(&mut self, tenant: &TenantId, key: Key, version: Version, change: CacheChange) {
        let place = change.place();
        let event = CacheEvent {
            key,
            version,
            change,
        };
        for (tenant, events) in self.log.push(tenant, event) {
            let labels = [tenant.as_str()];
            self.registry
                .inc(Metric::MasterEventsDroppedTotal, &labels, events as u64);
        }
        if !self.counters.contains_key(tenant) {
            let counters = CacheChange::NAMES.map(|name| {
                let labels = [tenant.as_str(), name];
                self.registry.counter(Metric::MasterEventsTotal, &labels)
            });
            self.counters.insert(tenant.clone(), counters);
        }
        if let Some(counter) = self.counters.get(tenant).and_then(|all| all.get(place)) {
            counter.inc(1);
        }
        if !self.touched.contains(tenant) {
            self.touched.insert(tenant.clone());
        }
    }

    /// The tenants with new events, once; what of it is published on ZMQ leaves with this.
    pub(crate) fn publish(&mut self) -> BTreeSet<TenantId> {
        let touched = std::mem::take(&mut self.touched);
        for tenant in &touched {
            self.feeds.publish(tenant, &self.log, &self.registry);
        }
        touched
    }

    /// What is kept of a tenant's events from a number on; only the next number without one.
    pub(crate) fn read(&self, tenant: &TenantId, from: Option<Sequence>) -> EventPage {
        let Some(from) = from else {
            return EventPage::Events {
                entries: Vec::new(),
                next: self.log.next(tenant),
                more: false,
            };
        };
        let page = self.log.read(tenant, from);
        if matches!(page, EventPage::Gap { .. }) {
            let labels = [tenant.as_str()];
            self.registry.inc(Metric::MasterEventGapsTotal, &labels, 1);
        }
        page
    }

    /// A connection is gone.
    pub(crate) fn forget_connection(&mut self, connection: ConnectionId) {
        self.waiting.forget(connection);
    }

    /// When the next subscriber is to be answered whatever happens.
    pub(crate) fn next_end(&self) -> Option<PoolTime> {
        self.waiting.next_end()
    }

    /// Its last events have been published by an earlier turn: a tenant is forgotten only when it
    /// holds nothing.
    fn forget_tenant(&mut self, tenant: &TenantId) {
        self.feeds.publish(tenant, &self.log, &self.registry);
        self.log.forget(tenant);
        self.feeds.restart(tenant);
        self.counters.remove(tenant);
        self.shown.remove(tenant);
        self.touched.remove(tenant);
    }

    /// Brings the gauges up to date.
    pub(crate) fn refresh(&mut self) {
        let set = |metric, labels: &[&str], value: usize| {
            self.registry.set(metric, labels, value as u64);
        };
        set(Metric::MasterEventsHeldBytes, &[], self.log.bytes());
        for (tenant, held) in self.log.held() {
            let label = [tenant.as_str()];
            set(Metric::MasterEventsHeld, &label, held);
            set(
                Metric::MasterEventSubscribers,
                &label,
                self.waiting.of(tenant),
            );
            if let Some(subscribers) = self.feeds.subscribers(tenant) {
                set(Metric::MasterZmqSubscribers, &label, subscribers);
            }
            self.shown.insert(tenant.clone());
        }
    }

    /// This leader ends: nothing of its state stays on the page.
    pub(crate) fn forget_all(&mut self) {
        for tenant in std::mem::take(&mut self.shown) {
            for metric in [
                Metric::MasterEventsHeld,
                Metric::MasterEventSubscribers,
                Metric::MasterZmqSubscribers,
            ] {
                self.registry.remove(metric, &[tenant.as_str()]);
            }
        }
    }
}

const fn change_of(cause: GoneCause) -> CacheChange {
    match cause {
        GoneCause::Removed => CacheChange::Removed,
        GoneCause::Evicted => CacheChange::Evicted,
        GoneCause::Expired => CacheChange::Expired,
        GoneCause::Lost => CacheChange::Lost,
        GoneCause::Purged => CacheChange::Purged,
    }
}
