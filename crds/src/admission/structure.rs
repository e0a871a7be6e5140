//! Walks an object along its structural schema: unknown fields, nulls, types and bounds.
//!
//! A JSON-schema library was considered: it knows neither list keys nor that nulls are dropped,
//! names fields by pointer, and takes longer to compile than the rest of this crate. A test
//! fails when a schema of ours uses a keyword that is not handled here.

use regex::Regex;
use serde_json::{Map, Value};

use crate::problem::Problem;
use crate::quantity::{self, QuantityError};

/// Keywords of a schema that this walk, the defaults or the CEL rules handle, or that say nothing
/// about an object.
#[cfg(test)]
pub(crate) const KEYWORDS: [&str; 22] = [
    "additionalProperties",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

fn field(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn child<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema
        .get("properties")
        .and_then(|properties| properties.get(name))
        .or_else(|| schema.get("additionalProperties"))
}

fn keeps_unknown(schema: &Value) -> bool {
    schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
}

/// Names every field that the schema does not have.
pub(super) fn unknown_fields(schema: &Value, value: &Value, path: &str, out: &mut Vec<Problem>) {
    match value {
        Value::Object(fields) if !keeps_unknown(schema) => {
            for (name, value) in fields {
                let path = field(path, name);
                match child(schema, name) {
                    Some(schema) => unknown_fields(schema, value, &path, out),
                    // A structure error of its own: no field can be inside.
                    None if !is_object(schema) => {}
                    None => out.push(Problem::new(path, unknown_message(schema, name))),
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else {
                return;
            };
            for (at, item) in items.iter().enumerate() {
                unknown_fields(schema, item, &format!("{path}[{at}]"), out);
            }
        }
        _ => {}
    }
}

fn is_object(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
}

fn unknown_message(schema: &Value, name: &str) -> String {
    let empty = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let lower = name.to_lowercase();
    let closest = properties
        .keys()
        .map(|known| {
            (
                strsim::damerau_levenshtein(&known.to_lowercase(), &lower),
                known,
            )
        })
        .min();
    match closest {
        // A third of the letters may be wrong: `sise`, `replicafactor`, `slab_size`.
        Some((distance, known)) if distance * 3 <= known.len() => {
            format!("unknown field; did you mean '{known}'?")
        }
        Some(_) => {
            let known: Vec<&str> = properties.keys().map(String::as_str).collect();
            format!("unknown field; the fields here are {}", known.join(", "))
        }
        None => "unknown field; no field is known here".to_owned(),
    }
}

/// Drops fields that are null: no schema of ours has a nullable field, and the API server then
/// treats null as absent.
pub(super) fn prune_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if !keeps_unknown(schema) {
                fields.retain(|_, value| !value.is_null());
            }
            for (name, value) in fields {
                if let Some(schema) = child(schema, name) {
                    prune_nulls(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| prune_nulls(schema, item));
            }
        }
        _ => {}
    }
}

/// Checks types, required fields, enums, patterns, bounds and list keys.
pub(super) fn check(schema: &Value, value: &Value, path: &str, out: &mut Vec<Problem>) {
    if let Some(message) = wrong_type(schema, value) {
        out.push(Problem::new(path, message));
        return;
    }
    match value {
        Value::Object(fields) => check_object(schema, fields, path, out),
        Value::Array(items) => check_list(schema, items, path, out),
        Value::String(text) => check_text(schema, text, path, out),
        Value::Number(_) => check_number(schema, value, path, out),
        Value::Null | Value::Bool(_) => {}
    }
    check_enum(schema, value, path, out);
}

fn wrong_type(schema: &Value, value: &Value) -> Option<String> {
    let wanted = schema.get("type")?.as_str()?;
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        // Kubernetes keeps whole numbers as signed 64 bits.
        "integer" => value.as_i64().is_some(),
        _ => value.is_number(),
    };
    if fits {
        return None;
    }
    let wanted_words = match wanted {
        "object" => "a mapping",
        "array" => "a list",
        "string" => "a string",
        "boolean" => "true or false",
        "integer" => "a whole number of 64 bits",
        _ => "a number",
    };
    Some(match value {
        Value::Null => format!("must be {wanted_words}, not null"),
        Value::Bool(_) | Value::Number(_) if wanted == "string" => {
            format!("must be a string, not {value}; put it in quotes")
        }
        Value::Bool(_) | Value::Number(_) => format!("must be {wanted_words}, not {value}"),
        Value::String(text) => format!("must be {wanted_words}, not the string '{text}'"),
        Value::Array(_) => format!("must be {wanted_words}, not a list"),
        Value::Object(_) => format!("must be {wanted_words}, not a mapping"),
    })
}

