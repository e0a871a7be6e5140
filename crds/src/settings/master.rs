//! What a spec says to the masters, in numbers, and as their configuration has it.

use serde_json::{Value, json};

use super::{SnapshotsSettings, bytes_of, is_tenant_id};
use crate::background::{Eviction, MAX_CONCURRENT, Moves};
use crate::events::{
    CAPACITY, Events, MASTER_PORTS, MAX_ENDPOINTS, MAX_MESSAGES, MIN_PORT, ZmqEndpoint, ZmqSchema,
};
use crate::problem::Problem;

#[cfg(test)]
mod tests;

/// Least `moves.bytesPerSecond` and `events.maxBytes`.
const MIB: u64 = 1 << 20;
/// Batches that a master keeps for one `replayPort`, at most, in bytes.
const REPLAY_BYTES_MAX: u64 = 64 << 20;

/// The same settings for every master of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterSettings {
    /// Of a node's space, or a tenant's limit, from which on its coldest objects are evicted; at
    /// most 100.
    pub high_watermark_percent: u32,
    /// Down to which they are; at least 1 and less.
    pub low_watermark_percent: u32,
    /// Most copies between nodes at once; 1 to 256.
    pub max_moves: u32,
    /// How much is copied between nodes, in bytes per second; at least 1 MiB.
    pub move_bytes_per_s: u64,
    /// Cache events; `None` means that there are none.
    pub events: Option<EventsSettings>,
    /// Where snapshots are kept, and which one the pool begins from.
    pub snapshots: SnapshotsSettings,
}

impl Default for MasterSettings {
    fn default() -> Self {
        of(
            &Eviction::default(),
            &Moves::default(),
            None,
            &mut Vec::new(),
        )
    }
}

/// Cache events in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsSettings {
    /// Most events that are kept.
    pub capacity: u32,
    /// Most memory for them, in bytes.
    pub capacity_bytes: u64,
    /// Endpoints; no port stands here twice.
    pub zmq: Vec<ZmqEndpoint>,
}

impl EventsSettings {
    /// The ports of all sockets, in the order of the spec.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        let ports = self.zmq.iter();
        ports.flat_map(|endpoint| {
            [Some(endpoint.port), endpoint.replay_port]
                .into_iter()
                .flatten()
        })
    }

    /// What a master needs for them at most, in bytes, without what waits for subscribers.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let replaying = self.zmq.iter().filter(|one| one.replay_port.is_some());
        // At most 64 of them.
        let replays_bytes = replaying.count() as u64 * REPLAY_BYTES_MAX;
        self.capacity_bytes.saturating_add(replays_bytes)
    }

    fn section(&self, zmq_ip: &str) -> Value {
        let endpoint = |endpoint: &ZmqEndpoint| {
            let addr = |port: u16| format!("{zmq_ip}:{port}");
            let schema = match endpoint.schema {
                ZmqSchema::Array => "array",
                ZmqSchema::Map => "map",
            };
            json!({
                "tenant": endpoint.tenant,
                "addr": addr(endpoint.port),
                "replay_addr": endpoint.replay_port.map(addr),
                "beyond_loopback": zmq_ip != LOOPBACK,
                "topic": endpoint.topic,
                "schema": schema,
                "medium": endpoint.medium,
                "high_water": endpoint.high_water,
                "replay_batches": endpoint.replay_batches,
            })
        };
        json!({
            "capacity": self.capacity,
            "capacity_bytes": self.capacity_bytes,
            "zmq": self.zmq.iter().map(endpoint).collect::<Value>(),
        })
    }
}

/// Where endpoints are without a cluster.
const LOOPBACK: &str = "127.0.0.1";

impl MasterSettings {
    /// The parts `eviction`, `moves`, `events`, `snapshots` and `bootstrap` of a master's
    /// configuration file, for the operator and for `larder up`. ZMQ endpoints listen on
    /// loopback only, or `beyond_loopback` on every IPv4 address of the pod.
    #[must_use]
    pub fn sections(&self, beyond_loopback: bool) -> serde_json::Map<String, Value> {
        let zmq_ip = if beyond_loopback { "0.0.0.0" } else { LOOPBACK };
        let mut sections = serde_json::Map::new();
        let eviction = json!({
            "high_watermark_percent": self.high_watermark_percent,
            "low_watermark_percent": self.low_watermark_percent,
        });
        let moves = json!({
            "max_concurrent": self.max_moves,
            "bytes_per_s": self.move_bytes_per_s,
        });
        sections.insert("eviction".to_owned(), eviction);
        sections.insert("moves".to_owned(), moves);
        if let Some(events) = &self.events {
            sections.insert("events".to_owned(), events.section(zmq_ip));
        }
        self.snapshots.sections(beyond_loopback, &mut sections);
        sections
    }
}

