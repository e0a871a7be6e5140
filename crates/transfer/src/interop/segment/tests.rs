//! Segments as stock engines write them, with holes, and beyond the bounds.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn buffer(address: u64, bytes: u64) -> BufferDesc {
    BufferDesc {
        name: "127.0.0.1:15001".into(),
        range: AddressRange { address, bytes },
    }
}

fn segment() -> SegmentDesc {
    SegmentDesc {
        name: "127.0.0.1:15001".into(),
        data_host: "127.0.0.1".into(),
        data_port: Some(16002),
        dialect: Dialect::V2,
        buffers: vec![buffer(0x7f00_0000_0000, 1 << 20), buffer(u64::MAX - 1, 1)],
    }
}

fn decode(json: &serde_json::Value) -> Result<SegmentDesc, SegmentError> {
    SegmentDesc::decode(json.to_string().as_bytes())
}

#[test]
fn the_json_is_that_of_stock_engines() {
    let json = segment().encode().expect("text");
    let golden = "{\"buffers\":[{\"addr\":139637976727552,\"length\":1048576,\
        \"name\":\"127.0.0.1:15001\"},{\"addr\":18446744073709551614,\"length\":1,\
        \"name\":\"127.0.0.1:15001\"}],\"name\":\"127.0.0.1:15001\",\"protocol\":\"tcp\",\
        \"rdma_server_name\":\"\",\"tcp_data_host\":\"127.0.0.1\",\
        \"tcp_data_port\":16002,\"tcp_proto_version\":2,\"timestamp\":\"\"}\n";
    assert_eq!(String::from_utf8_lossy(&json), golden);
    assert_eq!(SegmentDesc::decode(&json).expect("ours"), segment());
}

/// What release 0.3.13.post1 answered, byte for byte.
#[test]
fn a_segment_of_a_stock_engine_is_understood() {
    let json = b"{\"buffers\":[{\"addr\":139834587865088,\"length\":1048576,\
        \"name\":\"127.0.0.1:16041\"}],\"name\":\"127.0.0.1:16041\",\"protocol\":\"tcp\",\
        \"rdma_server_name\":\"\",\"tcp_data_host\":\"127.0.0.1\",\"tcp_data_port\":15884,\
        \"tcp_proto_version\":2,\"timestamp\":\"2026-12-01 02:31:55.235634\"}\n";
    let segment = SegmentDesc::decode(json).expect("a segment");
    let expected = SegmentDesc {
        name: "127.0.0.1:16041".into(),
        data_host: "127.0.0.1".into(),
        data_port: Some(15884),
        dialect: Dialect::V2,
        buffers: vec![BufferDesc {
            name: "127.0.0.1:16041".into(),
            range: AddressRange {
                address: 139_834_587_865_088,
                bytes: 1 << 20,
            },
        }],
    };
    assert_eq!(segment, expected);
}

#[test]
fn what_is_missing_or_unknown_is_no_reason() {
    let sparse = decode(&json!({"protocol": "tcp"})).expect("enough");
    assert_eq!(sparse.data_port, None);
    assert_eq!(sparse.dialect, Dialect::V1);
    assert!(sparse.buffers.is_empty() && sparse.name.is_empty());
    let rich = json!({
        "protocol": ["rdma", "tcp"], "devices": [{"lid": 1}], "timestamp": 5, "name": null,
        "priority_matrix": {"a": [["b"], []]}, "tcp_data_port": 0, "tcp_proto_version": 3,
        "buffers": [{"name": "x"}, {"addr": 1, "length": 2, "rkey": [3]}, {"offset": 7}],
    });
    let rich = decode(&rich).expect("enough");
    assert_eq!((rich.data_port, rich.dialect), (None, Dialect::V2));
    assert_eq!(rich.buffers.len(), 1);
    assert!(rich.holds(&AddressRange {
        address: 2,
        bytes: 1
    }));
    assert!(decode(&json!({"protocol": "rdma,tcp"})).is_ok());
}

#[test]
fn nothing_is_told_apart_from_something_else() {
    for nothing in [json!(null), json!({}), json!({"name": "a"})] {
        assert!(
            matches!(decode(&nothing), Err(SegmentError::Missing)),
            "{nothing}"
        );
    }
    let rdma = decode(&json!({"protocol": "rdma"}));
    assert!(matches!(rdma, Err(SegmentError::NotTcp { found }) if found == "rdma"));
}

#[test]
fn what_cannot_be_is_refused() {
    for bad in [
        json!({"protocol": "tcp", "tcp_data_port": 65536}),
        json!({"protocol": "tcp", "name": "x".repeat(1025)}),
        json!({"protocol": "tcp", "tcp_data_host": "x".repeat(1025)}),
        json!({"protocol": "tcp", "buffers": [{"addr": u64::MAX, "length": 1}]}),
        json!({"protocol": "tcp", "buffers": [{"addr": 1, "length": 1, "name": "x".repeat(1025)}]}),
    ] {
        assert!(matches!(decode(&bad), Err(SegmentError::Field(_))), "{bad}");
    }
    for bad in [
        json!("tcp"),
        json!({"protocol": 1}),
        json!({"protocol": "tcp", "tcp_data_port": -1}),
        json!({"protocol": "tcp", "tcp_data_port": 1.5}),
        json!({"protocol": "tcp", "buffers": {}}),
        json!({"protocol": "tcp", "buffers": [{"addr": -1, "length": 1}]}),
        json!({"protocol": "tcp", "buffers": [{"addr": "1", "length": 1}]}),
    ] {
        assert!(matches!(decode(&bad), Err(SegmentError::Json(_))), "{bad}");
    }
    let many = vec![json!({}); BUFFERS_MAX + 1];
    let many = decode(&json!({"protocol": "tcp", "buffers": many}));
    assert!(matches!(many, Err(SegmentError::TooMany { .. })));
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    assert!(matches!(
        SegmentDesc::decode(deep.as_bytes()),
        Err(SegmentError::Json(_))
    ));
}

proptest! {
    #[test]
    fn segments_come_back(
        name in "\\PC{0,40}",
        data_host in "[a-z0-9.:]{0,40}",
        data_port in prop::option::of(1_u16..),
        v2 in any::<bool>(),
        buffers in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
    ) {
        let buffers = buffers.into_iter().map(|(address, bytes)| BufferDesc {
            name: name.clone(),
            range: AddressRange { address, bytes: bytes.min(u64::MAX - address) },
        });
        let segment = SegmentDesc {
            buffers: buffers.collect(),
            name,
            data_host,
            data_port,
            dialect: if v2 { Dialect::V2 } else { Dialect::V1 },
        };
        let json = segment.encode().expect("text");
        prop_assert_eq!(SegmentDesc::decode(&json).expect("ours"), segment);
        for end in 0..json.len() - 1 {
            prop_assert!(SegmentDesc::decode(&json[..end]).is_err());
        }
    }
}
