//! What a leader is set up with, and how its time ends.

use larder_store::{Corruption, Settings};
use larder_types::Incarnation;
use larder_wire::{RootKey, SessionSigner};

use super::TICK_MS_MAX;
use crate::flaw::Flaw;
use crate::log::LogError;

/// What the leader is set up with.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) incarnation: Incarnation,
    pub(crate) replica_factor: u8,
    pub(crate) session_token_ms: u64,
    pub(crate) settings: Settings,
    /// What its choices follow from.
    pub(crate) seed: u64,
    pub(crate) flaw: Flaw,
}

impl Rules {
    /// How often agents are to send heartbeats, in ms: three chances before one is suspect.
    pub(super) fn heartbeat_ms(&self) -> u64 {
        (self.settings.agent_suspect_ms / 3).max(1)
    }

    pub(super) fn tick_ms(&self) -> u64 {
        (self.settings.agent_suspect_ms / 8).clamp(5, TICK_MS_MAX)
    }
}

/// The secrets that only masters hold, and what is published of them.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) root: RootKey,
    pub(crate) signer: SessionSigner,
    pub(crate) session_key: [u8; 32],
}

/// Why a leader leads no longer.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was told to stop.
    Stopped,
    /// An agent has seen an epoch above ours: the pool starts over above that generation.
    StartOver { above: u64 },
    /// An op did not fit the state.
    Corrupt(Corruption),
    /// Another master leads, or the log took no more.
    Log(LogError),
}
