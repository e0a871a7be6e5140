//! A page of an agent's inventory into a request.

use larder_store::{Found, FoundObject, MAX_FOUND, Request};
use larder_types::{Key, Reason};
use larder_wire::agent::{HeldObject, HeldRecord, Inventory};
use larder_wire::{CallError, CallResult};

/// The request of a page.
///
/// # Errors
/// The page is too long. A record whose key is none counts as one that is not whole.
pub(crate) fn inventory_request(page: Inventory) -> CallResult<Request> {
    let Inventory {
        agent,
        incarnation,
        slabs,
        records,
        is_last,
    } = page;
    let (count, slab_count) = (records.len(), slabs.len());
    if count > MAX_FOUND || slab_count > MAX_FOUND {
        return Err(CallError {
            reason: Reason::BadArgument,
            detail: format!("{count} records of {slab_count} slabs; send at most {MAX_FOUND}"),
        });
    }
    let slabs = slabs.into_iter().map(|held| (held.slab, held.tenant));
    Ok(Request::Inventory {
        agent,
        incarnation,
        slabs: slabs.collect(),
        found: records.into_iter().map(found).collect(),
        is_last,
    })
}

fn found(record: HeldRecord) -> Found {
    let HeldRecord {
        extent,
        version,
        written,
    } = record;
    let object = written.and_then(|held| {
        let HeldObject {
            key,
            part,
            parts,
            object_bytes,
            digest,
            memo,
        } = held;
        Some(FoundObject {
            key: Key::new(key).ok()?,
            part,
            parts,
            size_bytes: object_bytes,
            digest,
            memo,
        })
    });
    Found {
        extent,
        version,
        object,
    }
}
