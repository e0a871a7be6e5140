//! Strangers, wrong roles, garbage and limits: a clear close, a counter, and the rest goes on.

use std::os::unix::fs::PermissionsExt;

use larder_master::MasterError;
use larder_telemetry::exposition::value;
use larder_wire::frame::{HEADER_BYTES, NO_DEADLINE};
use larder_wire::{Frame, Kind, Purpose, RefusedReason, RootKey, encode_frame};
use serde_json::json;

use crate::peer::{AgentPeer, Client, Peer, hello};
use crate::rig::{Folder, Rig, prepare};

async fn refusals(rig: &Rig, reason: &str) -> f64 {
    let labels = [("listener", "client"), ("reason", reason)];
    value(&rig.metrics().await, "larder_wire_refused_total", &labels).unwrap_or(0.0)
}

#[tokio::test]
async fn a_credential_must_prove_the_purpose() {
    let rig = Rig::start().await;
    let cases = [
        ("stranger", Purpose::Client, RefusedReason::Credential),
        ("stranger", Purpose::Agent, RefusedReason::Credential),
        // Its token is known, but no such tenant is in the pool.
        ("c", Purpose::Client, RefusedReason::Credential),
        ("node-0", Purpose::Client, RefusedReason::Role),
        ("operator", Purpose::Client, RefusedReason::Role),
        ("admin", Purpose::Client, RefusedReason::Role),
        ("master", Purpose::Client, RefusedReason::Role),
        ("a", Purpose::Agent, RefusedReason::Role),
        ("admin", Purpose::Agent, RefusedReason::Role),
    ];
    for (name, purpose, expected) in cases {
        let mut peer = Peer::connect(rig.client_addr).await;
        let refused = peer.say_hello(&hello(name, purpose)).await.expect_err(name);
        assert_eq!(refused.reason, expected, "{name} as {purpose:?}: {refused}");
        assert!(!refused.detail.contains("secret-"), "no secret is repeated");
        assert!(peer.read().await.is_none(), "the connection is closed");
    }
    assert_eq!(refusals(&rig, "credential").await, 3.0);
    assert_eq!(refusals(&rig, "role").await, 6.0);
    let mut future = hello("a", Purpose::Client);
    (future.protocol_min, future.protocol_max) = (900, 901);
    let mut peer = Peer::connect(rig.client_addr).await;
    let refused = peer
        .say_hello(&future)
        .await
        .expect_err("no common protocol");
    assert_eq!(refused.reason, RefusedReason::Protocol);
}

#[tokio::test]
async fn b52_bytes_that_are_no_hello_get_a_clear_close_and_a_counter() {
    let rig = Rig::start().await;
    let mut oversize = Vec::new();
    let frame = Frame::request(Kind::Hello, 1, 0, NO_DEADLINE);
    encode_frame(&mut oversize, frame, &vec![0_u8; 20_000]).expect("a frame");
    let mut wrong_body = Vec::new();
    encode_frame(&mut wrong_body, frame, &"hello").expect("a frame");
    let mut no_hello = Vec::new();
    let first = Frame::request(Kind::Usage, 1, 0, NO_DEADLINE);
    encode_frame(&mut no_hello, first, &()).expect("a frame");
    let mut unknown = no_hello.clone();
    unknown[4..6].copy_from_slice(&999_u16.to_le_bytes());
    let mut changed = wrong_body.clone();
    changed[HEADER_BYTES] ^= 1;
    let cases: [(&str, &[u8]); 9] = [
        // Less than a header, and the peer waits.
        ("magic", b"HELP"),
        (
            "magic",
            b"GET /metrics HTTP/1.1\r\nHost: pool\r\nAccept: */*\r\n\r\n",
        ),
        ("magic", &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3].repeat(20)),
        (
            "magic",
            b"\x80\x04\x95 cos\nsystem\n(S'true'\ntR. and more of such bytes",
        ),
        ("oversize", &oversize),
        ("body", &wrong_body),
        ("frame", &no_hello),
        ("kind", &unknown),
        ("crc", &changed),
    ];
    for (label, bytes) in cases {
        let before = refusals(&rig, label).await;
        let mut peer = Peer::connect(rig.client_addr).await;
        peer.write(bytes).await;
        let refused = peer.goodbye().await.expect("a goodbye");
        assert_eq!(refused.reason, RefusedReason::Frame, "{label}: {refused}");
        assert_eq!(refusals(&rig, label).await, before + 1.0, "{label}");
    }
    assert!(Client::connect(&rig, "a").await.exists(&["k"]).await[0].is_ok());
}

