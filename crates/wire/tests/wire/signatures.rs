//! Capabilities, receipts and session tokens: genuine ones pass, all others do not.

use larder_types::{AgentName, Digest, Epoch, Incarnation, PoolTime, Version};
use larder_wire::{
    AgentKey, Capability, CapabilityError, KeyRing, Receipt, ReceiptError, RootKey, SessionSigner,
    SessionToken, SessionVerifier, SignedCapability, TokenError,
};
use proptest::prelude::*;

use super::samples::{
    agent_key, agent_name, capability, claims, extent, receipt, root, signed, version,
};

fn ring(key: AgentKey) -> KeyRing {
    let mut ring = KeyRing::default();
    ring.push(key);
    ring
}

/// Keys that are not the agent's, each different in one thing.
fn other_keys() -> Vec<AgentKey> {
    let (name, incarnation) = (agent_name(), Incarnation(0x1122_3344_5566_7788));
    let other_name = AgentName::new("pool-small-1").expect("a name");
    let mut keys = vec![
        root().agent_key(&other_name, incarnation, 3),
        root().agent_key(&name, Incarnation(1), 3),
        RootKey::new([0x5b; 32]).agent_key(&name, incarnation, 3),
    ];
    // The key of another rotation under this one's number.
    keys.push(AgentKey::new(
        *root().agent_key(&name, incarnation, 4).bytes(),
        3,
    ));
    keys
}

#[test]
fn a_capability_says_what_was_signed() {
    assert_eq!(signed().verify(&ring(agent_key())), Ok(capability()));
}

#[test]
fn a_capability_altered_at_any_byte_is_refused() {
    let ring = ring(agent_key());
    let genuine = postcard::to_stdvec(&signed()).expect("encodes");
    let mut decoded = 0;
    for at in 0..genuine.len() {
        for bit in 0..8 {
            let mut bytes = genuine.clone();
            bytes[at] ^= 1 << bit;
            let Ok(altered) = postcard::from_bytes::<SignedCapability>(&bytes) else {
                continue;
            };
            decoded += 1;
            let refused = altered.verify(&ring);
            assert_eq!(refused, Err(CapabilityError::Forged), "byte {at} bit {bit}");
        }
    }
    assert!(
        decoded > 7 * genuine.len(),
        "most changes decode, so that the signature decides"
    );
}

#[test]
fn other_keys_open_nothing() {
    for key in other_keys() {
        assert_eq!(
            signed().verify(&ring(key.clone())),
            Err(CapabilityError::Forged)
        );
        assert_eq!(receipt().verify(&key), Err(ReceiptError::Forged));
    }
    assert_eq!(
        signed().verify(&KeyRing::default()),
        Err(CapabilityError::Forged)
    );
}

#[test]
fn a_rotation_keeps_the_key_before_and_forgets_older_ones() {
    let key = |id| root().agent_key(&agent_name(), Incarnation(9), id);
    let signed = |id| SignedCapability::sign(&capability(), &key(id)).expect("signed");
    let mut ring = KeyRing::default();
    for id in 1..=3 {
        ring.push(key(id));
        assert_eq!(ring.newest().map(AgentKey::id), Some(id));
        assert!(signed(id).verify(&ring).is_ok());
    }
    assert!(signed(2).verify(&ring).is_ok());
    assert_eq!(signed(1).verify(&ring), Err(CapabilityError::Forged));
    assert_eq!(signed(4).verify(&ring), Err(CapabilityError::Forged));
    ring.push(key(3));
    assert!(
        signed(2).verify(&ring).is_ok(),
        "the same key again forgets nobody"
    );
}

#[test]
fn a_receipt_stands_for_exactly_what_it_names() {
    let genuine = receipt();
    assert_eq!(genuine.verify(&agent_key()), Ok(()));
    assert_eq!(
        (genuine.agent(), genuine.key_id()),
        (extent().slab.agent, 3)
    );
    let change: [fn(&mut Receipt); 9] = [
        |receipt| receipt.incarnation.0 ^= 1,
        |receipt| receipt.extent.slab.agent.0 += 1,
        |receipt| receipt.extent.slab.segment.0 += 1,
        |receipt| receipt.extent.slab.index += 1,
        |receipt| receipt.extent.slab.registration.0 += 1,
        |receipt| receipt.extent.offset_bytes += 256,
        |receipt| receipt.extent.length_bytes -= 1,
        |receipt| receipt.version.counter += 1,
        |receipt| receipt.digest = Digest(0),
    ];
    for (place, change) in change.iter().enumerate() {
        let mut altered = genuine.clone();
        change(&mut altered);
        assert_eq!(
            altered.verify(&agent_key()),
            Err(ReceiptError::Forged),
            "change {place}"
        );
    }
    let bytes = postcard::to_stdvec(&genuine).expect("encodes");
    let mut decoded = 0;
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        let Ok(altered) = postcard::from_bytes::<Receipt>(&altered) else {
            continue;
        };
        decoded += 1;
        assert_eq!(
            altered.verify(&agent_key()),
            Err(ReceiptError::Forged),
            "byte {at}"
        );
    }
    assert!(decoded > bytes.len() / 2);
}

