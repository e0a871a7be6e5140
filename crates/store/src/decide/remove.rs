//! Deciding removals: of one object, and of all whose keys start alike, some at a time.

use larder_types::{Key, PoolTime, Reason, TenantId};

use super::get::check_limit;
use super::{Outcome, Right, refuse};
use crate::leader::Leader;
use crate::op::{Op, RemovalCause};
use crate::reply::Reply;
use crate::state::State;

/// The most that one call removes: as many objects as a page has, or fewer in many pieces.
const MAX_WEIGHT: u32 = 1_024;

impl Leader {
    pub(super) fn remove(
        &mut self,
        state: &State,
        (tenant, key): (&TenantId, &Key),
        if_unleased: bool,
        now: PoolTime,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Write)?;
        self.untouched(state, tenant, key)?;
        match (held.objects.get(key), self.overlay.pending(tenant, key)) {
            (Some(object), _) => {
                let version = object.version();
                if if_unleased {
                    self.unleased(tenant, object, now)?;
                }
                let op = removal(tenant, key, version);
                Ok(self.answer_with(vec![op], Reply::Done))
            }
            (None, Some(put)) => refuse(
                Reason::NotReady,
                format!("version {} is being written", put.version),
            ),
            (None, None) => refuse(Reason::NotFound, format!("key {key}")),
        }
    }

    /// Looks at the next `limit` keys of a prefix and removes what it may. The caller asks again
    /// behind the last key; in between, others have their turn.
    pub(super) fn remove_prefix(
        &mut self,
        state: &State,
        (tenant, prefix): (&TenantId, &[u8]),
        (after, limit): (Option<&Key>, usize),
        if_unleased: bool,
        now: PoolTime,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Write)?;
        check_limit(limit)?;
        let mut found = held.objects.range(prefix, after);
        let (mut ops, mut skipped) = (Vec::new(), 0u64);
        let mut last = None;
        let mut is_whole = true;
        let mut left = MAX_WEIGHT;
        for (key, object) in found.by_ref().take(limit) {
            let key = &key.to_key();
            // Objects in many pieces count as many.
            if left == 0 {
                is_whole = false;
                break;
            }
            // What others have proposed comes first. If this is not the first key, the answer
            // leaves with what is done, and the next call waits here.
            match self.untouched(state, tenant, key) {
                Ok(()) => {}
                Err(stop) if last.is_none() => return Err(stop),
                Err(_) => {
                    is_whole = false;
                    break;
                }
            }
            last = Some(key.clone());
            if if_unleased && self.unleased(tenant, object, now).is_err() {
                skipped += 1;
            } else {
                ops.push(removal(tenant, key, object.version()));
                left = left.saturating_sub(object.weight());
            }
        }
        let more = !is_whole || found.next().is_some();
        let removed = ops.len() as u64;
        let reply = Reply::RemovedSome {
            removed,
            skipped,
            last: last.filter(|_| more),
        };
        Ok(self.answer_with(ops, reply))
    }
}

fn removal(tenant: &TenantId, key: &Key, version: larder_types::Version) -> Op {
    Op::Remove {
        tenant: tenant.clone(),
        key: key.clone(),
        version,
        cause: RemovalCause::Removed,
    }
}
