//! The store against a naive reference: a map from tenant and key to what was put.

use std::collections::BTreeMap;

use larder_store::{Reply, Request, TenantPolicy};
use larder_types::{Reason, Version};
use proptest::prelude::*;

use crate::world::{World, digest_of, key, tenant};

const TENANTS: [&str; 2] = ["red", "green"];

#[derive(Clone, Debug)]
enum Act {
    Put {
        tenant: usize,
        key: String,
        size_bytes: u64,
        replicas: u8,
    },
    Get {
        tenant: usize,
        key: String,
    },
    Exists {
        tenant: usize,
        key: String,
    },
    Remove {
        tenant: usize,
        key: String,
    },
    List {
        tenant: usize,
        prefix: String,
    },
    FailOver,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let of = || 0..TENANTS.len();
    let name = || "[ab]{1,3}";
    let act = prop_oneof![
        6 => (of(), name(), 1..80_000u64, 1..4u8).prop_map(|(tenant, key, size_bytes, replicas)| {
            Act::Put { tenant, key, size_bytes, replicas }
        }),
        3 => (of(), name()).prop_map(|(tenant, key)| Act::Get { tenant, key }),
        2 => (of(), name()).prop_map(|(tenant, key)| Act::Exists { tenant, key }),
        3 => (of(), name()).prop_map(|(tenant, key)| Act::Remove { tenant, key }),
        2 => (of(), "[ab]{0,2}").prop_map(|(tenant, prefix)| Act::List { tenant, prefix }),
        1 => Just(Act::FailOver),
    ];
    prop::collection::vec(act, 1..120)
}

#[derive(Default)]
struct Model(BTreeMap<(usize, String), (Version, u64)>);

impl Model {
    fn check_get(&self, world: &mut World, of: usize, key: String) {
        let answer = world.answer(World::get(TENANTS[of], &key));
        let Some((held, size)) = self.0.get(&(of, key)) else {
            assert_eq!(answer.expect_err("none").reason, Reason::NotFound);
            return;
        };
        let Ok(Reply::Located {
            version,
            size_bytes,
            digest,
            replicas,
        }) = answer
        else {
            panic!("not located: {answer:?}")
        };
        assert_eq!(
            (version, size_bytes, digest),
            (*held, *size, digest_of(*held))
        );
        for extent in replicas.iter().flatten() {
            let agent = world.agent_mut(extent.slab.agent).expect("known");
            assert!(agent.reads(extent, version), "{extent:?}");
        }
    }

    fn check(&mut self, world: &mut World, act: Act) {
        match act {
            Act::Put {
                tenant: of,
                key,
                size_bytes,
                replicas,
            } => {
                let mut start = World::start(TENANTS[of], &key, size_bytes);
                if let Request::PutStart {
                    replicas: asked, ..
                } = &mut start
                {
                    *asked = replicas;
                }
                let done = world.put(start);
                if self.0.contains_key(&(of, key.clone())) {
                    assert_eq!(done.expect_err("exists").reason, Reason::AlreadyExists);
                } else {
                    let (version, _) = done.expect("there is room");
                    self.0.insert((of, key), (version, size_bytes));
                }
            }
            Act::Get { tenant: of, key } => self.check_get(world, of, key),
            Act::Exists { tenant: of, key } => {
                let exists = world.exists(TENANTS[of], &key);
                assert_eq!(exists, self.0.contains_key(&(of, key)));
            }
            Act::Remove { tenant: of, key } => {
                let answer = world.answer(World::remove(TENANTS[of], &key));
                match self.0.remove(&(of, key)) {
                    None => assert_eq!(answer.expect_err("none").reason, Reason::NotFound),
                    Some(_) => assert_eq!(answer, Ok(Reply::Done)),
                }
            }
            Act::List { tenant: of, prefix } => {
                let wanted: Vec<String> = self
                    .0
                    .keys()
                    .filter(|(other, key)| *other == of && key.starts_with(&prefix))
                    .map(|(_, key)| key.clone())
                    .collect();
                assert_eq!(world.keys(TENANTS[of], &prefix), wanted);
            }
            Act::FailOver => {
                world.fail_over(0);
                world.settle();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn answers_as_a_plain_map_does(acts in acts()) {
        let mut world = World::ready(3, 16, &TENANTS);
        let mut model = Model::default();
        for act in acts {
            model.check(&mut world, act);
        }
        // What is charged is what is there.
        for (of, name) in TENANTS.iter().enumerate() {
            let held = world.state.tenant(&tenant(name)).expect("known").objects().len();
            prop_assert_eq!(held, model.0.keys().filter(|(other, _)| *other == of).count());
        }
        let keys: Vec<(usize, String)> = model.0.keys().cloned().collect();
        for (of, name) in keys {
            prop_assert_eq!(world.answer(World::remove(TENANTS[of], &name)), Ok(Reply::Done));
        }
        prop_assert_eq!((world.state.used_bytes(), world.state.releasing_bytes()), (0, 0));
    }
}

/// Any byte is a key's, and the order is that of bytes.
#[test]
fn keys_are_bytes() {
    let mut world = World::ready(1, 2, &[]);
    world.set_tenant("red", TenantPolicy::default());
    let names: [&[u8]; 4] = [b"\0", b"a/\xff", b"a/\xff\0", b"\xff"];
    for name in names {
        let mut start = World::start("red", "x", 10);
        if let Request::PutStart { key, .. } = &mut start {
            *key = larder_types::Key::new(name).expect("short");
        }
        world.put(start).expect("there is room");
    }
    let listed = world.keys("red", "");
    assert_eq!(listed, ["\\x00", "a/\\xff", "a/\\xff\\x00", "\\xff"]);
    assert_eq!(world.keys("red", "a/"), ["a/\\xff", "a/\\xff\\x00"]);
    let after = Some(key("b"));
    let request = Request::List {
        tenant: tenant("red"),
        prefix: b"a".to_vec(),
        after,
        limit: 9,
    };
    let nothing = Reply::Listed {
        entries: vec![],
        more: false,
    };
    assert_eq!(world.answer(request), Ok(nothing));
}
