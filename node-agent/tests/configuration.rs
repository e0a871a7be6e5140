//! The configuration file: what is accepted, and that each refusal names its key.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use larder_node_agent::{Config, Flags};
use larder_telemetry::error_chain;
use serde_json::{Value, json};

fn minimal() -> Value {
    json!({
        "pool": "small",
        "name": "small-0",
        "masters": ["127.0.0.1:7000"],
        "token_file": "/run/token",
        "socket_path": "/run/agent.sock",
        "state_dir": "/run/state",
        "dram_bytes": 268_435_456,
    })
}

fn with(key: &str, value: Value) -> String {
    let mut config = minimal();
    config[key] = value;
    config.to_string()
}

fn refusal(key: &str, value: Value) -> String {
    let shown = value.to_string();
    match Config::parse(&with(key, value)) {
        Ok(_) => panic!("{key}: {shown} was accepted"),
        Err(error) => error_chain(&error),
    }
}

#[test]
fn what_is_not_said_has_a_default() {
    let config = Config::parse(&minimal().to_string()).expect("valid");
    assert_eq!(config.data_addr, "127.0.0.1:0");
    assert_eq!(config.slab_bytes, 64 << 20);
    assert_eq!(config.system_root.to_str(), Some("/"));
    assert!(!config.single_node);
    assert_eq!(config.slabs(), 4);
    let again = serde_json::to_string(&config).expect("written");
    assert_eq!(Config::parse(&again).expect("read"), config);
}

#[test]
fn an_unknown_key_is_named() {
    let sentence = refusal("dram_byte", json!(1));
    assert!(sentence.contains("unknown field `dram_byte`"), "{sentence}");
    let sentence = refusal("log", json!({"level": "info"}));
    assert!(
        sentence.contains("log") && sentence.contains("level"),
        "{sentence}"
    );
}

#[test]
fn a_missing_key_is_named() {
    for key in [
        "pool",
        "masters",
        "token_file",
        "socket_path",
        "state_dir",
        "dram_bytes",
    ] {
        let mut config = minimal();
        config.as_object_mut().expect("an object").remove(key);
        let error = Config::parse(&config.to_string()).expect_err(key);
        assert!(
            error_chain(&error).contains(key),
            "{key}: {}",
            error_chain(&error)
        );
    }
}

fn flags(name: Option<&str>, advertise_addr: Option<&str>) -> Flags {
    Flags {
        name: name.map(|name| name.parse().expect("a name")),
        advertise_addr: advertise_addr.map(str::to_owned),
        ..Flags::default()
    }
}

#[test]
fn what_differs_by_node_may_be_given_as_flags() {
    let mut shared = minimal();
    shared.as_object_mut().expect("an object").remove("name");
    let shared = || Config::parse(&shared.to_string()).expect("all but the name");
    let given = flags(Some("node-1"), Some("fd00::7"));
    let config = shared().with(given.clone()).expect("complete");
    assert_eq!(config.agent_name().expect("a name").as_str(), "node-1");
    assert_eq!(config.advertise_addr.as_deref(), Some("fd00::7"));
    let error = shared()
        .with(Flags::default())
        .expect_err("no name")
        .to_string();
    assert!(
        error.contains("name") && error.contains("--name"),
        "{error}"
    );
    // Where both say something, the flag wins.
    let text = with("advertise_addr", json!("10.0.0.1:1"));
    let both = || Config::parse(&text).expect("valid");
    let config = both().with(given).expect("valid");
    assert_eq!(config.agent_name().expect("a name").as_str(), "node-1");
    assert_eq!(config.advertise_addr.as_deref(), Some("fd00::7"));
    let config = both().with(Flags::default()).expect("valid");
    assert_eq!(config.agent_name().expect("a name").as_str(), "small-0");
    assert_eq!(config.advertise_addr.as_deref(), Some("10.0.0.1:1"));
}

#[test]
fn labels_are_given_in_the_file_and_each_may_be_another_by_flag() {
    let text = with("labels", json!({"host": "h", "zone": "z", "numa": 1}));
    let config = Config::parse(&text).expect("valid");
    let flags = Flags {
        labels: "host=g,rack=r".parse().expect("labels"),
        ..Flags::default()
    };
    let labels = config.with(flags).expect("valid").labels;
    assert_eq!(Ok(labels), "host=g,rack=r,zone=z,numa=1".parse());
    let error = Config::parse(&with("labels", json!({"row": "r"}))).expect_err("unknown");
    assert!(error_chain(&error).contains("labels"), "{error}");
}

#[test]
fn a_value_that_cannot_be_names_its_key() {
    let cases = [
        ("name", json!("a/b")),
        ("name", json!("")),
        ("name", json!(7)),
        ("masters", json!([])),
        ("masters", json!(["nowhere"])),
        ("masters", json!(["host:0"])),
        ("masters", json!(["host:99999"])),
        ("data_addr", json!("4000")),
        ("metrics_addr", json!(":4000")),
        ("max_connections", json!(0)),
        ("max_connections", json!(-1)),
        ("max_connections", json!(1_000_000)),
        ("slab_bytes", json!(3_000_000)),
        ("slab_bytes", json!(4096)),
        ("slab_bytes", json!(1_u64 << 40)),
        ("dram_bytes", json!(1000)),
        ("dram_bytes", json!(1_u64 << 60)),
        ("dram_bytes", json!("1Gi")),
        ("socket_path", json!("/")),
        ("single_node", json!("yes")),
    ];
    for (key, value) in cases {
        let sentence = refusal(key, value.clone());
        assert!(sentence.contains(key), "{key} = {value}: {sentence}");
    }
}

#[test]
fn a_socket_path_may_have_107_bytes() {
    let path = |bytes: usize| format!("/{}", "s".repeat(bytes - 1));
    assert!(Config::parse(&with("socket_path", json!(path(107)))).is_ok());
    let sentence = refusal("socket_path", json!(path(108)));
    assert!(
        sentence.contains("108 bytes") && sentence.contains("107"),
        "{sentence}"
    );
}

#[test]
fn what_is_left_below_one_slab_is_not_used() {
    let config = Config::parse(&with("dram_bytes", json!((5_u64 << 26) + 7))).expect("valid");
    assert_eq!((config.slabs(), config.slabs_bytes()), (5, 5 << 26));
}

#[test]
fn a_file_that_is_no_configuration_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("agent.json");
    let load = || Config::load(&path).expect_err("refused").to_string();
    assert!(load().contains("agent.json"));
    std::fs::write(&path, "{\"pool\":").expect("written");
    assert!(load().contains("not valid"));
    std::fs::write(&path, format!("{} x", minimal())).expect("written");
    assert!(load().contains("not valid"));
    std::fs::write(&path, vec![b' '; (1 << 20) + 1]).expect("written");
    assert!(load().contains("1 MiB"));
    std::fs::write(&path, minimal().to_string()).expect("written");
    Config::load(&path).expect("valid");
}
