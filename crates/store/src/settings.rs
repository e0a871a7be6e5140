//! Settings of the leader: deadlines and bounds.

/// Deadlines in milliseconds of pool time, and bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// After this long a pending put may be discarded.
    pub put_discard_ms: u64,
    /// How long a pool that lost its log waits for agents before it is served with what was found.
    pub inventory_wait_ms: u64,
    /// After this much silence nothing new is placed on an agent.
    pub agent_suspect_ms: u64,
    /// After this much silence an agent's segments are lost. It was suspect before.
    pub agent_ttl_ms: u64,
    /// After this long a put that waits for space which others still hold is refused.
    pub space_wait_ms: u64,
    /// After this long an empty slab is taken back.
    pub slab_idle_ms: u64,
    /// After an agent failed to make a slab of a segment, it is asked for none of it for this long.
    pub slab_retry_ms: u64,
    /// The most puts that are pending, or discarded and not yet released.
    pub max_pending_puts: usize,
    /// Whether anything is evicted at all. Without, a full pool and a tenant at its limit refuse.
    pub evict: bool,
    /// What a segment, or a tenant of its limit, may hold before its coldest are evicted, per
    /// mille.
    pub high_watermark: u32,
    /// Down to what is evicted then, per mille.
    pub low_watermark: u32,
    /// Whether soft pins that are within their time go when nothing else is left.
    pub evict_soft_pinned: bool,
    /// How long a get protects its object from eviction.
    pub lease_ms: u64,
    /// How long a soft pin lasts that names no time.
    pub soft_pin_ms: u64,
    /// The longest soft pin.
    pub soft_pin_max_ms: u64,
    /// The largest object, in bytes.
    pub max_object_bytes: u64,
    /// The most bytes of one tenant that are pinned hard, in charged bytes.
    pub max_pinned_bytes: u64,
    /// The most proposed ops that clients may have in flight. Agents' and own ops come on top:
    /// they are bounded by the number of slabs and extents.
    pub max_in_flight_ops: usize,
    /// The most objects that one turn purges or sweeps.
    pub max_touched_objects: u32,
    /// The most requests of one call that are decided before others have their turn.
    pub slice_items: usize,
    /// The most agents that are known by name, lost ones included.
    pub max_agents: usize,
    /// The most tenants.
    pub max_tenants: usize,
    /// The most copies between agents at once, for repair, drain, compaction and tasks together;
    /// at most [`MAX_MOVES`].
    pub max_moves: usize,
    /// How much of objects is copied between agents, in bytes per second.
    pub move_bytes_per_s: u64,
    /// After this long an agent gives a copy up.
    pub move_timeout_ms: u64,
    /// After this long what could not be moved for want of space is looked at again; the wait
    /// doubles up to 32 times this while nothing moves.
    pub move_retry_ms: u64,
}

/// The most that [`Settings::max_moves`] may be. The order of a copy of one extent with the longest
/// key and a session token is about 6 KiB long; the longest of several extents fills half a frame.
pub const MAX_MOVES: usize = 256;

impl Default for Settings {
    fn default() -> Self {
        Self {
            put_discard_ms: 30_000,
            inventory_wait_ms: 10_000,
            agent_suspect_ms: 3_000,
            agent_ttl_ms: 10_000,
            space_wait_ms: 1_000,
            slab_idle_ms: 10_000,
            slab_retry_ms: 10_000,
            // About 500 bytes each: 64 MiB at most.
            max_pending_puts: 131_072,
            evict: true,
            high_watermark: 900,
            low_watermark: 800,
            evict_soft_pinned: true,
            lease_ms: 10_000,
            soft_pin_ms: 30 * 60 * 1000,
            soft_pin_max_ms: 24 * 60 * 60 * 1000,
            max_object_bytes: 64 << 30,
            max_pinned_bytes: 64 << 30,
            max_in_flight_ops: 65_536,
            // A turn is to take less than 5 ms, and an object that lies in no cache of the
            // processor takes up to 3 us.
            max_touched_objects: 512,
            // Up to 6 us each with its op: 1.5 ms.
            slice_items: 256,
            max_agents: 4_096,
            max_tenants: 16_384,
            max_moves: 32,
            // A quarter of what a link of 25 Gbit/s carries.
            move_bytes_per_s: 768 * 1024 * 1024,
            move_timeout_ms: 60_000,
            move_retry_ms: 10_000,
        }
    }
}
