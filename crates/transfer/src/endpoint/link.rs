//! What the tasks of an endpoint see of a rail's connection: its line, and how it fares.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use larder_types::{Incarnation, SessionId};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::engine::core::SliceKey;

/// A line is not looked through before it is so long.
const LONG: usize = 64;

/// What the tasks of an endpoint see of a rail's connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Slices in line; as many as the core lets wait for a rail.
    pub(super) line: RefCell<VecDeque<SliceKey>>,
    /// When the line is looked through for such as have ended.
    long: Cell<usize>,
    /// Something has come into the line.
    pub(super) came: Notify,
    /// What is on its way out will not be finished: this connection has to go.
    is_cut: Cell<bool>,
    /// It is so now.
    cut: Notify,
    /// Slices that have begun and not ended.
    underway: Cell<u32>,
    /// The peer owes an answer: something was sent, and no answer since left nothing under way. A
    /// slice that was given up is owed one too, or a silent peer would never be noticed.
    is_owed: Cell<bool>,
    /// It does so now.
    busy: Notify,
    /// When something moved last.
    moved: Cell<Option<Instant>>,
    /// The session of the last connection.
    pub(super) session: Cell<Option<(Incarnation, SessionId)>>,
}

impl Link {
    /// Puts a slice in line. `is_live` tells those that have ended apart: they are dropped when the
    /// line has become long, as it does while the peer is not reached.
    pub(super) fn line_up(&self, key: SliceKey, is_live: impl Fn(SliceKey) -> bool) {
        let mut line = self.line.borrow_mut();
        if line.len() >= self.long.get().max(LONG) {
            line.retain(|key| is_live(*key));
            self.long.set(2 * line.len());
        }
        line.push_back(key);
        self.came.notify_one();
    }

    pub(super) fn cut(&self) {
        self.is_cut.set(true);
        self.cut.notify_one();
    }

    pub(super) async fn is_cut(&self) {
        while !self.is_cut.get() {
            self.cut.notified().await;
        }
    }

    pub(super) fn begun(&self) {
        self.underway.set(self.underway.get() + 1);
        if !self.is_owed.replace(true) {
            self.move_on();
            self.busy.notify_one();
        }
    }

    /// Another connection: what the one before owed or was to end by is nothing to it.
    pub(super) fn renew(&self) {
        self.is_cut.set(false);
        self.is_owed.set(false);
    }

    /// An answer has come, and what it was to has ended.
    pub(super) fn answered(&self) {
        self.is_owed.set(self.underway.get() > 0);
    }

    pub(super) fn ended(&self) {
        self.underway.set(self.underway.get().saturating_sub(1));
    }

    pub(super) fn move_on(&self) {
        self.moved.set(Some(Instant::now()));
    }

    pub(super) fn next(&self) -> Option<SliceKey> {
        self.line.borrow_mut().pop_front()
    }

    /// Returns when something is due and nothing has moved for `limit`.
    pub(super) async fn stalls(&self, limit: Duration) {
        loop {
            let moved = self.moved.get();
            match moved.filter(|_| self.is_owed.get()) {
                None => self.busy.notified().await,
                Some(moved) if moved + limit <= Instant::now() => return,
                Some(moved) => sleep_until(moved + limit).await,
            }
        }
    }
}
