//! The store against a naive reference: a map from tenant and key to what was put.

use std::collections::BTreeMap;

use larder_store::{PutMode, Reply, Request, TenantPolicy};
use larder_types::{Pin, PoolTime, Reason, Version};
use proptest::prelude::*;

use crate::world::{SLAB, World, digest_of, key, tenant};

const TENANTS: [&str; 2] = ["red", "green"];

#[derive(Clone, Debug)]
enum Act {
    Put {
        tenant: usize,
        key: String,
        size_bytes: u64,
        replicas: u8,
        upsert: bool,
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
        if_unleased: bool,
    },
    RemovePrefix {
        tenant: usize,
        prefix: String,
    },
    Pin {
        tenant: usize,
        key: String,
        pin: Pin,
    },
    List {
        tenant: usize,
        prefix: String,
    },
    Pass(u64),
    FailOver,
    /// The pool begins anew in the next generation.
    BeginAnew,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let of = || 0..TENANTS.len();
    let name = || "[ab]{1,3}";
    let pins = prop_oneof![
        Just(Pin::None),
        Just(Pin::Hard),
        (1..50_000u64).prop_map(|ttl_ms| Pin::Soft { ttl_ms }),
    ];
    let size = prop_oneof![
        8 => 1..80_000u64,
        // More than a slab: the pool has room for a few.
        1 => SLAB..2 * SLAB + 80_000,
    ];
    let act = prop_oneof![
        6 => (of(), name(), size, 1..4u8, any::<bool>()).prop_map(
            |(tenant, key, size_bytes, replicas, upsert)| {
                Act::Put { tenant, key, size_bytes, replicas, upsert }
            },
        ),
        3 => (of(), name()).prop_map(|(tenant, key)| Act::Get { tenant, key }),
        2 => (of(), name()).prop_map(|(tenant, key)| Act::Exists { tenant, key }),
        3 => (of(), name(), any::<bool>()).prop_map(|(tenant, key, if_unleased)| {
            Act::Remove { tenant, key, if_unleased }
        }),
        1 => (of(), "[ab]{1,2}").prop_map(|(tenant, prefix)| {
            Act::RemovePrefix { tenant, prefix }
        }),
        2 => (of(), name(), pins).prop_map(|(tenant, key, pin)| Act::Pin { tenant, key, pin }),
        1 => (1..12_000u64).prop_map(Act::Pass),
        2 => (of(), "[ab]{0,2}").prop_map(|(tenant, prefix)| Act::List { tenant, prefix }),
        1 => Just(Act::FailOver),
        1 => Just(Act::BeginAnew),
    ];
    prop::collection::vec(act, 1..120)
}

/// What a plain map knows of an object.
struct Known {
    version: Version,
    size_bytes: u64,
    pin: Pin,
    /// Until when its last get, or a get of a former leader, protects it.
    leased_until: PoolTime,
}

#[derive(Default)]
struct Model(BTreeMap<(usize, String), Known>);

const LEASE_MS: u64 = 10_000;
/// Leases may last a little longer.
const LEASE_MORE_MS: u64 = 64;

impl Model {
    fn check_get(&mut self, world: &mut World, of: usize, key: String) {
        let answer = world.answer(World::get(TENANTS[of], &key));
        let now = world.now;
        let known = self.0.get_mut(&(of, key)).map(|known| {
            known.leased_until = known.leased_until.max(now.plus_ms(LEASE_MS));
            (known.version, known.size_bytes)
        });
        let Some((held, size)) = known else {
            assert_eq!(answer.expect_err("none").reason, Reason::NotFound);
            return;
        };
        let Ok(Reply::Located {
            version,
            size_bytes,
            digest,
            replicas,
            ..
        }) = answer
        else {
            panic!("not located: {answer:?}")
        };
        assert_eq!((version, size_bytes, digest), (held, size, digest_of(held)));
        for extent in replicas.iter().flatten() {
            let agent = world.agent_mut(extent.slab.agent).expect("known");
            assert!(agent.reads(extent, version), "{extent:?}");
        }
    }

    fn check_put(
        &mut self,
        world: &mut World,
        (of, key): (usize, String),
        (size_bytes, replicas): (u64, u8),
        upsert: bool,
    ) {
        let mut start = World::start(TENANTS[of], &key, size_bytes);
        if let Request::PutStart {
            replicas: asked,
            mode,
            ..
        } = &mut start
        {
            *asked = replicas;
            if upsert {
                *mode = PutMode::Upsert { if_unleased: false };
            }
        }
        let done = world.put(start);
        let former = self.0.get(&(of, key.clone())).map(|known| known.pin);
        if former.is_some() && !upsert {
            assert_eq!(done.expect_err("exists").reason, Reason::AlreadyExists);
        } else {
            let (version, _) = done.expect("there is room");
            let known = Known {
                version,
                size_bytes,
                pin: former.unwrap_or_default(),
                leased_until: PoolTime(0),
            };
            self.0.insert((of, key), known);
        }
    }

