//! What masters are told: the figures, the file's sections, and what is refused.

use serde_json::json;

use super::*;

fn settings(spec: Value) -> Result<MasterSettings, Vec<String>> {
    let part = |name: &str| spec.get(name).cloned();
    let eviction = part("eviction").unwrap_or_else(|| json!({}));
    let moves = part("moves").unwrap_or_else(|| json!({}));
    let eviction: Eviction = serde_json::from_value(eviction).unwrap();
    let moves: Moves = serde_json::from_value(moves).unwrap();
    let oplog = part("oplog").unwrap_or_else(|| json!({}));
    let oplog: Oplog = serde_json::from_value(oplog).unwrap();
    let events = part("events").map(|events| serde_json::from_value::<Events>(events).unwrap());
    let mut problems = Vec::new();
    let settings = of(&eviction, &moves, &oplog, events.as_ref(), &mut problems);
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(problems.iter().map(ToString::to_string).collect())
    }
}

#[test]
fn without_a_word_masters_have_the_defaults_and_no_events() {
    let silent = settings(json!({})).unwrap();
    assert_eq!(silent, MasterSettings::default());
    assert_eq!(
        Value::Object(silent.sections(true)),
        json!({
            "oplog": { "sync": "Interval", "interval_ms": 20 },
            "eviction": { "high_watermark_percent": 90, "low_watermark_percent": 80 },
            "moves": { "max_concurrent": 32, "bytes_per_s": 805_306_368 },
        })
    );
}

#[test]
fn an_endpoint_is_open_beyond_loopback_in_a_cluster_only() {
    let spec = json!({
        "oplog": { "sync": "Always" },
        "eviction": { "highWatermarkPercent": 95 },
        "moves": { "maxConcurrent": 4, "bytesPerSecond": "10Mi" },
        "events": { "capacity": 8192, "maxBytes": "1Mi", "zmq": [
            { "tenant": "team-a", "port": 5557, "replayPort": 5558, "schema": "Map",
              "topic": "kv@a@m", "highWater": 7 },
            { "tenant": "team-b", "port": 5559 },
        ] },
    });
    let settings = settings(spec).unwrap();
    let events = settings.events.as_ref().unwrap();
    assert_eq!(events.ports().collect::<Vec<_>>(), [5557, 5558, 5559]);
    // One of the two repeats batches.
    assert_eq!(events.memory_bytes(), (1 << 20) + (64 << 20));
    let sections = settings.sections(true);
    assert_eq!(sections["eviction"]["high_watermark_percent"], 95);
    assert_eq!(sections["oplog"]["sync"], "Always");
    assert_eq!(
        sections["moves"],
        json!({ "max_concurrent": 4, "bytes_per_s": 10 << 20 })
    );
    assert_eq!(
        sections["events"],
        json!({ "capacity": 8192, "capacity_bytes": 1 << 20, "zmq": [
            {
                "tenant": "team-a", "addr": "0.0.0.0:5557", "replay_addr": "0.0.0.0:5558",
                "beyond_loopback": true, "topic": "kv@a@m", "schema": "map",
                "medium": "EXTERNAL", "high_water": 7, "replay_batches": 10_000,
            },
            {
                "tenant": "team-b", "addr": "0.0.0.0:5559", "replay_addr": null,
                "beyond_loopback": true, "topic": null, "schema": "array",
                "medium": "EXTERNAL", "high_water": 1000, "replay_batches": 10_000,
            },
        ] })
    );
    let local = &settings.sections(false)["events"]["zmq"][0];
    assert_eq!(local["addr"], "127.0.0.1:5557");
    assert_eq!(local["beyond_loopback"], false);
}

#[test]
fn what_cannot_work_is_refused_with_its_field() {
    let zmq = |endpoints: Value| json!({ "events": { "zmq": endpoints } });
    for (spec, expected) in [
        (
            json!({ "eviction": { "highWatermarkPercent": 80 } }),
            "spec.eviction.lowWatermarkPercent",
        ),
        (
            json!({ "eviction": { "highWatermarkPercent": 101 } }),
            "spec.eviction.lowWatermarkPercent",
        ),
        (
            json!({ "eviction": { "lowWatermarkPercent": 0 } }),
            "spec.eviction.lowWatermarkPercent",
        ),
        (
            json!({ "moves": { "maxConcurrent": 257 } }),
            "spec.moves.maxConcurrent",
        ),
        (
            json!({ "moves": { "bytesPerSecond": "0" } }),
            "spec.moves.bytesPerSecond",
        ),
        (
            json!({ "moves": { "bytesPerSecond": "fast" } }),
            "spec.moves.bytesPerSecond",
        ),
        (
            json!({ "events": { "capacity": 8191 } }),
            "spec.events.capacity",
        ),
        (
            json!({ "events": { "maxBytes": "1Ki" } }),
            "spec.events.maxBytes",
        ),
        (zmq(json!([{ "tenant": "a", "port": 80 }])), "1024 or more"),
        (zmq(json!([{ "tenant": "a", "port": 7401 }])), "is taken"),
        (
            zmq(json!([{ "tenant": "a", "port": 5557, "replayPort": 5557 }])),
            "port 5557 is taken",
        ),
        (
            zmq(json!([{ "tenant": "a", "port": 1 << 13 }, { "tenant": "b", "port": 1 << 13 }])),
            "port 8192 is taken",
        ),
        (zmq(json!([{ "tenant": "-", "port": 5557 }])), "tenant id"),
        (
            zmq(json!([{ "tenant": "a", "port": 5557, "medium": "" }])),
            "medium",
        ),
        (
            zmq(json!([{ "tenant": "a", "port": 5557, "highWater": 0 }])),
            "highWater",
        ),
    ] {
        let refused = settings(spec.clone()).unwrap_err();
        assert!(
            refused.len() == 1 && refused[0].contains(expected),
            "{spec}: {refused:?}"
        );
    }
}
