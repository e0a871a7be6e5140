//! All that one client asked and was told, for the history checker.

use anyhow::Result;
use larder_client::{ClientError, Reason};
use larder_sim::history::{Call, Operation, Outcome, Recorder, Token, Value};

use crate::chaos::ledger::value;
use crate::chaos::now_ns;

/// Operations of a client in two rounds at most: some 200 bytes each, so 60 MB. Reads beyond half
/// of that are judged by the ledger only, which makes no right history wrong.
const OPERATIONS_MAX: usize = 300_000;

/// The record of one client.
#[derive(Debug)]
pub struct Record(Recorder);

/// A batch of operations that were called and not yet answered.
#[derive(Debug)]
#[must_use = "what is never ended counts as of unknown outcome"]
pub struct Open(Vec<Option<Token>>);

impl Record {
    /// Of a client of this number.
    #[must_use]
    pub fn new(client: u64) -> Self {
        let client = u32::try_from(client).unwrap_or(u32::MAX);
        Self(Recorder::new(client, OPERATIONS_MAX))
    }

    /// Notes calls, before anything of them is sent.
    ///
    /// # Errors
    /// If there is no room for writes.
    pub fn begin<'a>(&mut self, calls: impl Iterator<Item = (&'a str, Call)>) -> Result<Open> {
        let now = now_ns();
        let mut open = Vec::new();
        for (key, call) in calls {
            let is_left_out = call == Call::Get && self.0.len() >= OPERATIONS_MAX / 2;
            open.push(match is_left_out {
                true => None,
                false => Some(self.0.begin(key, call, now)?),
            });
        }
        Ok(Open(open))
    }

    /// Notes their answers, in the same order, after all of them came.
    ///
    /// # Errors
    /// If an answer is none of the call.
    pub fn end(&mut self, open: Open, outcomes: impl Iterator<Item = Outcome>) -> Result<()> {
        let now = now_ns();
        for (token, outcome) in open.0.into_iter().zip(outcomes) {
            if let Some(token) = token {
                self.0.end(token, outcome, now)?;
            }
        }
        Ok(())
    }

    /// What was recorded.
    #[must_use]
    pub fn finish(self) -> Vec<Operation> {
        self.0.finish()
    }
}

/// What a get says.
#[must_use]
pub fn got(result: &Result<bytes::Bytes, ClientError>) -> Outcome {
    match result {
        Ok(bytes) => match bytes.first_chunk().map(|seed| u64::from_le_bytes(*seed)) {
            Some(seed) if value(seed) == bytes => Outcome::Got(Value(seed)),
            _ => Outcome::Garbled,
        },
        Err(error) if error.reason() == Some(Reason::NotFound) => Outcome::Missing,
        Err(_) => Outcome::Unknown,
    }
}

/// What a write says, of which an error says nothing.
#[must_use]
pub fn written<T, E>(result: &Result<T, E>) -> Outcome {
    result.as_ref().map_or(Outcome::Unknown, |_| Outcome::Done)
}

/// What a removal says.
#[must_use]
pub fn removed(result: &Result<(), ClientError>) -> Outcome {
    match result {
        Err(error) if error.reason() == Some(Reason::NotFound) => Outcome::Missing,
        result => written(result),
    }
}