    fn check_remove(&mut self, world: &mut World, name: (usize, String), if_unleased: bool) {
        let mut request = World::remove(TENANTS[name.0], &name.1);
        if let Request::Remove {
            if_unleased: own, ..
        } = &mut request
        {
            *own = if_unleased;
        }
        let now = world.now;
        let answer = world.answer(request);
        let Some(known) = self.0.get(&name) else {
            assert_eq!(answer.expect_err("none").reason, Reason::NotFound);
            return;
        };
        match answer {
            Err(refusal) => {
                assert_eq!(refusal.reason, Reason::LeaseHeld);
                assert!(if_unleased && now < known.leased_until.plus_ms(LEASE_MORE_MS));
            }
            Ok(reply) => {
                assert_eq!(reply, Reply::Done);
                assert!(!if_unleased || now >= known.leased_until);
                self.0.remove(&name);
            }
        }
    }

    fn begin_anew(&mut self, world: &mut World) {
        world.begin_anew();
        self.0.clear();
        world.settle();
        for name in TENANTS {
            world.set_tenant(name, TenantPolicy::default());
        }
    }

    fn check(&mut self, world: &mut World, act: Act) {
        match act {
            Act::Put {
                tenant: of,
                key,
                size_bytes,
                replicas,
                upsert,
            } => self.check_put(world, (of, key), (size_bytes, replicas), upsert),
            Act::Pin {
                tenant: of,
                key,
                pin,
            } => {
                let answer = world.answer(World::pin(TENANTS[of], &key, pin));
                match self.0.get_mut(&(of, key)) {
                    None => assert_eq!(answer.expect_err("none").reason, Reason::NotFound),
                    Some(known) => {
                        assert_eq!(answer, Ok(Reply::Done));
                        known.pin = pin;
                    }
                }
            }
            Act::RemovePrefix { tenant: of, prefix } => {
                let before = self.0.len();
                self.0
                    .retain(|(other, key), _| *other != of || !key.starts_with(&prefix));
                let gone = (before - self.0.len()) as u64;
                assert_eq!(world.remove_prefix(TENANTS[of], &prefix, false), (gone, 0));
            }
            Act::Remove {
                tenant: of,
                key,
                if_unleased,
            } => self.check_remove(world, (of, key), if_unleased),
            Act::Pass(ms) => {
                world.pass(ms);
                world.settle();
            }
            Act::Get { tenant: of, key } => self.check_get(world, of, key),
            Act::Exists { tenant: of, key } => {
                let exists = world.exists(TENANTS[of], &key);
                assert_eq!(exists, self.0.contains_key(&(of, key)));
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
                let until = world.now.plus_ms(LEASE_MS);
                self.0
                    .values_mut()
                    .for_each(|known| known.leased_until = until);
                world.settle();
            }
            Act::BeginAnew => self.begin_anew(world),
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
        let mut world = World::ready(3, 160, &TENANTS);
        let mut model = Model::default();
        for act in acts {
            model.check(&mut world, act);
        }
        // What is charged is what is there.
        for (of, name) in TENANTS.iter().enumerate() {
            let held = world.state.tenant(&tenant(name)).expect("known").objects().len();
            prop_assert_eq!(held, model.0.keys().filter(|(other, _)| *other == of).count());
            let keys: Vec<String> = model.0.keys()
                .filter(|(other, _)| *other == of)
                .map(|(_, key)| key.clone())
                .collect();
            for key in keys {
                let known = &model.0[&(of, key.clone())];
                let (version, size_bytes, pin) = (known.version, known.size_bytes, known.pin);
                let stat = world.stat(name, &key);
                prop_assert_eq!((stat.version, stat.size_bytes), (version, size_bytes));
                // What an upsert carries over has less time left, or none.
                match (pin, stat.attributes.pin) {
                    (Pin::Soft { ttl_ms }, Pin::Soft { ttl_ms: left }) => {
                        prop_assert!(left <= ttl_ms);
                    }
                    (Pin::Soft { .. }, Pin::None) => {}
                    (known, said) => prop_assert_eq!(known, said),
                }
            }
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
