//! What a follower of cache events believes: built from ops and from what they say is gone.

use std::collections::BTreeMap;

use larder_store::{Effects, Op, State};
use larder_types::{Key, TenantId, Version};

/// Keys that hold an object, by what was told.
#[derive(Debug, Default)]
pub(crate) struct Heard(BTreeMap<(TenantId, Key), Version>);

impl Heard {
    /// An op was applied.
    pub(crate) fn take(&mut self, op: &Op, effects: &Effects) {
        for gone in &effects.gone {
            let at = (gone.tenant.clone(), gone.key.clone());
            assert_eq!(self.0.remove(&at), Some(gone.version), "{gone:?} by {op:?}");
        }
        match op {
            // Whoever follows hears of another epoch and starts over.
            Op::PoolBegun { .. } => self.0.clear(),
            Op::PutEnd {
                tenant,
                key,
                version,
                replaces,
                ..
            } => {
                let at = (tenant.clone(), key.clone());
                assert_eq!(self.0.insert(at, *version), *replaces, "{op:?}");
            }
            Op::Remove {
                tenant,
                key,
                version,
                ..
            } => {
                let at = (tenant.clone(), key.clone());
                assert_eq!(self.0.remove(&at), Some(*version), "{op:?}");
            }
            _ => {}
        }
    }

    /// What is told is what is there; what lies on a lost segment may be told of until it is swept.
    pub(crate) fn check(&self, state: &State) {
        let mut readable = 0;
        for (tenant, held) in state.tenants() {
            for (key, object) in held.objects().iter() {
                let told = self.0.get(&(tenant.clone(), key.to_key()));
                assert_eq!(told, Some(&object.version()), "{key} of {tenant}");
                readable += 1;
            }
        }
        if state.lost_segments().next().is_none() {
            assert_eq!(self.0.len(), readable, "{self:?}");
        }
    }
}
