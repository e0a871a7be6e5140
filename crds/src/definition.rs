//! The CustomResourceDefinitions: schemas as the API server gets them, and their YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation,
};
use kube::CustomResourceExt;
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde_json::Value;

use crate::{CacheNode, CachePool, CacheQuota, CacheSnapshot, CacheTenant};

#[cfg(test)]
mod tests;

const HEADER: &str = "# Generated from crds/src; do not edit. Change the types, then run\n\
                      # `cargo run -p larder-xtask -- crdgen`.\n";

/// Why the definitions could not be rendered: a fault of the types, never of a user's input.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A schema holds something that a CustomResourceDefinition cannot.
    #[error("the schema of {kind} is not a schema that Kubernetes knows")]
    Schema {
        /// The kind.
        kind: String,
        /// What the schema type said.
        source: serde_json::Error,
    },
    /// The YAML writer refused.
    #[error("the definition of {kind} cannot be written as YAML")]
    Yaml {
        /// The kind.
        kind: String,
        /// What the writer said.
        source: serde_saphyr::ser::Error,
    },
}

/// File name and YAML of each CustomResourceDefinition, as committed in `crds/yaml`.
///
/// # Errors
/// [`GenerateError`] if a type cannot be rendered.
pub fn generate() -> Result<Vec<(&'static str, String)>, GenerateError> {
    Ok(vec![
        ("cachepools.yaml", render::<CachePool>()?),
        ("cachetenants.yaml", render::<CacheTenant>()?),
        ("cachequotas.yaml", render::<CacheQuota>()?),
        ("cachenodes.yaml", render::<CacheNode>()?),
        ("cachesnapshots.yaml", render::<CacheSnapshot>()?),
    ])
}

fn render<T: CustomResourceExt + JsonSchema>() -> Result<String, GenerateError> {
    let mut definition = T::crd();
    let kind = definition.spec.names.kind.clone();
    let schema_error = |source| GenerateError::Schema {
        kind: kind.clone(),
        source,
    };
    let trimmed = serde_json::from_value(schema::<T>()).map_err(schema_error)?;
    for version in &mut definition.spec.versions {
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: Some(Clone::clone(&trimmed)),
        });
    }
    let value = as_value(&definition).map_err(schema_error)?;
    let yaml = serde_saphyr::to_string(&value).map_err(|source| GenerateError::Yaml {
        kind: kind.clone(),
        source,
    })?;
    Ok(format!("{HEADER}{yaml}"))
}

// Through a `Value`, whose maps are sorted, so that the text does not depend on the order of
// fields in somebody else's struct.
fn as_value(definition: &CustomResourceDefinition) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(definition)?;
    whole_numbers(&mut value);
    Ok(value)
}

// The schema type keeps bounds as floating point, and `maximum: 5.0` for a count of masters is
// read twice by whoever reads it.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            // Bounds are small; 2^53 is where floating point stops being exact.
            let whole = number
                .as_f64()
                .filter(|n| n.fract() == 0.0 && n.abs() < 9.0e15);
            let text = whole.map(|n| format!("{n:.0}"));
            if let Some(whole) = text.and_then(|text| text.parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

/// The `openAPIV3Schema` of a kind, as the API server gets it.
#[must_use]
pub fn schema<T: JsonSchema>() -> Value {
    // The settings and transforms of kube's derive, then our own trimming.
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    trim(&mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
    }
    schema
}

/// Takes out what Kubernetes does not know or what we do not want:
/// * `nullable`: a null for an optional field then means that it is absent, as everywhere in
///   Kubernetes, and no rule has to tell null from absent;
/// * unsigned formats, which draw a warning; their lower bound stays.
fn trim(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("nullable");
            let unsigned = |format: &Value| format.as_str().is_some_and(|f| f.starts_with("uint"));
            if object.get("format").is_some_and(unsigned) {
                object.remove("format");
            }
            object.values_mut().for_each(trim);
        }
        Value::Array(items) => items.iter_mut().for_each(trim),
        _ => {}
    }
}
