//! Whose peers are served: who they are is proven by what they show.

use std::fmt;
use std::rc::Rc;

use larder_types::TenantId;
use larder_wire::{Refused, RefusedReason};

/// Says which tenant a credential proves.
type Judge = dyn Fn(&[u8]) -> Result<TenantId, Refused>;

/// Decides whose peers are served. A clone decides alike.
#[derive(Clone)]
pub struct Trust {
    tenant: TenantId,
    judge: Rc<Judge>,
}

impl Trust {
    /// Serves peers of `tenant`, as `judge` says of what they show.
    #[must_use]
    pub fn new(
        tenant: TenantId,
        judge: impl Fn(&[u8]) -> Result<TenantId, Refused> + 'static,
    ) -> Self {
        Self {
            tenant,
            judge: Rc::new(judge),
        }
    }

    /// Serves whoever shows this secret. An empty one proves nothing.
    #[must_use]
    pub fn shared_secret(tenant: TenantId, secret: Vec<u8>) -> Self {
        let proven = tenant.clone();
        Self::new(tenant, move |shown| match is_same(shown, &secret) {
            true => Ok(proven.clone()),
            false => Err(Refused::new(
                RefusedReason::Credential,
                "this is not the secret of the engines here; give all of them the same",
            )),
        })
    }

    /// The tenant, if what is shown proves that it is the one that is served.
    pub(super) fn admit(&self, shown: &[u8]) -> Result<TenantId, Refused> {
        let tenant = (self.judge)(shown)?;
        if tenant != self.tenant {
            let detail = "this engine serves peers of another tenant";
            return Err(Refused::new(RefusedReason::Role, detail));
        }
        Ok(tenant)
    }
}

/// Compares in a time that says nothing of where they differ.
fn is_same(shown: &[u8], secret: &[u8]) -> bool {
    let pairs = shown.iter().zip(secret);
    let differing = pairs.fold(0, |differing, (a, b)| differing | (a ^ b));
    !secret.is_empty() && shown.len() == secret.len() && std::hint::black_box(differing) == 0
}

/// What it holds may be a secret.
impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_proves_anything_and_an_empty_one_nothing() {
        let tenant = TenantId::new("a").expect("a name");
        let trust = Trust::shared_secret(tenant.clone(), b"secret".to_vec());
        assert_eq!(trust.admit(b"secret").expect("the secret"), tenant);
        for wrong in [&b"secreT"[..], b"secre", b"secrets", b""] {
            let refused = trust.admit(wrong).expect_err("no secret");
            assert_eq!(refused.reason, RefusedReason::Credential);
        }
        let open = Trust::shared_secret(tenant.clone(), Vec::new());
        open.admit(b"").expect_err("an empty secret is none");
        let other = Trust::new(tenant, |_| Ok(TenantId::new("b").expect("a name")));
        let refused = other.admit(b"whatever").expect_err("another tenant");
        assert_eq!(refused.reason, RefusedReason::Role);
    }
}
