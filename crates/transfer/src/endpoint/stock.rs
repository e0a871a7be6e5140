//! What is registered here, for engines of stock Mooncake.

use std::fmt;
use std::rc::Rc;

use larder_wire::engine::{BufferAccess, Refusal};

use super::state::{Shared, State};
use crate::OwnMemory;
use crate::interop::{Access, AddressRange, AddressSpace, Grant, Refused};

/// Bits of a grant that tell the epoch; the others tell the registration, so a grant dies with
/// either. A fence is made less than 65,536 times in the time of one payload.
const EPOCH_BITS: u32 = 16;

/// The buffers of an endpoint by address.
pub(super) struct Stock(pub(super) Rc<Shared>);

impl fmt::Debug for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stock").finish_non_exhaustive()
    }
}

const fn wanted(access: Access) -> BufferAccess {
    BufferAccess {
        read: matches!(access, Access::Read),
        write: matches!(access, Access::Write),
    }
}

const fn refused(refusal: Refusal) -> Refused {
    match refusal {
        Refusal::NotAllowed => Refused::Access,
        _ => Refused::NotRegistered,
    }
}

const fn grant_of(registration: u64, epoch: u64) -> Grant {
    Grant((registration << EPOCH_BITS) | (epoch & ((1 << EPOCH_BITS) - 1)))
}

/// The registration at an address, with its epoch and where in it the range begins.
fn registered(state: &State, range: AddressRange) -> Result<((u64, u64), u64), Refused> {
    let buffers = &state.core.buffers;
    let (key, offset) = buffers
        .find(range.address, range.bytes)
        .ok_or(Refused::NotRegistered)?;
    let described = buffers.get(key).ok_or(Refused::NotRegistered)?;
    Ok(((described.registration, described.epoch), offset))
}

impl Stock {
    fn reach<R>(
        &self,
        grant: Grant,
        access: Access,
        range: AddressRange,
        step: impl FnOnce(&OwnMemory, u64) -> R,
    ) -> Result<R, Refused> {
        self.0.look(|state| {
            let (of, offset) = registered(state, range)?;
            if grant_of(of.0, of.1) != grant {
                return Err(Refused::NotRegistered);
            }
            let buffers = &state.core.buffers;
            let key = buffers
                .allows(of, offset, range.bytes, wanted(access))
                .map_err(refused)?;
            let memory = state.memories.get(key).ok_or(Refused::NotRegistered)?;
            Ok(step(memory, offset))
        })
    }
}

impl AddressSpace for Stock {
    fn buffers(&self) -> Vec<AddressRange> {
        self.0.look(|state| {
            let all = state.memories.values().map(|memory| AddressRange {
                address: memory.address(),
                bytes: memory.bytes(),
            });
            all.collect()
        })
    }

    fn open(&self, access: Access, range: AddressRange) -> Result<Grant, Refused> {
        self.0.look(|state| {
            let (of, offset) = registered(state, range)?;
            let buffers = &state.core.buffers;
            let allowed = buffers.allows(of, offset, range.bytes, wanted(access));
            allowed.map_err(refused)?;
            Ok(grant_of(of.0, of.1))
        })
    }

    fn store(&self, grant: Grant, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        let range = AddressRange {
            address,
            bytes: bytes.len() as u64,
        };
        self.reach(grant, Access::Write, range, |memory, offset| {
            memory.copy_in(offset, bytes)
        })?
        .map_err(|_| Refused::NotRegistered)
    }

    fn load(&self, grant: Grant, address: u64, out: &mut [u8]) -> Result<(), Refused> {
        let range = AddressRange {
            address,
            bytes: out.len() as u64,
        };
        self.reach(grant, Access::Read, range, |memory, offset| {
            memory.copy_out(offset, out)
        })?
        .map_err(|_| Refused::NotRegistered)
    }
}
