//! The rules of what a pool's spec says to its masters: eviction, moves, events.

use serde_json::{Value, json};

use super::{Case, Edit, Kind, set};

fn case(at: &'static str, path: &'static str, message: &'static str) -> Case {
    Case::new(Kind::Pool, at, path, message)
}

fn watermarks(high: u32, low: u32) -> Vec<Edit> {
    let both = json!({ "highWatermarkPercent": high, "lowWatermarkPercent": low });
    set("/spec/eviction", both)
}

fn zmq(endpoints: Value) -> Vec<Edit> {
    set("/spec/events", json!({ "zmq": endpoints }))
}

fn endpoint(tenant: &str, port: u16, replay_port: Option<u16>) -> Value {
    let mut endpoint = json!({ "tenant": tenant, "port": port });
    if let Some(port) = replay_port {
        endpoint["replayPort"] = json!(port);
    }
    endpoint
}

/// As many endpoints as there may be, each with both ports.
fn many() -> Value {
    (0..64)
        .map(|at| endpoint("team-a", 5000 + at, Some(6000 + at)))
        .collect()
}

fn background_cases() -> Vec<Case> {
    let rate = |rate: &str| set("/spec/moves", json!({ "bytesPerSecond": rate }));
    vec![
        case(
            "spec.eviction",
            "spec.eviction.lowWatermarkPercent",
            "must be less than highWatermarkPercent (they are 80 and 90 when they are absent)",
        )
        .passes(watermarks(100, 99))
        .passes(watermarks(2, 1))
        .passes(set("/spec/eviction", json!({})))
        .passes(set("/spec/eviction", json!({ "lowWatermarkPercent": 89 })))
        .fails(watermarks(80, 80))
        .fails(watermarks(50, 60))
        .fails(set("/spec/eviction", json!({ "lowWatermarkPercent": 90 })))
        .fails(set("/spec/eviction", json!({ "highWatermarkPercent": 80 }))),
        case(
            "spec.moves.bytesPerSecond",
            "spec.moves.bytesPerSecond",
            "must be at least 1Mi, or nodes would never be empty",
        )
        .passes(rate("1Mi"))
        .passes(rate("100Gi"))
        .fails(rate("0"))
        .fails(rate("1M")),
        case(
            "spec.moves.bytesPerSecond",
            "spec.moves.bytesPerSecond",
            super::TOO_LARGE,
        )
        .passes(rate("4Pi"))
        .fails(rate("5Pi")),
    ]
}

fn event_cases() -> Vec<Case> {
    let max_bytes = |bytes: &str| set("/spec/events", json!({ "maxBytes": bytes }));
    let taken = "must not be 7400 or 7401, where masters serve clients and administration";
    vec![
        case(
            "spec.events.maxBytes",
            "spec.events.maxBytes",
            "must be at least 1Mi",
        )
        .passes(max_bytes("1Mi"))
        .passes(set("/spec/events", json!({})))
        .fails(max_bytes("1023Ki")),
        case(
            "spec.events.maxBytes",
            "spec.events.maxBytes",
            super::TOO_LARGE,
        )
        .passes(max_bytes("1Gi"))
        .fails(max_bytes("5Pi")),
        case(
            "spec.events.zmq",
            "spec.events.zmq",
            "must give each socket a port of its own, port and replayPort alike",
        )
        .passes(zmq(many()))
        .passes(zmq(json!([
            endpoint("a", 5557, Some(5558)),
            endpoint("a", 5559, None)
        ])))
        .fails(zmq(json!([
            endpoint("a", 5557, None),
            endpoint("b", 5557, None)
        ])))
        .fails(zmq(json!([endpoint("a", 5557, Some(5557))])))
        .fails(zmq(json!([
            endpoint("a", 5557, None),
            endpoint("b", 5559, Some(5557))
        ]))),
        case(
            "spec.events.zmq",
            "spec.events.zmq",
            "must give each replayPort to one endpoint only",
        )
        .passes(zmq(json!([
            endpoint("a", 5557, Some(5558)),
            endpoint("b", 5559, Some(5560))
        ])))
        .fails(zmq(json!([
            endpoint("a", 5557, Some(5558)),
            endpoint("b", 5559, Some(5558))
        ]))),
        case("spec.events.zmq[]", "spec.events.zmq[0].port", taken)
            .passes(zmq(json!([endpoint("a", 7402, None)])))
            .fails(zmq(json!([endpoint("a", 7400, None)])))
            .fails(zmq(json!([endpoint("a", 7401, None)]))),
        case(
            "spec.events.zmq[]",
            "spec.events.zmq[0].replayPort",
            "must not be one of the masters' own ports, 7400 and 7401",
        )
        .passes(zmq(json!([endpoint("a", 5557, Some(7399))])))
        .fails(zmq(json!([endpoint("a", 5557, Some(7401))]))),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    [background_cases(), event_cases()].concat()
}
