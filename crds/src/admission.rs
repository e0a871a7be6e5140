//! What the API server does with an object before it stores it, in process and in its order:
//! unknown fields, nulls, defaults, structure, CEL rules.
//!
//! Unlike the API server it refuses unknown fields always (`kubectl` asks for that by default),
//! and it reports problems of structure together with them.

use std::fmt;

use kube::core::cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::definition;
use crate::problem::{Problem, Problems};

mod structure;
#[cfg(test)]
pub(crate) use structure::KEYWORDS;

#[cfg(test)]
mod tests;

/// Checks objects of one kind. Making one compiles the kind's rules (milliseconds), so make one
/// per kind and not one per object.
pub struct Admission {
    schema: Value,
    rules: CompiledSchema,
    validator: Validator,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

impl Admission {
    /// Admission of objects of the kind `T`.
    #[must_use]
    pub fn of<T: JsonSchema>() -> Self {
        let mut schema = definition::schema::<T>();
        let rules = compile_schema(&schema);
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("apiVersion".into(), json!({ "type": "string" }));
            properties.insert("kind".into(), json!({ "type": "string" }));
            properties.insert("metadata".into(), metadata_schema());
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.push(json!("metadata"));
        }
        Self {
            schema,
            rules,
            validator: Validator::new(),
        }
    }

    /// The object as the API server would store it on creation: without status, with defaults.
    ///
    /// # Errors
    /// All [`Problems`] that were found. CEL rules run only on an object that is sound otherwise.
    pub fn create(&self, object: Value) -> Result<Value, Problems> {
        self.admit(object, None)
    }

    /// The object as the API server would store it in the place of `old`, which was admitted
    /// before.
    ///
    /// # Errors
    /// As [`Admission::create`], and what may not change.
    pub fn update(&self, object: Value, old: &Value) -> Result<Value, Problems> {
        self.admit(object, Some(old))
    }

    fn admit(&self, mut object: Value, old: Option<&Value>) -> Result<Value, Problems> {
        let mut problems = Vec::new();
        structure::unknown_fields(&self.schema, &object, "", &mut problems);
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        structure::prune_nulls(&self.schema, &mut object);
        let object = apply_defaults(&self.schema, &object);
        structure::check(&self.schema, &object, "", &mut problems);
        Problems::unless_empty(problems)?;
        let broken = self
            .validator
            .validate_compiled(&self.rules, &object, old)
            .err();
        let broken = broken
            .into_iter()
            .flatten()
            .map(|e| Problem::new(e.field_path, e.message));
        Problems::unless_empty(broken.collect())?;
        Ok(object)
    }
}

/// The part of ObjectMeta that matters to us; the rest, which the API server fills in, may stand
/// in an exported object and is kept as it is.
fn metadata_schema() -> Value {
    let label = json!("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
    let name = json!("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$");
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let anything = json!({ "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": { "type": "string", "pattern": name, "maxLength": 253 },
            "namespace": { "type": "string", "pattern": label, "maxLength": 63 },
            "labels": texts,
            "annotations": texts,
            "creationTimestamp": anything,
            "deletionGracePeriodSeconds": anything,
            "deletionTimestamp": anything,
            "finalizers": anything,
            "generateName": anything,
            "generation": anything,
            "managedFields": anything,
            "ownerReferences": anything,
            "resourceVersion": anything,
            "selfLink": anything,
            "uid": anything,
        },
    })
}
