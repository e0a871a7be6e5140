//! Takes down what one client asks and is told.

use super::operation::{Call, History, HistoryError, Operation, Outcome};

/// The record of one client, owned by it. Clients that run at the same time have one each, all on
/// one clock, and are merged at the end.
#[derive(Debug)]
pub struct Recorder {
    client: u32,
    operations: Vec<Operation>,
    operations_max: usize,
}

/// An operation that was called and not yet answered.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an operation that is never ended counts as of unknown outcome"]
pub struct Token(usize);

impl Recorder {
    /// An empty record of at most `operations_max` operations (some 120 bytes each and their key).
    #[must_use]
    pub fn new(client: u32, operations_max: usize) -> Self {
        Self {
            client,
            operations: Vec::new(),
            operations_max,
        }
    }

    /// Notes a call, before anything of it is sent.
    ///
    /// # Errors
    /// [`HistoryError::Full`]: call nothing, since it could not be judged.
    pub fn begin(&mut self, key: &str, call: Call, now_ns: u64) -> Result<Token, HistoryError> {
        let operations_max = self.operations_max;
        if self.operations.len() >= operations_max {
            return Err(HistoryError::Full { operations_max });
        }
        self.operations.push(Operation {
            client: self.client,
            key: key.to_owned(),
            call,
            invoked_ns: now_ns,
            ended_ns: None,
            outcome: Outcome::Unknown,
        });
        Ok(Token(self.operations.len() - 1))
    }

    /// Notes an answer, after all of it came.
    ///
    /// # Errors
    /// [`HistoryError::Misfit`] if this call has no such outcome, [`HistoryError::NotBegun`] if the
    /// token is of another recorder.
    pub fn end(&mut self, token: Token, outcome: Outcome, now_ns: u64) -> Result<(), HistoryError> {
        let Token(index) = token;
        let open = self.operations.get_mut(index);
        let Some(operation) = open.filter(|operation| operation.ended_ns.is_none()) else {
            return Err(HistoryError::NotBegun { index });
        };
        let ended = Operation {
            ended_ns: Some(now_ns),
            outcome,
            ..operation.clone()
        };
        if !ended.fits() {
            let operation = Box::new(ended);
            return Err(HistoryError::Misfit { operation });
        }
        *operation = ended;
        Ok(())
    }

    /// How many operations it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// What was recorded so far.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// What was recorded; what was not ended is of unknown outcome.
    #[must_use]
    pub fn finish(self) -> Vec<Operation> {
        self.operations
    }

    /// One history of several clients.
    ///
    /// # Errors
    /// None that recorders could cause; [`HistoryError::Misfit`] all the same.
    pub fn merge(recorders: impl IntoIterator<Item = Self>) -> Result<History, HistoryError> {
        let operations = recorders.into_iter().flat_map(Self::finish).collect();
        History::new(operations)
    }
}