#[test]
fn a_signature_of_one_use_is_none_of_another() {
    let key = agent_key();
    let body = b"the same bytes";
    for label in 0..=4 {
        let mac = key.sign(label, body);
        for other in 0..=4 {
            assert_eq!(key.verify(other, body, &mac), label == other);
        }
    }
    // The mac of a capability under a receipt, and the other way round.
    let capability = postcard::to_stdvec(&signed()).expect("encodes");
    let mut receipt_bytes = postcard::to_stdvec(&receipt()).expect("encodes");
    let mut capability_bytes = capability.clone();
    let (mac_at, other_at) = (receipt_bytes.len() - 16, capability.len() - 16);
    capability_bytes[other_at..].copy_from_slice(&receipt_bytes[mac_at..]);
    receipt_bytes[mac_at..].copy_from_slice(&capability[other_at..]);
    let forged: Receipt = postcard::from_bytes(&receipt_bytes).expect("decodes");
    assert_eq!(forged.verify(&key), Err(ReceiptError::Forged));
    let forged: SignedCapability = postcard::from_bytes(&capability_bytes).expect("decodes");
    assert_eq!(forged.verify(&ring(key)), Err(CapabilityError::Forged));
}

fn verifier(signer: &SessionSigner) -> SessionVerifier {
    SessionVerifier::new(signer.verify_key().expect("its key"))
}

#[test]
fn a_session_token_is_good_until_its_time() {
    let signer = SessionSigner::new(&root()).expect("a signer");
    let token = signer.sign(&claims()).expect("signed");
    let verifier = verifier(&signer);
    let end = claims().deadline;
    for now in [PoolTime(0), end] {
        assert_eq!(verifier.verify(&token, now), Ok(claims()));
    }
    assert_eq!(
        verifier.verify(&token, end.plus_ms(1)),
        Err(TokenError::Expired)
    );
    let again = SessionSigner::new(&root()).expect("a signer");
    assert_eq!(
        again.sign(&claims()).expect("signed"),
        token,
        "all masters sign alike"
    );
    assert!(!format!("{token:?}").contains(&format!("{:?}", token.as_bytes())));
}

#[test]
fn a_session_token_altered_or_of_another_pool_is_refused() {
    let signer = SessionSigner::new(&root()).expect("a signer");
    let verifier = verifier(&signer);
    let genuine = signer.sign(&claims()).expect("signed");
    for at in 0..genuine.as_bytes().len() {
        for bit in 0..8 {
            let mut bytes = genuine.as_bytes().to_vec();
            bytes[at] ^= 1 << bit;
            let refused = verifier.verify(&SessionToken::from_bytes(bytes), PoolTime(0));
            assert_eq!(refused, Err(TokenError::Forged), "byte {at} bit {bit}");
        }
    }
    for cut in 0..genuine.as_bytes().len() {
        let bytes = genuine.as_bytes()[..cut].to_vec();
        let refused = verifier.verify(&SessionToken::from_bytes(bytes), PoolTime(0));
        assert_eq!(refused, Err(TokenError::Forged), "cut at {cut}");
    }
    let other = SessionSigner::new(&RootKey::new([1; 32])).expect("a signer");
    let foreign = other.sign(&claims()).expect("signed");
    assert_eq!(
        verifier.verify(&foreign, PoolTime(0)),
        Err(TokenError::Forged)
    );
}

#[test]
fn secrets_do_not_show() {
    let text = format!("{:?} {:?}", root(), agent_key());
    assert!(!text.contains("90") && !text.contains("5a"), "{text}");
}

fn any_capability() -> impl Strategy<Value = Capability> {
    let numbers = prop::array::uniform8(any::<u64>());
    (
        numbers,
        any::<[u16; 3]>(),
        prop::collection::vec(any::<u8>(), 0..4096),
    )
        .prop_map(|(n, [index, part, parts], key)| {
            let mut capability = Capability {
                part,
                parts,
                key,
                ..capability()
            };
            capability.incarnation = Incarnation(n[0]);
            capability.extent.slab.index = index;
            capability.extent.slab.registration.0 = n[1];
            (
                capability.extent.offset_bytes,
                capability.extent.length_bytes,
            ) = (n[2], n[3]);
            let epoch = Epoch {
                generation: n[4],
                term: n[5],
            };
            capability.version = Version {
                epoch,
                counter: n[6],
            };
            (capability.epoch, capability.deadline) = (epoch, PoolTime(n[7]));
            capability
        })
}

proptest! {
    #[test]
    fn any_capability_survives_the_wire(capability in any_capability()) {
        let signed = SignedCapability::sign(&capability, &agent_key()).expect("signed");
        let bytes = postcard::to_stdvec(&signed).expect("encodes");
        let back: SignedCapability = postcard::from_bytes(&bytes).expect("decodes");
        prop_assert_eq!(back.verify(&ring(agent_key())), Ok(capability));
    }

    #[test]
    fn receipts_of_different_facts_have_different_signatures(a in any::<u64>(), b in any::<u64>()) {
        let sign = |digest| {
            Receipt::sign(Incarnation(1), extent(), version(), Digest(digest), &agent_key())
        };
        let (one, mut other) = (sign(a), sign(b));
        other.digest = one.digest;
        prop_assert_eq!(other.verify(&agent_key()).is_ok(), a == b);
    }
}
