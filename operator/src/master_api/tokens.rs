//! What the operator shows to masters: a token of its own ServiceAccount, for one pool each.
//!
//! A token for all pools would be everybody's: whoever may make pods in a pool's namespace can
//! stand behind its Service and hear what the operator shows there.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tokio::time::Instant;

use super::MasterError;
use crate::names::PoolId;

/// Life of a token, in seconds: the shortest that the API server gives.
const LIFE_SECONDS: i64 = 600;
/// For how long one is shown: the API server may answer late, and clocks differ.
const SHOWN: Duration = Duration::from_secs(480);

/// Tokens by uid of the pool, with the time until which they are shown. As many as pools that were
/// looked at within that time.
type Known = BTreeMap<String, (String, Instant)>;

/// The tokens of one ServiceAccount.
pub struct Tokens {
    accounts: Api<ServiceAccount>,
    account: String,
    known: watch::Sender<Known>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

impl Tokens {
    /// Of the account of this name; the client must be allowed to make its tokens.
    #[must_use]
    pub fn new(client: Client, namespace: &str, account: &str) -> Self {
        Self {
            accounts: Api::namespaced(client, namespace),
            account: account.to_owned(),
            known: watch::Sender::new(Known::new()),
        }
    }

    /// The token to show to the masters of a pool.
    ///
    /// # Errors
    /// [`MasterError::Token`].
    pub async fn of(&self, pool: &PoolId) -> Result<String, MasterError> {
        let now = Instant::now();
        if let Some((token, until)) = self.known.borrow().get(&pool.uid)
            && now < *until
        {
            return Ok(token.clone());
        }
        let audience = pool.audience();
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| MasterError::Token {
            audience: audience.clone(),
            source,
        };
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![audience.clone()],
                expiration_seconds: Some(LIFE_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = self
            .accounts
            .create_token_request(&self.account, &PostParams::default(), &request)
            .await
            .map_err(|source| refused(Box::new(source)))?;
        let token = answer.status.map(|status| status.token);
        let token = token.ok_or_else(|| refused("the answer has no token".into()))?;
        self.known.send_modify(|known| {
            known.retain(|_, (_, until)| now < *until);
            known.insert(pool.uid.clone(), (token.clone(), now + SHOWN));
        });
        Ok(token)
    }
}
