//! Who this process is at agents: its session token, name and incarnation.

use std::sync::Arc;

use larder_types::Incarnation;
use larder_wire::limit::{PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::{Hello, Purpose};
use tokio::sync::watch;

/// Gives the present session token to every new connection. The owner of the connection to the
/// master sends a fresh one through the channel before the old one ends; connections that stand
/// stay as they are.
#[derive(Clone)]
pub struct SessionSource {
    tokens: watch::Receiver<Vec<u8>>,
    name: Arc<str>,
    incarnation: Incarnation,
}

impl SessionSource {
    /// Takes the channel of tokens, and how this process calls itself at agents.
    #[must_use]
    pub fn new(tokens: watch::Receiver<Vec<u8>>, name: &str, incarnation: Incarnation) -> Self {
        Self {
            tokens,
            name: Arc::from(name),
            incarnation,
        }
    }

    /// A source of one token that never changes.
    #[must_use]
    pub fn fixed(token: Vec<u8>, name: &str, incarnation: Incarnation) -> Self {
        // The last value stays readable after the sender is gone.
        Self::new(watch::channel(token).1, name, incarnation)
    }

    /// The hello of a new connection.
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            features: 0,
            credential: self.tokens.borrow().clone(),
            purpose: Purpose::Client,
            name: self.name.as_ref().to_owned(),
            incarnation: self.incarnation,
        }
    }
}

/// The token is a secret.
impl std::fmt::Debug for SessionSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionSource")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
