//! Calls between processes: bytes there and bytes back, within a time.
//!
//! This is what agreement among masters needs of a network: [`Caller`] can be cloned, sent to other
//! tasks of its process, and dropped in the middle of a call.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::network::{Node, Sent};
use super::packet::Packet;
use super::stage::Outbox;

/// Calls that wait to be sent.
const ASKED_MAX: usize = 256;
/// Calls without an answer that are remembered; the oldest is forgotten, and its caller waits out
/// its time.
const OPEN_MAX: usize = 4_096;

/// Why a call has no answer. It may have arrived all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed {
    /// The time is over.
    #[error("no answer came in time; ask again")]
    Late,
    /// The process does not take calls any more, or more than it may are waiting.
    #[error("the process takes no more calls; it stops or asks too much")]
    Closed,
}

/// Calls other processes.
#[derive(Clone, Debug)]
pub struct Caller {
    asks: mpsc::Sender<Asked>,
}

/// A call on its way to the network.
#[derive(Debug)]
pub struct Asked {
    to: Node,
    body: Vec<u8>,
    answer: oneshot::Sender<Vec<u8>>,
}

/// The calls of a process, held by whoever reads its inbox.
#[derive(Debug)]
pub struct Calls {
    outbox: Outbox<Packet>,
    asks: mpsc::Receiver<Asked>,
    open: BTreeMap<u64, (Node, oneshot::Sender<Vec<u8>>)>,
    next_number: u64,
}

impl Caller {
    /// Calls and waits for the answer at most so long. Its clock is that of the process.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn call(
        &self,
        to: Node,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, CallFailed> {
        let (answer, answered) = oneshot::channel();
        let asked = Asked { to, body, answer };
        self.asks.try_send(asked).map_err(|_| CallFailed::Closed)?;
        match timeout(within, answered).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) => Err(CallFailed::Closed),
            Err(_) => Err(CallFailed::Late),
        }
    }
}

impl Calls {
    /// The calls of the process that sends through `outbox`. `first_number` is drawn anew in each
    /// life of it, so that an answer to a former life is none to this one.
    #[must_use]
    pub fn new(outbox: Outbox<Packet>, first_number: u64) -> (Caller, Self) {
        let (sender, asks) = mpsc::channel(ASKED_MAX);
        let calls = Self {
            outbox,
            asks,
            open: BTreeMap::new(),
            next_number: first_number >> 1,
        };
        (Caller { asks: sender }, calls)
    }

    /// The next call that some task wants to make, for [`Self::begin`]. May be dropped.
    pub async fn asked(&mut self) -> Option<Asked> {
        self.asks.recv().await
    }

    /// Sends a call.
    pub fn begin(&mut self, asked: Asked) {
        let Asked { to, body, answer } = asked;
        self.open.retain(|_, (_, answer)| !answer.is_closed());
        if self.open.len() >= OPEN_MAX {
            self.open.pop_first();
        }
        let number = self.next_number;
        self.next_number += 1;
        let packet = Packet::PeerAsk { number, body };
        if self.outbox.send(to, packet) == Sent::OnTheWay {
            self.open.insert(number, (to, answer));
        }
    }

    /// An answer arrived. One that nobody waits for, or that somebody else gives, is passed over.
    pub fn told(&mut self, from: Node, number: u64, body: Vec<u8>) {
        if self.open.get(&number).is_some_and(|(to, _)| *to == from)
            && let Some((_, answer)) = self.open.remove(&number)
        {
            // Whoever asked may have given up just now.
            let _ = answer.send(body);
        }
    }
}
