//! The handle by which the tasks of one thread share their segments.

use std::cell::RefCell;
use std::rc::Rc;

use super::Segments;

/// Shares one [`Segments`] among the tasks of one thread. Not `Send`: there is nothing to lock.
#[derive(Clone, Debug)]
pub struct SegmentsHandle(Rc<RefCell<Segments>>);

impl SegmentsHandle {
    /// Wraps the segments of this thread.
    #[must_use]
    pub fn new(segments: Segments) -> Self {
        Self(Rc::new(RefCell::new(segments)))
    }

    /// Runs `f` on the segments. `f` cannot wait, and must not call `with` again.
    pub fn with<R>(&self, f: impl FnOnce(&mut Segments) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
}
