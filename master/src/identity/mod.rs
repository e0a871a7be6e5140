//! Identity: what a credential proves. One trait, one file per way to prove it.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use larder_types::Principal;

pub mod token_file;

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
