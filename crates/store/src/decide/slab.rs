//! Deciding what agents report of slabs and extents.

use larder_types::{AgentId, Extent, PoolTime, Reason, SlabRef, Version};

use super::{Outcome, Stop, refuse};
use crate::leader::Leader;
use crate::op::Op;
use crate::reply::{Reply, WaitOn};
use crate::request::MAX_RELEASED;
use crate::segment::{SlabPhase, slab_key};
use crate::state::State;

impl Leader {
    pub(super) fn slab_ready(&mut self, state: &State, slab: SlabRef) -> Outcome {
        match self.reported(state, slab)? {
            Some(SlabPhase::Giving) => {
                Ok(self.answer_with(vec![Op::SlabReady { slab }], Reply::Done))
            }
            // Said before, or of a former life.
            _ => Ok(self.answer(Reply::Done)),
        }
    }

    pub(super) fn slab_returned(&mut self, state: &State, slab: SlabRef) -> Outcome {
        match self.reported(state, slab)? {
            Some(SlabPhase::Taking) => {
                Ok(self.answer_with(vec![Op::SlabReturned { slab }], Reply::Done))
            }
            _ => Ok(self.answer(Reply::Done)),
        }
    }

    /// The slab is free again; its segment gives none until a while has passed.
    pub(super) fn slab_failed(&mut self, state: &State, slab: SlabRef, now: PoolTime) -> Outcome {
        match self.reported(state, slab)? {
            Some(SlabPhase::Giving) => {
                let until = now.plus_ms(self.settings.slab_retry_ms);
                self.soft.failed.insert(slab.segment, until);
                Ok(self.answer_with(vec![Op::SlabReturned { slab }], Reply::Done))
            }
            _ => Ok(self.answer(Reply::Done)),
        }
    }

    /// The phase of the slab in that life; waits if an op is proposed for it.
    fn reported(&self, state: &State, slab: SlabRef) -> Result<Option<SlabPhase>, Stop> {
        if self.overlay.segments_lost.contains(&slab.segment) {
            return Ok(None);
        }
        if self.overlay.slabs.contains_key(&slab_key(slab)) {
            return Err(Stop::Wait(WaitOn::Slab(slab.segment, slab.index)));
        }
        Ok(state.slab(slab).map(|found| found.phase))
    }

    /// Extents come back: those of discarded puts at once, those of removed objects by an op.
    /// What is not waited for is ignored: it was said before, or belongs to a former leader.
    pub(super) fn released(
        &mut self,
        state: &State,
        extents: &[(Extent, Version)],
        agent: AgentId,
        now: PoolTime,
    ) -> Outcome {
        let (got, most) = (extents.len(), MAX_RELEASED);
        if got > most {
            return refuse(
                Reason::BadArgument,
                format!("{got} extents in one call, at most {most}"),
            );
        }
        let mut back = Vec::new();
        for (extent, version) in extents
            .iter()
            .filter(|(extent, _)| extent.slab.agent == agent)
        {
            if self
                .overlay
                .release_discarded(extent, *version, &mut self.effects)
            {
                if let Err(detail) = self.freed(state, extent, now) {
                    return refuse(Reason::Internal, detail);
                }
                continue;
            }
            let place = (slab_key(extent.slab), extent.offset_bytes);
            let waited = !self.overlay.segments_lost.contains(&extent.slab.segment)
                && state
                    .slab(extent.slab)
                    .is_some_and(|slab| slab.releases(extent, *version));
            if waited && self.overlay.released.insert(place) {
                back.push((*extent, *version));
            }
        }
        let ops = if back.is_empty() {
            vec![]
        } else {
            vec![Op::Released { extents: back }]
        };
        Ok(self.answer_with(ops, Reply::Done))
    }
}
