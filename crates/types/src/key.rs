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

/// Bytes of a key that [`Key`] holds without an allocation: of usual keys none needs one.
const INLINE_BYTES: usize = 38;

/// The name of an object within its tenant: 1 to 4,096 bytes of any value. It takes 40 bytes, and
/// more only if it is longer than 38; copies share those.
#[derive(Clone)]
pub struct Key(Stored);

#[derive(Clone)]
enum Stored {
    Short { len: u8, bytes: [u8; INLINE_BYTES] },
    Long(Arc<[u8]>),
}

const _: () = assert!(size_of::<Option<Key>>() == 40);

impl Key {
    /// Checks and takes a key.
    ///
    /// # Errors
    /// [`KeyError`] if it is empty or longer than [`MAX_KEY_BYTES`].
    #[inline]
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() || bytes.len() > MAX_KEY_BYTES {
            return Err(KeyError(bytes.len()));
        }
        Ok(Self(Stored::of(bytes)))
    }

    /// The bytes of the key.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Stored::Short { len, bytes } => &bytes[..usize::from(*len)],
            Stored::Long(bytes) => bytes,
        }
    }
}

impl Stored {
    #[inline]
    fn of(key: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(key);
                Self::Short { len, bytes }
            }
            _ => Self::Long(key.into()),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
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
        Key(Stored::of(self.0))
    }
}

impl<'a> From<&'a Key> for KeyRef<'a> {
    fn from(key: &'a Key) -> Self {
        Self(key.as_bytes())
    }
}

impl PartialEq<Key> for KeyRef<'_> {
    fn eq(&self, other: &Key) -> bool {
        self.0 == other.as_bytes()
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

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl TryFrom<&str> for Key {
    type Error = KeyError;
    fn try_from(text: &str) -> Result<Self, KeyError> {
        Self::new(text.as_bytes())
    }
}

/// In a message a key is one length and the bytes.
#[cfg(feature = "serde")]
impl serde::Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(self.as_bytes())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Key {
    #[inline]
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            #[inline]
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Key, E> {
                Key::new(bytes).map_err(E::custom)
            }
        }
        d.deserialize_bytes(Bytes)
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
    fn a_key_is_its_bytes_however_long() {
        let lengths = [1, 37, 38, 39, 40, 255, 256, MAX_KEY_BYTES];
        let keys = lengths.map(|length| Key::new(vec![7; length]).expect("in range"));
        for (key, length) in keys.iter().zip(lengths) {
            assert_eq!(key.as_bytes(), vec![7; length]);
            assert_eq!(KeyRef::from(key).to_key(), *key);
            assert_eq!(format!("{:?}", KeyRef::from(key)), format!("{key:?}"));
            assert_eq!(*key, key.clone());
        }
        assert!(
            keys.is_sorted_by(|a, b| a < b),
            "by bytes, short before long"
        );
    }

    #[test]
    fn any_byte_shows_as_text() {
        let key = Key::new(*b"a\0\xff\n").expect("four bytes");
        assert_eq!(key.to_string(), "a\\x00\\xff\\n");
    }
}
