//! How the API server puts two objects together: merge patch and a simple server-side apply.

use serde_json::{Map, Value};

/// A merge patch (RFC 7386).
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    for (key, value) in patch {
        if value.is_null() {
            if let Some(object) = object.as_object_mut() {
                object.remove(key);
            }
        } else {
            merge(&mut object[key], value);
        }
    }
}

/// What `object` becomes when a manager that applied `before` applies `now`.
pub(crate) fn apply(mut object: Value, before: &Value, now: &Value) -> Value {
    drop_unapplied(&mut object, before, now);
    lay_over(&mut object, now);
    object
}

fn drop_unapplied(object: &mut Value, before: &Value, now: &Value) {
    let (Some(fields), Some(before)) = (object.as_object_mut(), before.as_object()) else {
        return;
    };
    for (key, value) in before {
        let Some(now) = now.get(key) else {
            fields.remove(key);
            continue;
        };
        match list_key(key).zip(fields.get_mut(key).and_then(Value::as_array_mut)) {
            Some((name, items)) => {
                let has = |list: &Value, item: &Value| {
                    let list = list.as_array();
                    list.is_some_and(|list| list.iter().any(|one| one[name] == item[name]))
                };
                items.retain(|item| !has(value, item) || has(now, item));
            }
            None => {
                if let Some(field) = fields.get_mut(key) {
                    drop_unapplied(field, value, now);
                }
            }
        }
    }
}

/// Lists that are maps: their elements have a key.
fn list_key(name: &str) -> Option<&'static str> {
    match name {
        "conditions" => Some("type"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

fn lay_over(object: &mut Value, now: &Value) {
    let Value::Object(now) = now else {
        *object = now.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    for (name, value) in now {
        let (Some(key), Some(items)) = (list_key(name), value.as_array()) else {
            lay_over(&mut object[name], value);
            continue;
        };
        let mut list = object[name].as_array().cloned().unwrap_or_default();
        for item in items {
            match list.iter_mut().find(|one| one[key] == item[key]) {
                Some(one) => *one = item.clone(),
                None => list.push(item.clone()),
            }
        }
        object[name] = Value::Array(list);
    }
}
