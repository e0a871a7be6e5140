//! Objects of a tenant by a pattern: listed or removed, for administrators only.
//!
//! The pattern is matched here, not by the leader: that gives a page of keys a turn, and takes
//! some removals a turn, between everybody else's calls. A call ends after a number of pages or
//! some time, whichever is first, and says where to go on.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use larder_store::MAX_LISTED;
use larder_types::{Key, TenantId};
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::reject::Rejection;
use super::{Admin, Asker, audit};
use crate::event::AdminAsk;

/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;
/// The most memory that a compiled pattern may take, in bytes. Matching takes time linear in the
/// key, whatever the pattern.
const MAX_COMPILED_BYTES: usize = 1024 * 1024;
/// The most pages of one call: 64,000 keys.
const MAX_PAGES: usize = 64;
/// The most objects in one answer.
const MAX_FOUND: usize = 1000;
/// After this long a call answers with what it has.
const DEADLINE: Duration = Duration::from_secs(5);

/// What a call asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// A regular expression that matches somewhere in the key; without it every key does.
    #[serde(default)]
    pattern: String,
    /// Only keys that start so.
    #[serde(default)]
    prefix: String,
    /// Only keys after this one: its hexadecimal digits, as `next` of the last answer.
    #[serde(default)]
    after: Option<String>,
    /// Leave objects that a reader's lease protects.
    #[serde(default)]
    if_unleased: bool,
}

/// Where a walk over the keys is.
struct Walk {
    tenant: TenantId,
    pattern: Regex,
    prefix: Vec<u8>,
    after: Option<Key>,
    more: bool,
    scanned: u64,
}

impl Walk {
    fn new(tenant: &str, asked: &Asked) -> Result<Self, Rejection> {
        let length = asked.pattern.len();
        if length > MAX_PATTERN_BYTES {
            return Err(Rejection::bad_argument(format!(
                "a pattern of {length} bytes, at most {MAX_PATTERN_BYTES}"
            )));
        }
        let pattern = RegexBuilder::new(&asked.pattern)
            .size_limit(MAX_COMPILED_BYTES)
            .build()
            .map_err(Rejection::bad_argument)?;
        let after = asked.after.as_deref().map(unhex).transpose()?;
        Ok(Self {
            tenant: TenantId::new(tenant).map_err(Rejection::bad_argument)?,
            pattern,
            prefix: asked.prefix.clone().into_bytes(),
            after,
            more: true,
            scanned: 0,
        })
    }

    /// The next page: keys that match, with their sizes. At most `limit` keys are looked at.
    async fn page(&mut self, admin: &Admin, limit: usize) -> Result<Vec<(Key, u64)>, Rejection> {
        let ask = AdminAsk::Keys {
            tenant: self.tenant.clone(),
            prefix: self.prefix.clone(),
            after: self.after.clone(),
            limit,
        };
        let page = admin.ask(ask).await?;
        self.more = page["more"].as_bool().unwrap_or(false);
        let mut found = Vec::new();
        for entry in page["keys"].as_array().into_iter().flatten() {
            let key = unhex(entry[0].as_str().unwrap_or_default())?;
            self.scanned += 1;
            if self.pattern.is_match(key.as_bytes()) {
                found.push((key.clone(), entry[1].as_u64().unwrap_or(0)));
            }
            self.after = Some(key);
        }
        Ok(found)
    }

    /// Where the next call goes on; `null` at the end.
    fn next(&self) -> Option<String> {
        let after = self.after.as_ref().filter(|_| self.more);
        after.map(|key| hex(key.as_bytes()))
    }
}

