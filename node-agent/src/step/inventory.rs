//! Telling a master that lost its log what is here: page by page, the next after the answer.

use larder_transfer::{InventoryCursor, InventoryPage};
use larder_wire::agent::Inventory;

use super::link::Phase;
use super::{Action, AgentState, DataOrder, Note, Outbound, WalkId};

/// How far it is told. At most one page is on its way.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// The latest walk; pages of former ones are ignored.
    walk: WalkId,
    stage: Stage,
    /// Records in the pages that were sent.
    records: u64,
}

#[derive(Debug, Default)]
enum Stage {
    /// Nobody asks, or everything is told.
    #[default]
    Idle,
    /// The data side was asked for a page.
    Listing,
    /// A page was sent and has no answer yet; with the place where the next one begins.
    Sent(Option<InventoryCursor>),
}

impl Telling {
    /// Whoever asked is gone or will ask again, from the start.
    pub(super) const fn stop(&mut self) {
        self.stage = Stage::Idle;
    }
}

impl AgentState {
    /// Begins from the start, however much was told before.
    pub(super) fn tell_all(&mut self, actions: &mut Vec<Action>) {
        self.telling.walk.0 += 1;
        self.telling.records = 0;
        self.list(None, actions);
    }

    fn list(&mut self, from: Option<InventoryCursor>, actions: &mut Vec<Action>) {
        self.telling.stage = Stage::Listing;
        let walk = self.telling.walk;
        actions.push(Action::Data(DataOrder::List { walk, from }));
    }

    /// The data side made a page.
    pub(super) fn listed(&mut self, walk: WalkId, page: InventoryPage, actions: &mut Vec<Action>) {
        let telling = &mut self.telling;
        let (Phase::Mounted { link, .. }, Some(identity)) = (self.link.phase, &self.identity)
        else {
            return;
        };
        if walk != telling.walk || !matches!(telling.stage, Stage::Listing) {
            return;
        }
        telling.stage = Stage::Sent(page.next);
        telling.records += page.records.len() as u64;
        let inventory = Inventory {
            agent: identity.agent,
            incarnation: self.settings.incarnation,
            slabs: page.slabs,
            records: page.records,
            is_last: page.next.is_none(),
        };
        let message = Outbound::Inventory(Box::new(inventory));
        actions.push(Action::Send(link, message));
    }

    /// What the last page said is in the log.
    pub(super) fn taken(&mut self, actions: &mut Vec<Action>) {
        match self.telling.stage {
            Stage::Sent(Some(next)) => self.list(Some(next), actions),
            Stage::Sent(None) => {
                self.telling.stop();
                let records = self.telling.records;
                actions.push(Action::Note(Note::InventoryTold { records }));
            }
            Stage::Idle | Stage::Listing => {}
        }
    }
}