/// What three parts of a pool's spec come to; with problems it is of no use.
pub(super) fn of(
    eviction: &Eviction,
    moves: &Moves,
    events: Option<&Events>,
    problems: &mut Vec<Problem>,
) -> MasterSettings {
    let (high, low) = (
        eviction.high_watermark_percent,
        eviction.low_watermark_percent,
    );
    if low == 0 || low >= high || high > 100 {
        let message = "must be at least 1 and less than highWatermarkPercent, which is at most 100";
        problems.push(Problem::new("spec.eviction.lowWatermarkPercent", message));
    }
    if !(1..=MAX_CONCURRENT).contains(&moves.max_concurrent) {
        let message = "must be 1 to 256";
        problems.push(Problem::new("spec.moves.maxConcurrent", message));
    }
    let path = "spec.moves.bytesPerSecond";
    let move_bytes_per_s = at_least_a_mib(path, &moves.bytes_per_second, problems);
    MasterSettings {
        high_watermark_percent: high,
        low_watermark_percent: low,
        max_moves: moves.max_concurrent,
        move_bytes_per_s,
        events: events.map(|events| events_of(events, problems)),
        snapshots: SnapshotsSettings::default(),
    }
}

fn at_least_a_mib(path: &str, said: &crate::Quantity, problems: &mut Vec<Problem>) -> u64 {
    let bytes = bytes_of(said, path, problems).unwrap_or(MIB);
    if bytes < MIB {
        problems.push(Problem::new(path, "must be at least 1Mi"));
    }
    bytes
}

fn events_of(events: &Events, problems: &mut Vec<Problem>) -> EventsSettings {
    let [least, most] = CAPACITY;
    if !(least..=most).contains(&events.capacity) {
        let message = format!("must be {least} to {most}");
        problems.push(Problem::new("spec.events.capacity", message));
    }
    let capacity_bytes = at_least_a_mib("spec.events.maxBytes", &events.max_bytes, problems);
    if events.zmq.len() > MAX_ENDPOINTS {
        let message = format!("must have at most {MAX_ENDPOINTS} endpoints");
        problems.push(Problem::new("spec.events.zmq", message));
    }
    let settings = EventsSettings {
        capacity: events.capacity,
        capacity_bytes,
        zmq: events.zmq.clone(),
    };
    let mut taken = std::collections::BTreeSet::from(MASTER_PORTS);
    for port in settings.ports() {
        if port < MIN_PORT {
            let message = format!("port {port} must be {MIN_PORT} or more");
            problems.push(Problem::new("spec.events.zmq", message));
        } else if !taken.insert(port) {
            let message = format!("port {port} is taken; give each socket one of its own");
            problems.push(Problem::new("spec.events.zmq", message));
        }
    }
    for endpoint in &settings.zmq {
        check(endpoint, problems);
    }
    settings
}

fn check(endpoint: &ZmqEndpoint, problems: &mut Vec<Problem>) {
    let mut refuse = |message: String| {
        let message = format!("the endpoint of port {} {message}", endpoint.port);
        problems.push(Problem::new("spec.events.zmq", message));
    };
    if !is_tenant_id(&endpoint.tenant) {
        refuse(format!(
            "names '{}', which is not a tenant id",
            endpoint.tenant
        ));
    }
    let topic_bytes = endpoint.topic.as_ref().map_or(0, String::len);
    if topic_bytes > 255 || !(1..=64).contains(&endpoint.medium.len()) {
        refuse("must have a topic of at most 255 bytes and a medium of 1 to 64".to_owned());
    }
    for messages in [endpoint.high_water, endpoint.replay_batches] {
        if !(1..=MAX_MESSAGES).contains(&messages) {
            refuse(format!(
                "must have highWater and replayBatches of 1 to {MAX_MESSAGES}"
            ));
        }
    }
}
