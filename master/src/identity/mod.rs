//! Identity: what a credential proves. One trait, one file per way to prove it.

use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use larder_telemetry::Registry;
use larder_types::Principal;

use crate::config::{Config, ConfigError};

pub mod token_file;
#[cfg(feature = "kubernetes")]
pub mod token_review;

/// A proof under way.
pub type Proof<'a> = Pin<Box<dyn Future<Output = Result<Principal, IdentityError>> + Send + 'a>>;

/// Maps credentials to principals. Asked once per connection and once per call of the admin port.
///
/// It may ask others over the network, so it is asynchronous and may be unavailable; it keeps its
/// own bounded cache.
pub trait Identity: Send + Sync + Debug {
    /// What `credential` proves. The bytes come from a stranger; their length was checked.
    fn prove<'a>(&'a self, credential: &'a [u8]) -> Proof<'a>;
}

/// Why a credential proved nothing. Never says which part of a credential was wrong.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Nobody known.
    #[error("the credential proves nothing in this pool; use the token of a tenant or role")]
    Unknown,
    /// No account of the pool, where ServiceAccounts of a cluster prove who speaks.
    #[error(
        "the credential proves nothing in this pool; check that the pod's ServiceAccount stands \
         in `subjects` of a CacheTenant of the pool, and that its projected token is for audience \
         `{audience}`"
    )]
    UnknownAccount {
        /// What a token has to be for.
        audience: String,
    },
    /// The proof cannot be made now.
    #[error("credentials cannot be checked now; try again")]
    Unavailable {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl IdentityError {
    /// Whether the same credential may prove something later without anybody changing anything.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// The way to prove identity that a configuration names.
///
/// # Errors
/// [`ConfigError`].
pub(crate) async fn load(
    config: &Config,
    registry: &Registry,
) -> Result<Arc<dyn Identity>, ConfigError> {
    match (&config.identities_file, &config.subjects_file) {
        (Some(path), None) => Ok(Arc::new(token_file::TokenFile::load(path).await?)),
        (None, Some(path)) => review(path, config.kubeconfig.as_deref(), registry).await,
        _ => Err(ConfigError::Value {
            key: "identities_file",
            what: "or `subjects_file` must be given, and not both".to_owned(),
        }),
    }
}

#[cfg(feature = "kubernetes")]
async fn review(
    subjects: &Path,
    kubeconfig: Option<&Path>,
    registry: &Registry,
) -> Result<Arc<dyn Identity>, ConfigError> {
    let review = token_review::ReviewedTokens::load(subjects, kubeconfig, registry);
    Ok(Arc::new(review.await?))
}

#[cfg(not(feature = "kubernetes"))]
#[expect(
    clippy::unused_async,
    reason = "it has the shape of the one that asks the API server"
)]
async fn review(
    _: &Path,
    _: Option<&Path>,
    _: &Registry,
) -> Result<Arc<dyn Identity>, ConfigError> {
    Err(ConfigError::Value {
        key: "subjects_file",
        what: "needs a master that was built with the feature `kubernetes`; use the one of the \
               image, or identities_file"
            .to_owned(),
    })
}

#[cfg(all(test, not(feature = "kubernetes")))]
mod tests {
    use larder_telemetry::Component;

    use super::*;

    #[tokio::test]
    async fn a_build_without_kubernetes_says_so() {
        let registry = Registry::new(Component::Master);
        let error = review(Path::new("subjects.json"), None, &registry).await;
        let error = error.expect_err("not built").to_string();
        assert!(
            error.contains("subjects_file") && error.contains("`kubernetes`"),
            "{error}"
        );
    }
}
