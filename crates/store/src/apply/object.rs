//! Applying what concerns objects: a put's end, a removal, a pin.

use larder_types::{Extent, Key, Pin, TenantId, Version};

use super::Fault;
use crate::digest;
use crate::effects::{Effects, GoneCause};
use crate::objects::{NewObject, ObjectId};
use crate::quota;
use crate::reply::WaitOn;
use crate::segment::reserve_extent;
use crate::state::State;

pub(super) fn put_end(
    state: &mut State,
    tenant_id: &TenantId,
    key: &Key,
    object: &NewObject<'_>,
    replaces: Option<Version>,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let charge = quota::charge_of(object.replicas)
        .filter(|charge| *charge > 0)
        .ok_or_else(|| format!("the replicas of {key} have no size"))?;
    make_way(state, (tenant_id, key), object.version, replaces, effects)?;
    for extent in object.replicas.iter().flatten() {
        let slab = state
            .segments
            .get_mut(&extent.slab.segment)
            .and_then(|segment| segment.slab_mut(extent.slab))
            .filter(|slab| slab.is_open_to(tenant_id))
            .ok_or_else(|| format!("{extent:?} lies in no ready slab of tenant {tenant_id}"))?;
        reserve_extent(&mut slab.alloc, extent).map_err(|error| format!("{extent:?}: {error}"))?;
    }
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    tenant
        .charge(charge, object.attributes.pin)
        .ok_or_else(|| format!("the charge of {tenant_id} overflows"))?;
    let id = tenant.objects.insert(key, object);
    if let Some(held) = tenant.objects.held_by(id) {
        state.sum.add(digest::of_object(tenant_id, held));
    }
    for extent in object.replicas.iter().flatten() {
        lodge(state, extent, id)?;
    }
    state.objects += 1;
    effects.wake(WaitOn::Key(tenant_id.clone(), key.clone()));
    Ok(())
}

/// Takes out the version that a put replaces: exactly the one that the key holds. An object that
/// cannot be read any more goes too, as its key may be put again before its segment is swept. The
/// key holds nothing afterwards.
fn make_way(
    state: &mut State,
    (tenant_id, key): (&TenantId, &Key),
    version: Version,
    replaces: Option<Version>,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let tenant = state.tenants.get(tenant_id);
    let held = tenant.and_then(|tenant| tenant.objects.held_at(key));
    if let Some(object) = held.filter(|object| !object.is_readable()) {
        let (id, replicas) = (object.id(), u64::from(object.held_count()));
        drop_unreadable(state, tenant_id, (id, replicas), effects)?;
        return match replaces {
            None => Ok(()),
            Some(_) => Err(format!(
                "{key} of tenant {tenant_id} was lost and is replaced"
            )),
        };
    }
    let former = held.map(|object| (object.id(), object.version()));
    match (former, replaces) {
        (None, None) => Ok(()),
        (Some((id, held)), Some(replaced)) if held == replaced && held < version => {
            forget(state, tenant_id, id, effects).map(drop)
        }
        _ => Err(format!(
            "{key} of tenant {tenant_id} holds {former:?}, {version} was to replace {replaces:?}"
        )),
    }
}

fn drop_unreadable(
    state: &mut State,
    tenant_id: &TenantId,
    (id, replicas): (ObjectId, u64),
    effects: &mut Effects,
) -> Result<(), Fault> {
    effects.objects_lost += 1;
    effects.replicas_lost += replicas;
    let (key, version) = forget(state, tenant_id, id, effects)?;
    effects.gone(tenant_id, key, version, GoneCause::Lost);
    Ok(())
}

pub(super) fn remove(
    state: &mut State,
    tenant_id: &TenantId,
    key: &Key,
    version: Version,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let tenant = state.tenants.get(tenant_id);
    let held = tenant.and_then(|tenant| tenant.objects.held_at(key));
    let id = match held {
        Some(object) if object.version() == version => object.id(),
        other => {
            let held = other.map(|object| object.version());
            return Err(format!(
                "{key} of tenant {tenant_id} holds {held:?}, not {version}"
            ));
        }
    };
    forget(state, tenant_id, id, effects)?;
    effects.wake(WaitOn::Key(tenant_id.clone(), key.clone()));
    Ok(())
}

