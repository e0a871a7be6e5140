//! Keys: any 1 to 4,096 bytes, unique within a tenant.

use std::fmt;
use std::sync::Arc;

/// The longest key, in bytes; also the most that a record holds.
pub const MAX_KEY_BYTES: usize = 4096;

/// Why a key was refused: its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError(pub usize);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a key must have 1 to {MAX_KEY_BYTES} bytes, this one has {}",
            self.0
        )
    }
}

impl std::error::Error for KeyError {}

/// The name of an object within its tenant: 1 to 4,096 bytes of any value. Copies share the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "KeyBytes", into = "KeyBytes"))]
pub struct Key(Arc<[u8]>);

impl Key {
    /// Checks and takes a key.
    ///
    /// # Errors
    /// [`KeyError`] if it is empty or longer than [`MAX_KEY_BYTES`].
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Result<Self, KeyError> {
        let bytes = bytes.into();
        if bytes.is_empty() || bytes.len() > MAX_KEY_BYTES {
            return Err(KeyError(bytes.len()));
        }
        Ok(Self(bytes))
    }

    /// The bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A key that lies elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRef<'a>(&'a [u8]);

impl<'a> KeyRef<'a> {
    /// The bytes of the key.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The key itself.
    #[must_use]
    pub fn to_key(self) -> Key {
        Key(self.0.into())
    }
}

impl<'a> From<&'a Key> for KeyRef<'a> {
    fn from(key: &'a Key) -> Self {
        Self(&key.0)
    }
}

impl PartialEq<Key> for KeyRef<'_> {
    fn eq(&self, other: &Key) -> bool {
        *self.0 == *other.0
    }
}

impl fmt::Display for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Bytes of a key that a [`CompactKey`] holds without a further allocation.
const INLINE_BYTES: usize = 38;

/// A key for tables of very many: 40 bytes, and more only if the key is longer than 38.
#[derive(Clone)]
pub struct CompactKey(Stored);

#[derive(Clone)]
enum Stored {
    Short { len: u8, bytes: [u8; INLINE_BYTES] },
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<Option<CompactKey>>() == 40);

impl CompactKey {
    /// The key.
    #[must_use]
    pub fn get(&self) -> KeyRef<'_> {
        KeyRef(match &self.0 {
            Stored::Short { len, bytes } => &bytes[..usize::from(*len)],
            Stored::Long(bytes) => bytes,
        })
    }
}

impl From<&Key> for CompactKey {
    fn from(key: &Key) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.get_mut(..key.0.len()), u8::try_from(key.0.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(&key.0);
                Self(Stored::Short { len, bytes })
            }
            _ => Self(Stored::Long(key.as_bytes().into())),
        }
    }
}

impl fmt::Debug for CompactKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&str> for Key {
    type Error = KeyError;
    fn try_from(text: &str) -> Result<Self, KeyError> {
        Self::new(text.as_bytes())
    }
}

/// How a key stands in a message: one length and the bytes.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct KeyBytes(ByteBox);

#[cfg(feature = "serde")]
impl serde::Serialize for KeyBytes {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0.0)
    }
}

#[cfg(feature = "serde")]
struct ByteBox(Arc<[u8]>);

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ByteBox {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> serde::de::Visitor<'de> for Bytes {
            type Value = ByteBox;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<ByteBox, E> {
                Ok(ByteBox(bytes.into()))
            }
            fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<ByteBox, E> {
                Ok(ByteBox(bytes.into()))
            }
        }
        d.deserialize_bytes(Bytes)
    }
}

#[cfg(feature = "serde")]
impl TryFrom<KeyBytes> for Key {
    type Error = KeyError;
    fn try_from(bytes: KeyBytes) -> Result<Self, KeyError> {
        Self::new(bytes.0.0)
    }
}

#[cfg(feature = "serde")]
impl From<Key> for KeyBytes {
    fn from(key: Key) -> Self {
        Self(ByteBox(key.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_checked() {
        assert_eq!(Key::new(Vec::new()), Err(KeyError(0)));
        assert_eq!(Key::new(vec![0; 4097]), Err(KeyError(4097)));
        assert!(Key::new(vec![0; 4096]).is_ok());
    }

    #[test]
    fn a_compact_key_is_the_same_key() {
        for length in [1, 37, 38, 39, 40, 255, 256, MAX_KEY_BYTES] {
            let key = Key::new(vec![7; length]).expect("in range");
            let compact = CompactKey::from(&key);
            assert_eq!(compact.get(), key);
            assert_eq!(compact.get().to_key(), key);
            assert_eq!(KeyRef::from(&key), compact.get());
            assert_eq!(format!("{compact:?}"), format!("{key:?}"));
        }
    }

    #[test]
    fn any_byte_shows_as_text() {
        let key = Key::new(*b"a\0\xff\n").expect("four bytes");
        assert_eq!(key.to_string(), "a\\x00\\xff\\n");
    }
}
