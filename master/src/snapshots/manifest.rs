//! What stands beside a snapshot and says what it is.

use larder_oplog::{FORMAT_VERSION, Position, snapshot_file_name};
use larder_types::Epoch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{SnapshotName, StoreError};

/// The name of the file, and of the last part of the object, that a manifest is.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The longest manifest, in bytes: two names of 253 bytes and a dozen numbers are well below.
pub(super) const BYTES_MAX: u64 = 16 * 1024;

/// What a snapshot says about itself. JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format, of the manifest and of the file.
    pub format: u16,
    /// Its name.
    pub name: SnapshotName,
    /// The pool that it was taken of.
    pub pool: String,
    /// The master that took it.
    pub master: String,
    /// The generation of its state, and the term of the last entry that is in it.
    pub epoch: Epoch,
    /// The index of that entry.
    pub index: u64,
    /// The objects in it.
    pub objects: u64,
    /// The size of its file, in bytes.
    pub size_bytes: u64,
    /// The digest of its state, in 16 hex digits.
    pub digest: String,
    /// The CRC-32C of its file, in 8 hex digits.
    pub checksum: String,
    /// When it was taken, in ms since 1970. For people: nothing is judged by it.
    pub taken_unix_ms: u64,
}

impl Manifest {
    /// What its bytes say; `location` is for the error.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] or [`StoreError::Newer`].
    pub fn decode(bytes: &[u8], location: &str) -> Result<Self, StoreError> {
        let damaged = |error: serde_json::Error| StoreError::Damaged {
            location: location.to_owned(),
            what: format!("its manifest does not decode: {error}"),
        };
        let value: Value = serde_json::from_slice(bytes).map_err(damaged)?;
        let format = value.get("format").and_then(Value::as_u64);
        if let Some(format) = format.filter(|format| *format > u64::from(FORMAT_VERSION)) {
            return Err(StoreError::Newer {
                location: location.to_owned(),
                format,
            });
        }
        serde_json::from_value(value).map_err(damaged)
    }

    /// Its bytes.
    ///
    /// # Errors
    /// None that can be told of: it has plain fields only.
    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(self)
    }

    /// The last entry that is in it.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position {
            term: self.epoch.term,
            index: self.index,
        }
    }

    /// The name of its file.
    #[must_use]
    pub fn file_name(&self) -> String {
        snapshot_file_name(self.position())
    }
}