/// `GET /v1/tenants/{id}/objects`.
pub(super) async fn list(
    State(admin): State<Admin>,
    Path(tenant): Path<String>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Rejection> {
    let Query(asked) = asked.map_err(Rejection::bad_argument)?;
    let mut walk = Walk::new(&tenant, &asked)?;
    let (until, mut found) = (Instant::now() + DEADLINE, Vec::new());
    for _ in 0..MAX_PAGES {
        // As many keys as the answer still takes objects: it never ends within a page.
        let room = MAX_FOUND.saturating_sub(found.len()).min(MAX_LISTED);
        if !walk.more || room == 0 || Instant::now() >= until {
            break;
        }
        found.extend(walk.page(&admin, room).await?);
    }
    let document = |(key, size_bytes): (Key, u64)| {
        let digits = hex(key.as_bytes());
        json!({ "key": shown(&key), "hex": digits, "size_bytes": size_bytes })
    };
    let entries: Vec<Value> = found.into_iter().map(document).collect();
    let document = json!({ "objects": entries, "scanned": walk.scanned, "next": walk.next() });
    Ok(axum::Json(document).into_response())
}

/// `DELETE /v1/tenants/{id}/objects`.
pub(super) async fn remove(
    State(admin): State<Admin>,
    axum::Extension(asker): axum::Extension<Asker>,
    Path(tenant): Path<String>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Rejection> {
    let Query(asked) = asked.map_err(Rejection::bad_argument)?;
    let object = format!("{tenant}/objects?pattern={}", asked.pattern);
    let done = remove_matching(&admin, &tenant, &asked).await;
    let outcome = match &done {
        Ok(document) => format!("removed {}", document["removed"]),
        Err(_) => "failed".to_owned(),
    };
    audit(&asker.0, &axum::http::Method::DELETE, &object, &outcome);
    Ok(axum::Json(done?).into_response())
}

async fn remove_matching(admin: &Admin, tenant: &str, asked: &Asked) -> Result<Value, Rejection> {
    let mut walk = Walk::new(tenant, asked)?;
    let (until, mut removed, mut skipped) = (Instant::now() + DEADLINE, 0u64, 0u64);
    for _ in 0..MAX_PAGES {
        if !walk.more || Instant::now() >= until {
            break;
        }
        let keys: Vec<Key> = walk
            .page(admin, MAX_LISTED)
            .await?
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        if keys.is_empty() {
            continue;
        }
        let ask = AdminAsk::Remove {
            tenant: walk.tenant.clone(),
            keys,
            if_unleased: asked.if_unleased,
        };
        let outcomes = admin.ask(ask).await?;
        removed += outcomes["done"].as_u64().unwrap_or(0);
        skipped += outcomes["refused"].as_u64().unwrap_or(0);
    }
    let (scanned, next) = (walk.scanned, walk.next());
    Ok(json!({ "removed": removed, "skipped": skipped, "scanned": scanned, "next": next }))
}

/// The key as text, if it is text.
fn shown(key: &Key) -> Option<&str> {
    std::str::from_utf8(key.as_bytes()).ok()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn unhex(text: &str) -> Result<Key, Rejection> {
    let wrong = || Rejection::bad_argument("a key is an even number of hexadecimal digits");
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| {
            digit
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        })
        .collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2));
    let pairs = digits.ok_or_else(wrong)?;
    let bytes: Vec<u8> = pairs.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    Key::new(bytes).map_err(Rejection::bad_argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_through_digits_and_back() {
        for bytes in [&b"a"[..], b"\0\xff", b"model/7"] {
            let key = Key::new(bytes).expect("short");
            assert_eq!(unhex(&hex(bytes)).expect("digits"), key);
        }
        for wrong in ["", "a", "0g", "ab c"] {
            assert!(unhex(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_is_bounded() {
        let walk = |pattern: &str| {
            let asked = Asked {
                pattern: pattern.to_owned(),
                prefix: String::new(),
                after: None,
                if_unleased: false,
            };
            Walk::new("a", &asked).is_ok()
        };
        assert!(walk("") && walk("^model/[0-9]+$"));
        assert!(!walk("(") && !walk(&"a".repeat(1025)));
        assert!(
            !walk("(((a{100}){100}){100})"),
            "it would take too much memory"
        );
    }
}