fn check_object(schema: &Value, fields: &Map<String, Value>, path: &str, out: &mut Vec<Problem>) {
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for name in required.filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            out.push(Problem::new(field(path, name), "is required"));
        }
    }
    if let Some(max) = bound(schema, "maxProperties")
        && fields.len() as u64 > max
    {
        out.push(Problem::new(
            path,
            format!("must have at most {max} entries"),
        ));
    }
    for (name, value) in fields {
        if let Some(schema) = child(schema, name) {
            check(schema, value, &field(path, name), out);
        }
    }
}

fn check_list(schema: &Value, items: &[Value], path: &str, out: &mut Vec<Problem>) {
    if let Some(min) = bound(schema, "minItems")
        && (items.len() as u64) < min
    {
        out.push(Problem::new(
            path,
            format!("must have at least {}", entries(min)),
        ));
    }
    if let Some(max) = bound(schema, "maxItems")
        && items.len() as u64 > max
    {
        out.push(Problem::new(
            path,
            format!("must have at most {}", entries(max)),
        ));
        // A list without bound is not worth a message per entry.
        return;
    }
    if let Some(schema) = schema.get("items") {
        for (at, item) in items.iter().enumerate() {
            check(schema, item, &format!("{path}[{at}]"), out);
        }
    }
    let keys = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array);
    let Some(keys) = keys else { return };
    let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
    let key_of = |item: &Value| {
        keys.iter()
            .map(|key| item.get(key).cloned())
            .collect::<Vec<_>>()
    };
    for (at, item) in items.iter().enumerate() {
        if let Some(first) = items[..at]
            .iter()
            .position(|other| key_of(other) == key_of(item))
        {
            let keys = keys.join(" and ");
            let message = format!("has the same {keys} as {path}[{first}]");
            out.push(Problem::new(format!("{path}[{at}]"), message));
        }
    }
}

fn entries(count: u64) -> String {
    if count == 1 {
        "1 entry".to_owned()
    } else {
        format!("{count} entries")
    }
}

fn check_text(schema: &Value, text: &str, path: &str, out: &mut Vec<Problem>) {
    let chars = text.chars().count() as u64;
    if let Some(max) = bound(schema, "maxLength")
        && chars > max
    {
        out.push(Problem::new(
            path,
            format!("must have at most {max} characters"),
        ));
        return;
    }
    if let Some(min) = bound(schema, "minLength")
        && chars < min
    {
        out.push(Problem::new(
            path,
            format!("must have at least {min} characters"),
        ));
    }
    let Some(pattern) = schema.get("pattern").and_then(Value::as_str) else {
        return;
    };
    if Regex::new(pattern).is_ok_and(|regex| regex.is_match(text)) {
        return;
    }
    let message = if pattern == quantity::PATTERN {
        QuantityError::Syntax {
            text: text.to_owned(),
        }
        .to_string()
    } else {
        format!("'{text}' does not match the pattern {pattern}")
    };
    out.push(Problem::new(path, message));
}

fn check_number(schema: &Value, value: &Value, path: &str, out: &mut Vec<Problem>) {
    // Every bound of ours is a whole number.
    let Some(number) = value.as_i64() else { return };
    let signed = |keyword| schema.get(keyword).and_then(Value::as_i64);
    if let Some(min) = signed("minimum")
        && number < min
    {
        out.push(Problem::new(
            path,
            format!("must be at least {min}, not {number}"),
        ));
    }
    let of_format = (schema.get("format").and_then(Value::as_str) == Some("int32"))
        .then_some(i64::from(i32::MAX));
    if let Some(max) = signed("maximum").or(of_format)
        && number > max
    {
        out.push(Problem::new(
            path,
            format!("must be at most {max}, not {number}"),
        ));
    }
}

fn check_enum(schema: &Value, value: &Value, path: &str, out: &mut Vec<Problem>) {
    let Some(allowed) = schema.get("enum").and_then(Value::as_array) else {
        return;
    };
    if !allowed.contains(value) {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        let shown = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let message = match allowed.as_slice() {
            [only] => format!("'{shown}' is not known; for now it must be {only}"),
            _ => format!(
                "'{shown}' is not known; it must be one of {}",
                allowed.join(", ")
            ),
        };
        out.push(Problem::new(path, message));
    }
}

/// A bound that counts something; absent when the schema has none.
fn bound(schema: &Value, keyword: &str) -> Option<u64> {
    schema.get(keyword).and_then(Value::as_u64)
}
