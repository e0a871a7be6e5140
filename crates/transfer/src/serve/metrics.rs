//! What a listener counts, without knowing how metrics are kept.

use larder_wire::Kind;
use larder_wire::data::DataReason;

/// Is told what happens on an agent's listeners. `listener` is `tcp` or `unix`; reasons are
/// metric labels, of a fixed set each.
pub trait ServeMetrics {
    /// Somebody connected; nothing is known about them yet.
    fn connected(&self, listener: &'static str) {
        let _ = listener;
    }

    /// A hello was accepted.
    fn greeted(&self, listener: &'static str) {
        let _ = listener;
    }

    /// A connection ended before its hello was accepted.
    fn hello_failed(&self, listener: &'static str, reason: &'static str) {
        let _ = (listener, reason);
    }

    /// A connection ended after its hello: `closed` if its peer wanted that.
    fn closed(&self, listener: &'static str, reason: &'static str) {
        let _ = (listener, reason);
    }

    /// A connection is gone; comes once for each [`Self::connected`], however it ended.
    fn ended(&self, listener: &'static str) {
        let _ = listener;
    }

    /// A call was refused.
    fn refused(&self, kind: Kind, reason: DataReason) {
        let _ = (kind, reason);
    }

    /// A call moved payload.
    fn moved(&self, kind: Kind, bytes: u64) {
        let _ = (kind, bytes);
    }
}

/// Counts nothing.
impl ServeMetrics for () {}
