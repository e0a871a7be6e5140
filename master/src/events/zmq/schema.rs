//! Batches as vLLM's subscribers read them: msgpack, the envelope an array, each event an array
//! or a map. Pure.
//!
//! The fields and their order are those of `vllm/distributed/kv_events.py`: a batch is `ts`
//! (seconds since 1970), `events`, `data_parallel_rank`; a stored block has `block_hashes`,
//! `parent_block_hash`, `token_ids`, `block_size`, `lora_id`, `medium`, `lora_name`; a removed
//! one `block_hashes`, `medium`. Fields behind these have defaults and are left out. What a pool
//! of bytes does not know (parent, tokens, adapter) is empty.

use std::convert::Infallible;

use rmp::encode::{
    ByteBuf, ValueWriteError, write_array_len, write_f64, write_map_len, write_nil, write_str,
    write_uint,
};

use crate::events::config::ZmqSchema;

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockChange {
    /// The block of this hash is there.
    Stored(u64),
    /// It is gone.
    Removed(u64),
    /// All are gone.
    Cleared,
}

/// Why a batch is not written. Writing to memory does not fail; the type comes with the library.
pub(crate) type WriteError = ValueWriteError<Infallible>;

/// How batches are written.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) schema: ZmqSchema,
    pub(crate) medium: String,
}

/// A value of an event's field.
#[derive(Clone, Copy)]
enum Value<'a> {
    Hashes(u64),
    Nothing,
    NoTokens,
    Size(u64),
    Text(&'a str),
}

impl Shape {
    /// One batch.
    pub(crate) fn encode(&self, ts: f64, changes: &[BlockChange]) -> Result<Vec<u8>, WriteError> {
        let mut out = ByteBuf::with_capacity(32 + 48 * changes.len());
        write_array_len(&mut out, 3)?;
        write_f64(&mut out, ts)?;
        let events = u32::try_from(changes.len()).unwrap_or(u32::MAX);
        write_array_len(&mut out, events)?;
        for change in changes {
            self.write_event(&mut out, *change)?;
        }
        // The rank of an engine without data parallelism.
        write_uint(&mut out, 0)?;
        Ok(out.into_vec())
    }

    fn write_event(&self, out: &mut ByteBuf, change: BlockChange) -> Result<(), WriteError> {
        let medium = Value::Text(&self.medium);
        let stored;
        let removed;
        let (name, fields): (&str, &[(&str, Value<'_>)]) = match change {
            BlockChange::Stored(hash) => {
                stored = [
                    ("block_hashes", Value::Hashes(hash)),
                    ("parent_block_hash", Value::Nothing),
                    ("token_ids", Value::NoTokens),
                    ("block_size", Value::Size(0)),
                    ("lora_id", Value::Nothing),
                    ("medium", medium),
                    ("lora_name", Value::Nothing),
                ];
                ("BlockStored", &stored)
            }
            BlockChange::Removed(hash) => {
                removed = [("block_hashes", Value::Hashes(hash)), ("medium", medium)];
                ("BlockRemoved", &removed)
            }
            BlockChange::Cleared => ("AllBlocksCleared", &[]),
        };
        let length = u32::try_from(fields.len() + 1).unwrap_or(u32::MAX);
        let is_map = self.schema == ZmqSchema::Map;
        if is_map {
            write_map_len(out, length)?;
            write_str(out, "type")?;
        } else {
            write_array_len(out, length)?;
        }
        write_str(out, name)?;
        for (field, value) in fields {
            if is_map {
                write_str(out, field)?;
            }
            write_value(out, *value)?;
        }
        Ok(())
    }
}

fn write_value(out: &mut ByteBuf, value: Value<'_>) -> Result<(), WriteError> {
    match value {
        Value::Hashes(hash) => {
            write_array_len(out, 1)?;
            write_uint(out, hash)?;
        }
        Value::Nothing => write_nil(out).map_err(ValueWriteError::InvalidDataWrite)?,
        Value::NoTokens => drop(write_array_len(out, 0)?),
        Value::Size(size) => drop(write_uint(out, size)?),
        Value::Text(text) => write_str(out, text)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(schema: ZmqSchema) -> Shape {
        Shape {
            schema,
            medium: "CPU".to_owned(),
        }
    }

    #[test]
    fn a_batch_is_the_bytes_of_the_schema() {
        let changes = [
            BlockChange::Stored(u64::MAX),
            BlockChange::Removed(7),
            BlockChange::Cleared,
        ];
        let bytes = shape(ZmqSchema::Array)
            .encode(1.5, &changes)
            .expect("encodes");
        let mut expected = vec![0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x93];
        expected.extend(b"\x98\xabBlockStored\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
        expected.extend(b"\xc0\x90\x00\xc0\xa3CPU\xc0");
        expected.extend(b"\x93\xacBlockRemoved\x91\x07\xa3CPU");
        expected.extend(b"\x91\xb0AllBlocksCleared\x00");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_map_names_its_fields() {
        let bytes = shape(ZmqSchema::Map)
            .encode(0.0, &[BlockChange::Removed(7)])
            .expect("encodes");
        let mut expected = vec![0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91];
        expected.extend(b"\x83\xa4type\xacBlockRemoved\xacblock_hashes\x91\x07\xa6medium\xa3CPU");
        expected.push(0);
        assert_eq!(bytes, expected);
    }
}