#[tokio::test]
async fn b52_garbage_after_the_hello_ends_that_connection_only() {
    let rig = Rig::start().await;
    let mut good = Client::connect(&rig, "a").await;
    let session = u32::try_from(good.0.welcome.as_ref().expect("welcome").session.0);
    let session = session.expect("a small number");
    let mut seed = 0x9e37_79b9_u64;
    for round in 0..40 {
        let mut bad = Client::connect(&rig, "a").await;
        // A whole frame of every kind with a body that fits nothing, or plain noise.
        let mut bytes = Vec::new();
        let kind = Kind::ALL[round % Kind::ALL.len()];
        let own = u32::try_from(bad.0.welcome.as_ref().expect("welcome").session.0);
        let frame = Frame::request(kind, 1, own.expect("a small number"), NO_DEADLINE);
        let body: Vec<u8> = (0..64)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .collect();
        encode_frame(&mut bytes, frame, &(u64::MAX, body.clone())).expect("a frame");
        bytes.extend(b"#$%!");
        bytes.extend(body);
        bad.0.write(&bytes).await;
        bad.0.goodbye().await;
        assert!(good.exists(&["k"]).await[0].is_ok(), "{kind:?}");
    }
    // A frame of another session is not taken for one of ours.
    let mut bad = Client::connect(&rig, "a").await;
    let mut bytes = Vec::new();
    let frame = Frame::request(Kind::Usage, 1, session, NO_DEADLINE);
    encode_frame(&mut bytes, frame, &()).expect("a frame");
    bad.0.write(&bytes).await;
    assert_eq!(
        bad.0.goodbye().await.expect("a goodbye").reason,
        RefusedReason::Frame
    );
    rig.check().await;
}

#[tokio::test]
async fn calls_of_another_purpose_are_not_offered() {
    let rig = Rig::start().await;
    let mut client = Client::connect(&rig, "a").await;
    let mounted: larder_wire::CallResult<larder_wire::agent::Mounted> = client
        .0
        .call(Kind::Mount, &crate::peer::mount("node-0", 1, 0))
        .await;
    let error = mounted.expect_err("not offered");
    assert_eq!(error.reason, larder_types::Reason::Unsupported);
    let mut agent = AgentPeer::connect(&rig, "node-0").await;
    let found: larder_wire::CallResult<larder_wire::master::Located> = agent
        .call(Kind::Get, &larder_wire::master::Get { keys: vec![] })
        .await;
    assert_eq!(
        found.expect_err("not offered").reason,
        larder_types::Reason::Unsupported
    );
    // Both go on.
    assert!(client.exists(&["k"]).await[0].is_ok());
}

#[tokio::test]
async fn connections_above_the_limit_are_told_so() {
    let rig = Rig::start_with(|config| config.max_connections = 2).await;
    let one = Client::connect(&rig, "a").await;
    let mut two = Client::connect(&rig, "a").await;
    let mut three = Peer::connect(rig.client_addr).await;
    let refused = three.say_hello(&hello("a", Purpose::Client)).await;
    assert_eq!(
        refused.expect_err("one too many").reason,
        RefusedReason::Busy
    );
    // Clients cannot keep another master out.
    let mut master = hello("a", Purpose::Master);
    let mut four = Peer::connect(rig.client_addr).await;
    let refused = four.say_hello(&master).await;
    assert_eq!(
        refused.expect_err("no master").reason,
        RefusedReason::Credential
    );
    master.credential = RootKey::new([0x5c; 32]).master_credential().to_vec();
    let mut five = Peer::connect(rig.client_addr).await;
    five.say_hello(&master).await.expect("let in");
    assert!(two.exists(&["k"]).await[0].is_ok());
    drop(one);
    drop(five);
    rig.until_metric("larder_wire_connections", &[("listener", "client")], 1.0)
        .await;
    Client::connect(&rig, "a").await;
}

#[tokio::test]
async fn files_that_are_not_right_keep_a_master_from_starting() {
    let chain = |error: &MasterError| larder_telemetry::error_chain(error);
    let folder = Folder::new();
    let config = prepare(&folder);
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&config.root_key_file, open).expect("mode");
    let error = larder_master::Master::bind(config.clone())
        .await
        .expect_err("readable by others");
    assert!(chain(&error).contains("chmod 600"), "{}", chain(&error));
    std::fs::write(&config.root_key_file, "5c").expect("written");
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&config.root_key_file, closed).expect("mode");
    let error = larder_master::Master::bind(config.clone())
        .await
        .expect_err("too short");
    assert!(
        chain(&error).contains("64 hexadecimal"),
        "{}",
        chain(&error)
    );

    let config = prepare(&folder);
    let typo = json!([{ "tenant": "a", "limit_byte": 5 }]);
    std::fs::write(&config.tenants_file, typo.to_string()).expect("written");
    let error = larder_master::Master::bind(config)
        .await
        .expect_err("unknown key");
    assert!(chain(&error).contains("limit_byte"), "{}", chain(&error));

    let mut config = prepare(&folder);
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    config.admin_addr = taken.local_addr().expect("bound").to_string();
    let error = larder_master::Master::bind(config)
        .await
        .expect_err("taken");
    assert!(chain(&error).contains("admin_addr"), "{}", chain(&error));

    let config = prepare(&folder);
    let oplog = config.state_dir.join("oplog");
    std::fs::create_dir_all(&oplog).expect("a folder");
    std::fs::write(oplog.join("replica"), "seven").expect("written");
    let master = larder_master::Master::bind(config).await.expect("bound");
    let error = master
        .serve(std::future::pending())
        .await
        .expect_err("damaged");
    assert!(
        chain(&error).contains("does not hold a replica's number"),
        "{}",
        chain(&error)
    );
}
