//! Keys: the root that only masters hold, and what is derived from it.

use larder_types::{AgentName, Incarnation};
use ring::hmac;

/// Length of a message authentication code, in bytes: HMAC-SHA-256 cut to its left half.
pub const MAC_BYTES: usize = 16;

/// The root of all keys of a pool. Held by masters only; in Kubernetes a Secret.
#[derive(Clone)]
pub struct RootKey([u8; 32]);

/// The key of one agent in one incarnation: signs capabilities for it and its receipts.
#[derive(Clone)]
pub struct AgentKey {
    bytes: [u8; 32],
    key: hmac::Key,
    id: u32,
}

impl std::fmt::Debug for RootKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RootKey(secret)")
    }
}

impl std::fmt::Debug for AgentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AgentKey({}, secret)", self.id)
    }
}

fn derive(root: &[u8; 32], label: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, root));
    for part in std::iter::once(&label.as_bytes()).chain(parts) {
        // Each part with its length, so that no two lists of parts are the same bytes.
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let tag = context.sign();
    let mut key = [0; 32];
    key.copy_from_slice(tag.as_ref());
    key
}

impl RootKey {
    /// Takes 32 secret bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key of an agent in one incarnation. `key_id` counts rotations.
    #[must_use]
    pub fn agent_key(&self, name: &AgentName, incarnation: Incarnation, key_id: u32) -> AgentKey {
        let parts: [&[u8]; 3] = [
            name.as_str().as_bytes(),
            &incarnation.0.to_le_bytes(),
            &key_id.to_le_bytes(),
        ];
        AgentKey::new(derive(&self.0, "larder agent key 1", &parts), key_id)
    }

    /// What a master of this pool shows to another one.
    #[must_use]
    pub fn master_credential(&self) -> [u8; 32] {
        derive(&self.0, "larder master credential 1", &[])
    }

    /// The seed of the Ed25519 key that signs session tokens.
    #[must_use]
    pub fn session_seed(&self) -> [u8; 32] {
        derive(&self.0, "larder session key 1", &[])
    }
}

impl AgentKey {
    /// Takes the bytes that [`RootKey::agent_key`] derived.
    #[must_use]
    pub fn new(bytes: [u8; 32], id: u32) -> Self {
        Self {
            bytes,
            key: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
            id,
        }
    }

    /// The bytes, for the agent's own mount answer.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The number of the key.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Signs `body`; `label` keeps the uses of one key apart.
    #[must_use]
    pub fn sign(&self, label: u8, body: &[u8]) -> [u8; MAC_BYTES] {
        let tag = self.tag(label, body);
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&tag.as_ref()[..MAC_BYTES]);
        mac
    }

    /// Whether `mac` is the signature of `body`; takes the same time whatever differs.
    #[must_use]
    pub fn verify(&self, label: u8, body: &[u8], mac: &[u8; MAC_BYTES]) -> bool {
        let expected = self.sign(label, body);
        let differs = expected
            .iter()
            .zip(mac)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(differs) == 0
    }

    fn tag(&self, label: u8, body: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&[label]);
        context.update(body);
        context.sign()
    }
}

/// The keys that an agent accepts: the present one and, during a rotation, the one before.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    keys: Vec<AgentKey>,
}

impl KeyRing {
    /// Adds the newest key; the one before the last is forgotten.
    pub fn push(&mut self, key: AgentKey) {
        self.keys.retain(|known| known.id() != key.id());
        self.keys.push(key);
        if self.keys.len() > 2 {
            self.keys.remove(0);
        }
    }

    /// The key of this number.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&AgentKey> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// The newest key.
    #[must_use]
    pub fn newest(&self) -> Option<&AgentKey> {
        self.keys.last()
    }
}
