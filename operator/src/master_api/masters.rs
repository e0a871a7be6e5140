//! Masters as one of them shows them: who leads, who votes, who is in sync.

use serde::Deserialize;

/// `GET /v1/masters`, as far as the operator needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MastersDocument {
    /// The name of the one that leads.
    pub leader: Option<String>,
    /// The names of all that it lets in; it drops the others.
    pub named: Vec<String>,
    /// All that are members.
    pub masters: Vec<MasterDocument>,
}

/// One master.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MasterDocument {
    /// Its name: that of its pod.
    pub name: String,
    /// Whether it counts for a quorum.
    pub is_voter: bool,
    /// Whether it has all but the latest entries, and was heard just now. Only the leader knows.
    pub in_sync: bool,
}
