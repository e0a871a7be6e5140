//! How many bytes each tenant holds in views, and how many it may.

use std::collections::BTreeMap;

use larder_types::TenantId;

#[derive(Debug, Default)]
struct TenantViews {
    max: Option<u64>,
    held: u64,
}

/// Bytes in views by tenant. At most one entry for each tenant that ever had a slab here in this
/// generation or still holds a view.
#[derive(Debug, Default)]
pub(super) struct ViewBytes(BTreeMap<TenantId, TenantViews>);

impl ViewBytes {
    /// Sets how many bytes the tenant may hold at once; `None` = as many as it likes.
    pub(super) fn allow(&mut self, tenant: &TenantId, max: Option<u64>) {
        self.0.entry(tenant.clone()).or_default().max = max;
    }

    /// Takes `bytes` from what the tenant may hold; the error is what it holds and may hold.
    pub(super) fn take(&mut self, tenant: &TenantId, bytes: u64) -> Result<(), (u64, u64)> {
        let views = self.0.entry(tenant.clone()).or_default();
        let wanted = views.held.saturating_add(bytes);
        match views.max {
            Some(max) if wanted > max => Err((views.held, max)),
            _ => {
                views.held = wanted;
                Ok(())
            }
        }
    }

    pub(super) fn give_back(&mut self, tenant: &TenantId, bytes: u64) {
        if let Some(views) = self.0.get_mut(tenant) {
            views.held = views.held.saturating_sub(bytes);
        }
    }

    /// Forgets tenants that hold nothing and have no slab any more.
    pub(super) fn forget(&mut self, has_slab: impl Fn(&TenantId) -> bool) {
        self.0
            .retain(|tenant, views| views.held > 0 || has_slab(tenant));
    }

    pub(super) fn by_tenant(&self) -> impl Iterator<Item = (&TenantId, u64)> {
        self.0.iter().map(|(tenant, views)| (tenant, views.held))
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.0.values().map(|views| views.held).sum()
    }
}
