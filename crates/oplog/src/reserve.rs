//! Room on the disk that is kept for getting out of a full disk: a purge and a vote need some.

use crate::disk::{Disk, DiskError};

/// The file's name.
const RESERVE: &str = "reserve";
/// Four blocks of most file systems: a new state, a new segment's header, and what the folder
/// takes.
const RESERVE_BYTES: usize = 16 << 10;

/// Sets room aside, if there is any and it is not yet. A log without it works too, so no failure
/// is reported.
pub(crate) fn keep(disk: &mut impl Disk) {
    if disk
        .length(RESERVE)
        .is_ok_and(|length| length == RESERVE_BYTES as u64)
    {
        return;
    }
    let _ = disk.remove(RESERVE);
    // Not zeroes, which some file systems store as nothing.
    let bytes: Vec<u8> = (0..RESERVE_BYTES).map(|nth| nth as u8 | 1).collect();
    let mut set_aside = || -> Result<(), DiskError> {
        disk.create(RESERVE)?;
        disk.append(RESERVE, &bytes)?;
        disk.sync(RESERVE)
    };
    if set_aside().is_err() {
        let _ = disk.remove(RESERVE);
    }
}

/// Gives the room free. Whether there was any.
pub(crate) fn release(disk: &mut dyn Disk) -> bool {
    disk.remove(RESERVE).is_ok()
}
