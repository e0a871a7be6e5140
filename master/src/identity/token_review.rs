//! Credentials that are ServiceAccount tokens: the API server says whose they are, a file says what
//! those may do. The only file of the master that knows Kubernetes.
//!
//! ```text
//! claims     what a token says of itself: only ever a reason to say no at once
//! subjects   which account is which principal: a file, looked at again when it changed
//! desk       the task that asks the API server, once for each token, a few at a time
//! cache      what it answered: whose a token is, never what that one may do
//! ```
//!
//! What an account may do is looked up anew at each proof, so that whoever is taken out of the file
//! is refused at once, however fresh the review of the token is.

mod cache;
mod claims;
mod desk;
mod subjects;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use larder_telemetry::Registry;
use larder_types::Principal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use self::cache::Account;
use self::claims::Claims;
use self::desk::{Ask, Desk, Review, ReviewError};
use self::subjects::SubjectsFile;
use super::{Identity, IdentityError, Proof};
use crate::config::ConfigError;

/// What the API server writes into tokens that are bound to a pod: the name of the pod's node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// What the name of every ServiceAccount's user begins with.
const USER_PREFIX: &str = "system:serviceaccount:";
/// How long one review may take. With the wait for its turn it stays below the time of a hello.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a proof may take with the wait for its turn; a hello has 5 s.
const PROOF_TIMEOUT: Duration = Duration::from_secs(4);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Proofs on their way to the desk, which takes each within microseconds; the others wait.
const ASKS_LENGTH: usize = 64;

/// Identity by TokenReview.
#[derive(Debug)]
pub struct ReviewedTokens {
    subjects: SubjectsFile,
    asks: mpsc::Sender<Ask>,
}

impl ReviewedTokens {
    /// Reads the file of subjects and prepares the way to the API server, which is not asked yet.
    /// Without `kubeconfig` it is the one of the cluster that this pod is in.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub async fn load(
        subjects: &Path,
        kubeconfig: Option<&Path>,
        registry: &Registry,
    ) -> Result<Self, ConfigError> {
        let subjects = SubjectsFile::load(subjects, registry.clone()).await?;
        let client = client(kubeconfig)
            .await
            .map_err(|source| ConfigError::Cluster { source })?;
        Ok(Self::new(subjects, ApiServer { client }, registry))
    }

    /// With the desk started. It ends with this value.
    fn new(subjects: SubjectsFile, review: impl Review, registry: &Registry) -> Self {
        let (asks, queue) = mpsc::channel(ASKS_LENGTH);
        tokio::spawn(Desk::new(review, registry.clone()).run(queue));
        Self { subjects, asks }
    }

    async fn principal(&self, credential: &[u8]) -> Result<Principal, IdentityError> {
        let subjects = self.subjects.current().await;
        let unknown = || IdentityError::UnknownAccount {
            audience: subjects.audience().to_owned(),
        };
        let claims = Claims::read(credential).ok_or_else(unknown)?;
        // A token that is for somebody else, by its own word, would be denied; and one whose
        // account is not known here proves nothing even if it is genuine. Strangers cannot make
        // this master ask about such.
        if !claims.is_for(subjects.audience()) || !subjects.knows(claims.account()) {
            return Err(unknown());
        }
        let valid_for = claims.valid_for(now());
        let (account, token) = claims.into_parts();
        let (reply, answer) = oneshot::channel();
        let ask = Ask::new(token, subjects.audience(), account, valid_for, reply);
        let account = self.account(ask, answer).await.map_err(unavailable)?;
        let account = account.ok_or_else(unknown)?;
        // It may have changed meanwhile.
        let subjects = self.subjects.current().await;
        subjects.principal(&account).ok_or_else(unknown)
    }

    async fn account(
        &self,
        ask: Ask,
        answer: oneshot::Receiver<Result<Option<Account>, Arc<ReviewError>>>,
    ) -> Result<Option<Account>, Arc<ReviewError>> {
        let asked = async {
            let gone = || Arc::new(ReviewError::Gone);
            self.asks.send(ask).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        };
        timeout(PROOF_TIMEOUT, asked)
            .await
            .unwrap_or_else(|_| Err(Arc::new(ReviewError::Late)))
    }
}

impl Identity for ReviewedTokens {
    fn prove<'a>(&'a self, credential: &'a [u8]) -> Proof<'a> {
        Box::pin(self.principal(credential))
    }
}

fn unavailable(error: Arc<ReviewError>) -> IdentityError {
    IdentityError::Unavailable {
        source: Box::new(error),
    }
}

/// Wall time, only to forget a review no later than its token ends. Whether a token is valid, the
/// API server alone decides.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The way to the API server.
async fn client(
    kubeconfig: Option<&Path>,
) -> Result<kube::Client, Box<dyn std::error::Error + Send + Sync>> {
    let mut settings = match kubeconfig {
        None => kube::Config::incluster()?,
        Some(path) => {
            let file = Kubeconfig::read_from(path)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
    };
    settings.connect_timeout = Some(CONNECT_TIMEOUT);
    settings.read_timeout = Some(REVIEW_TIMEOUT);
    settings.write_timeout = Some(REVIEW_TIMEOUT);
    // Whoever shows the token tries again; the client of Kubernetes must not hold a place for it.
    settings.default_retry = false;
    Ok(kube::Client::try_from(settings)?)
}

/// Asks the API server.
struct ApiServer {
    client: kube::Client,
}

impl Review for ApiServer {
    async fn review(
        &self,
        token: String,
        audience: String,
    ) -> Result<Option<Account>, ReviewError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token),
                audiences: Some(vec![audience.clone()]),
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let parameters = PostParams::default();
        let created = timeout(REVIEW_TIMEOUT, api.create(&parameters, &review))
            .await
            .map_err(|_| ReviewError::Late)?;
        let created = created.map_err(|error| match &error {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
                ReviewError::Forbidden {
                    source: Box::new(error),
                }
            }
            _ => ReviewError::ApiServer {
                source: Box::new(error),
            },
        })?;
        Ok(created
            .status
            .and_then(|status| account_of(status, &audience)))
    }
}

/// Whose a token is, if the review proves it for this audience and it is a ServiceAccount's.
fn account_of(status: TokenReviewStatus, audience: &str) -> Option<Account> {
    if status.authenticated != Some(true) {
        return None;
    }
    // An API server that knows no audiences answers without them: then it is not proven for ours.
    let audiences = status.audiences.unwrap_or_default();
    if !audiences.iter().any(|one| one == audience) {
        return None;
    }
    let user = status.user?;
    let account = user.username.as_deref().and_then(account_of_user)?;
    let mut nodes = user
        .extra
        .and_then(|mut extra| extra.remove(NODE_NAME))
        .unwrap_or_default();
    // One name, or none that can be relied on.
    let node = if nodes.len() == 1 { nodes.pop() } else { None };
    Some(Account {
        name: account,
        node,
    })
}

/// `namespace/name` from the name of a ServiceAccount's user.
fn account_of_user(user: &str) -> Option<String> {
    let (namespace, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    let is_part = |part: &str| !part.is_empty() && !part.contains([':', '/']);
    (is_part(namespace) && is_part(name)).then(|| format!("{namespace}/{name}"))
}
