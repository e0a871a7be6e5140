//! Session tokens: a master's signed word about who a client is, shown to agents.

use larder_types::{Epoch, PoolTime, Principal, SessionId};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::key::RootKey;

/// Length of an Ed25519 signature, in bytes.
const SIGNATURE_BYTES: usize = 64;

/// What a session token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClaims {
    /// Who the bearer is.
    pub principal: Principal,
    /// The session at the master that issued it.
    pub session: SessionId,
    /// The epoch in which it was issued.
    pub epoch: Epoch,
    /// When it ends, in pool time of that generation.
    pub deadline: PoolTime,
}

/// A session token's bytes: claims in postcard, then the signature.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken(Vec<u8>);

impl std::fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionToken(secret)")
    }
}

impl SessionToken {
    /// Takes bytes that came over the wire.
    #[must_use]
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes for the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Why a session token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not signed by a master of this pool, or altered.
    #[error("the session token was not signed by a master of this pool")]
    Forged,
    /// Too old.
    #[error("the session token's time is over; connect to a master again")]
    Expired,
    /// The signing key could not be made.
    #[error("the key for session tokens could not be made")]
    Key,
}

/// Signs session tokens; held by masters.
#[derive(Debug)]
pub struct SessionSigner(Ed25519KeyPair);

impl SessionSigner {
    /// Makes the signer of a pool; the same for all of its masters.
    ///
    /// # Errors
    /// [`TokenError::Key`].
    pub fn new(root: &RootKey) -> Result<Self, TokenError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&root.session_seed());
        pair.map(Self).map_err(|_| TokenError::Key)
    }

    /// The public half, for agents.
    ///
    /// # Errors
    /// [`TokenError::Key`].
    pub fn verify_key(&self) -> Result<[u8; 32], TokenError> {
        self.0
            .public_key()
            .as_ref()
            .try_into()
            .map_err(|_| TokenError::Key)
    }

    /// Signs claims.
    ///
    /// # Errors
    /// [`TokenError::Key`] if they do not encode.
    pub fn sign(&self, claims: &SessionClaims) -> Result<SessionToken, TokenError> {
        let mut bytes = postcard::to_stdvec(claims).map_err(|_| TokenError::Key)?;
        let signature = self.0.sign(&bytes);
        bytes.extend_from_slice(signature.as_ref());
        Ok(SessionToken(bytes))
    }
}

/// Checks session tokens; held by agents.
#[derive(Clone, Debug)]
pub struct SessionVerifier([u8; 32]);

impl SessionVerifier {
    /// Takes the public half.
    #[must_use]
    pub const fn new(verify_key: [u8; 32]) -> Self {
        Self(verify_key)
    }

    /// Checks a token at pool time `now` and returns its claims.
    ///
    /// # Errors
    /// [`TokenError::Forged`], [`TokenError::Expired`].
    pub fn verify(&self, token: &SessionToken, now: PoolTime) -> Result<SessionClaims, TokenError> {
        let split = token
            .0
            .len()
            .checked_sub(SIGNATURE_BYTES)
            .ok_or(TokenError::Forged)?;
        let (body, signature) = token.0.split_at(split);
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(body, signature)
            .map_err(|_| TokenError::Forged)?;
        let claims: SessionClaims = postcard::from_bytes(body).map_err(|_| TokenError::Forged)?;
        if now > claims.deadline {
            Err(TokenError::Expired)
        } else {
            Ok(claims)
        }
    }
}
