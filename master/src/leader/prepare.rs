//! What has to stand before a leader serves anybody.

use std::future::poll_fn;

use larder_store::Request;
use larder_wire::CallResult;

use super::decide::Outcome;
use super::{Ended, Leading};
use crate::config::{QuotaConfig, TenantConfig};
use crate::log::Log;

impl<L: Log> Leading<L> {
    /// Makes the tenants and quotas of the configuration what it says they are, and waits until
    /// that is committed: before anybody is served. If this master leads no longer meanwhile,
    /// [`Self::run`] says so at once.
    pub(crate) async fn make_tenants(
        &mut self,
        tenants: Vec<TenantConfig>,
        quotas: Vec<QuotaConfig>,
    ) -> CallResult<()> {
        let quotas = quotas.into_iter().map(|config| {
            let (quota, policy) = config.into_policy();
            Request::QuotaSet { quota, policy }
        });
        let tenants = tenants.into_iter().map(|config| {
            let (tenant, policy) = config.into_policy();
            Request::TenantSet { tenant, policy }
        });
        for request in quotas.chain(tenants) {
            if let Outcome::Known(Err(error), _) = self.decide(&request) {
                return Err(error);
            }
            // One after the other: a tenant may name a quota that is only now made.
            self.append();
            while self.ended.is_none() && self.core.committed + 1 < self.core.log.next_index() {
                match poll_fn(|context| self.core.log.poll_committed(context)).await {
                    Ok(entry) => self.commit(entry),
                    Err(error) => self.ended = Some(Ended::Log(error)),
                }
            }
        }
        Ok(())
    }
}
