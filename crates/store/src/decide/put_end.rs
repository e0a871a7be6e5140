//! Deciding the ends of puts: completed or revoked.

use std::collections::BTreeMap;

use larder_types::{
    Attributes, Digest, Extent, Key, Pin, PoolTime, Reason, SessionId, TenantId, Version,
};

use super::{Outcome, Right, Stop, refuse};
use crate::effects::Discard;
use crate::leader::Leader;
use crate::op::Op;
use crate::overlay::{Discarded, Pending};
use crate::reply::{Reply, WaitOn};
use crate::request::Written;
use crate::state::State;

/// Who ends or revokes which put.
type Named<'a> = (SessionId, &'a TenantId, &'a Key, Version);

impl Leader {
    pub(super) fn put_end(
        &mut self,
        state: &State,
        (session, tenant, key, version): Named<'_>,
        written: &[Written],
        now: PoolTime,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Write)?;
        let base = held.objects.get(key);
        if base.is_some_and(|object| object.version() == version) {
            return Ok(self.answer(Reply::AlreadyComplete));
        }
        // Also if the object that it would replace is about to be lost: then it replaces nothing.
        self.untouched(state, tenant, key)?;
        if version.epoch != self.epoch {
            return refuse(
                Reason::StaleEpoch,
                format!("version {version}, epoch {}", self.epoch),
            );
        }
        let put = match self.overlay.pending(tenant, key) {
            Some(put) if put.version == version && put.session == session => put,
            other => {
                return refuse(
                    Reason::StaleOwner,
                    self.why_stale(tenant, version, other.map(|put| put.version)),
                );
            }
        };
        let digest = proven(&put.replicas, written)?;
        let attributes = match base {
            Some(object) => {
                let soft_ms = self.leases.pin_left_ms(tenant, object, now);
                inherited(put, object.attributes(), soft_ms)
            }
            None => put.attributes.clone(),
        };
        let replaces = base.map(|object| object.version());
        let op = Op::PutEnd {
            tenant: tenant.clone(),
            key: key.clone(),
            version,
            size_bytes: put.size_bytes,
            digest,
            replicas: put.replicas.clone(),
            wanted: put.wanted,
            attributes,
            replaces,
        };
        Ok(self.answer_with(vec![op], Reply::Done))
    }

    pub(super) fn put_revoke(
        &mut self,
        state: &State,
        (session, tenant, key, version): Named<'_>,
    ) -> Outcome {
        self.tenant(state, tenant, Right::Know)?;
        if state
            .object(tenant, key)
            .is_some_and(|object| object.version() == version)
        {
            return refuse(Reason::NotWriting, format!("version {version} is complete"));
        }
        if let Some(put) = self
            .overlay
            .pending(tenant, key)
            .filter(|p| p.version == version)
        {
            if put.session != session {
                return refuse(Reason::StaleOwner, format!("session {session}"));
            }
            if put.ending {
                return Err(Stop::Wait(WaitOn::Key(tenant.clone(), key.clone())));
            }
            self.overlay
                .discard(version, Discard::Revoked, &mut self.effects);
        }
        let erasing = self.overlay.discarded.get(&version);
        if erasing.is_some_and(|discarded| discarded.tenant == *tenant) {
            return Err(Stop::Wait(WaitOn::Erased(version)));
        }
        Ok(self.answer(Reply::Done))
    }

    /// What became of a put that is not pending any more, as far as it is remembered: until its
    /// agents have erased it.
    fn why_stale(&self, tenant: &TenantId, version: Version, pending: Option<Version>) -> String {
        let discarded = self.overlay.discarded.get(&version);
        let discarded = discarded.filter(|discarded| discarded.tenant == *tenant);
        let end = match (discarded, pending) {
            (Some(Discarded { cause: None, .. }), _) => "it was complete, and is gone".to_owned(),
            (
                Some(Discarded {
                    cause: Some(cause), ..
                }),
                _,
            ) => cause.label().to_owned(),
            (None, Some(other)) if other == version => "it is of another session".to_owned(),
            (None, Some(other)) => format!("version {other} is being written"),
            (None, None) => "nothing is being written".to_owned(),
        };
        format!("version {version}: {end}")
    }
}

/// What an object is that replaces another: what the put does not say stays as it was, a soft pin
/// with the time that it has left.
fn inherited(put: &Pending, base: &Attributes, soft_ms: u64) -> Attributes {
    let Attributes {
        pin,
        group,
        data_type,
    } = put.attributes.clone();
    let pin = match (pin, base.pin) {
        // Pinned after the start: only as far as the bound for pinned bytes was asked.
        (Pin::None, Pin::Hard) if put.pinned_bytes > 0 => Pin::Hard,
        (Pin::None, Pin::Soft { .. }) if soft_ms > 0 => Pin::Soft { ttl_ms: soft_ms },
        (said, _) => said,
    };
    let data_type = if data_type.number() == 0 {
        base.data_type
    } else {
        data_type
    };
    Attributes {
        pin,
        group: group.or_else(|| base.group.clone()),
        data_type,
    }
}

/// The digest that all replicas have, if the receipts are exactly those of their extents.
fn proven(replicas: &[Vec<Extent>], written: &[Written]) -> Result<Digest, Stop> {
    let asked = replicas.iter().map(Vec::len).sum::<usize>();
    if written.len() != asked {
        let detail = format!("{} receipts for {asked} extents", written.len());
        return refuse(Reason::BadReceipt, detail);
    }
    let extents = || replicas.iter().flatten();
    let is_in_order = extents()
        .zip(written)
        .all(|(extent, one)| *extent == one.extent);
    let sorted;
    let mut rest = written;
    if !is_in_order {
        let by_extent: BTreeMap<Extent, &Written> =
            written.iter().map(|one| (one.extent, one)).collect();
        let mut ordered = Vec::with_capacity(asked);
        for extent in extents() {
            let Some(receipt) = by_extent.get(extent) else {
                return refuse(Reason::BadReceipt, format!("no receipt for {extent:?}"));
            };
            ordered.push(**receipt);
        }
        sorted = ordered;
        rest = &sorted;
    }
    let mut proven = None;
    for extents in replicas {
        let (own, others) = rest.split_at(extents.len());
        rest = others;
        let parts = own.iter().map(|one| (one.digest, one.extent.length_bytes));
        let Some(digest) = Digest::joined(parts) else {
            return refuse(Reason::Internal, "the extents do not end at blocks");
        };
        if *proven.get_or_insert(digest) != digest {
            return refuse(Reason::BadReceipt, "the receipts name different digests");
        }
    }
    match proven {
        Some(digest) => Ok(digest),
        None => refuse(Reason::Internal, "a put without replicas"),
    }
}