/// Sets the pin of an object.
pub(super) fn pin_set(
    state: &mut State,
    (tenant_id, key): (&TenantId, &Key),
    version: Version,
    pin: Pin,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let unfit = || format!("{key} of tenant {tenant_id} does not hold {version}");
    let tenant = state.tenants.get_mut(tenant_id).ok_or_else(unfit)?;
    let object = tenant
        .objects
        .held_at(key)
        .filter(|object| object.version() == version)
        .ok_or_else(unfit)?;
    let (id, former, charge) = (object.id(), object.attributes().pin, object.charge_bytes());
    state.sum.take(digest::of_object(tenant_id, object));
    tenant.objects.set_pin(id, pin);
    if let Some(object) = tenant.objects.held_by(id) {
        state.sum.add(digest::of_object(tenant_id, object));
    }
    charge
        .and_then(|charge| {
            tenant.refund(charge, former)?;
            tenant.charge(charge, pin)
        })
        .ok_or_else(|| format!("the charge of tenant {tenant_id} does not fit {key}"))?;
    effects.wake(WaitOn::Key(tenant_id.clone(), key.clone()));
    Ok(())
}

/// Takes an object out, settles the books, and lets its agents erase it. What it was.
pub(super) fn forget(
    state: &mut State,
    tenant_id: &TenantId,
    id: ObjectId,
    effects: &mut Effects,
) -> Result<(Key, Version), Fault> {
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    let object = tenant
        .objects
        .held_by(id)
        .ok_or_else(|| format!("{id:?} of tenant {tenant_id} holds nothing"))?;
    let version = object.version();
    let (charge, pin) = (object.charge_bytes(), object.attributes().pin);
    let extents: Vec<Extent> = object.held_extents().collect();
    state.sum.take(digest::of_object(tenant_id, object));
    let key = tenant
        .objects
        .remove(id)
        .ok_or_else(|| format!("{id:?} of tenant {tenant_id} has no key"))?;
    refund(state, tenant_id, charge, pin)?;
    state.objects = state
        .objects
        .checked_sub(1)
        .ok_or_else(|| format!("{id:?} was removed, but no object is counted"))?;
    for extent in extents {
        retire(state, &extent, (id, version), effects)?;
    }
    Ok((key, version))
}

/// Takes `charge` of an object with this pin off what the tenant is charged.
pub(super) fn refund(
    state: &mut State,
    tenant_id: &TenantId,
    charge: Option<u64>,
    pin: Pin,
) -> Result<(), Fault> {
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    charge
        .and_then(|charge| tenant.refund(charge, pin))
        .ok_or_else(|| format!("tenant {tenant_id} is charged less than {charge:?} bytes"))
}

/// Notes in its slab that an extent belongs to an object.
pub(super) fn lodge(state: &mut State, extent: &Extent, id: ObjectId) -> Result<(), Fault> {
    let slab = state
        .segments
        .get_mut(&extent.slab.segment)
        .and_then(|segment| segment.slab_mut(extent.slab));
    match slab.map(|slab| slab.lodgers.add(extent.offset_bytes, id)) {
        Some(true) => Ok(()),
        _ => Err(format!("{extent:?} is an object's already")),
    }
}

/// Moves an extent that no object has any more to those that wait for their agent. On a lost
/// segment there is nothing to wait for.
pub(super) fn retire(
    state: &mut State,
    extent: &Extent,
    (id, version): (ObjectId, Version),
    effects: &mut Effects,
) -> Result<(), Fault> {
    let is_lost = state.lost.contains_key(&extent.slab.segment);
    let segments = if is_lost {
        &mut state.lost
    } else {
        &mut state.segments
    };
    let slab = segments
        .get_mut(&extent.slab.segment)
        .and_then(|segment| segment.slab_mut(extent.slab))
        .ok_or_else(|| format!("{extent:?} lies in no known slab"))?;
    if !slab.lodgers.remove(extent.offset_bytes, id) {
        return Err(format!("{extent:?} is not noted in its slab"));
    }
    if is_lost {
        return Ok(());
    }
    let sums = (&mut state.sum, &mut state.releasing_bytes);
    super::slab::release(slab, sums, extent, version, effects)
}
