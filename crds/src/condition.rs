//! Conditions: the list through which every kind reports its state.

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

/// Most conditions of one object; every type that we write is counted once.
const MAX_CONDITIONS: u32 = 16;

/// The schema of a list of conditions: keyed by type, so that two writers can each own some, and
/// without the descriptions of upstream, which are longer than all of our own schemas together.
pub(crate) fn list_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut item = Condition::json_schema(generator).to_value();
    strip_descriptions(&mut item);
    let mut list = Schema::default();
    list.insert("type".into(), json!("array"));
    list.insert("items".into(), item);
    list.insert("maxItems".into(), json!(MAX_CONDITIONS));
    list.insert("x-kubernetes-list-type".into(), json!("map"));
    list.insert("x-kubernetes-list-map-keys".into(), json!(["type"]));
    list
}

fn strip_descriptions(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    object.remove("description");
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(strip_descriptions);
    }
}
