//! What tenants may have of rails: their weight against each other, and their limit of bandwidth
//! over all peers. Pure.

use std::collections::BTreeMap;

use super::bucket::Bucket;

/// The largest weight.
const WEIGHT_MAX: u64 = 1 << 16;

#[derive(Debug)]
struct Share {
    weight: u64,
    bucket: Option<Bucket>,
}

/// Weights and limits by tenant; one that is not named has weight 1 and no limit.
#[derive(Debug, Default)]
pub struct Tenants(BTreeMap<u32, Share>);

impl Tenants {
    /// What a tenant may have of a rail that is short, against others of its class, and its limit.
    pub fn set(&mut self, tenant: u32, weight: u64, bucket: Option<Bucket>) {
        let weight = weight.clamp(1, WEIGHT_MAX);
        self.0.insert(tenant, Share { weight, bucket });
    }

    /// Forgets what was set.
    pub fn forget(&mut self, tenant: u32) {
        self.0.remove(&tenant);
    }

    /// The weight of a tenant.
    pub(super) fn weight(&self, tenant: u32) -> u64 {
        self.0.get(&tenant).map_or(1, |share| share.weight)
    }

    /// Takes `bytes` of its limit; when there will be enough, in ns, if there is not now.
    pub(super) fn take(&mut self, tenant: u32, bytes: u64, now_ns: u64) -> Result<(), u64> {
        let share = self.0.get_mut(&tenant);
        match share.and_then(|share| share.bucket.as_mut()) {
            Some(bucket) => bucket.take(bytes, now_ns),
            None => Ok(()),
        }
    }
}
