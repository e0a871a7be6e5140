//! Huge pages that the machine keeps ready.

use super::{Lack, SystemRoot};

const FOLDER: &str = "sys/kernel/mm/hugepages";

/// The pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Size of one page, in bytes.
    pub page_bytes: u64,
    /// How many there are.
    pub total: u64,
    /// How many are free.
    pub free: u64,
}

/// Reads all sizes, smallest first; those that cannot be read are left out.
///
/// # Errors
/// [`Lack`] if the kernel does not tell of huge pages.
pub fn read(root: &SystemRoot) -> Result<Vec<HugePages>, Lack> {
    let mut sizes: Vec<HugePages> = root
        .names(FOLDER)?
        .iter()
        .filter_map(|name| {
            let kib: u64 = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            Some(HugePages {
                page_bytes: kib.checked_mul(1024)?,
                total: root.value(&format!("{FOLDER}/{name}/nr_hugepages")).ok()?,
                free: root
                    .value(&format!("{FOLDER}/{name}/free_hugepages"))
                    .ok()?,
            })
        })
        .collect();
    sizes.sort_by_key(|pages| pages.page_bytes);
    Ok(sizes)
}
