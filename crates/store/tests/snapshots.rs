//! Snapshots: the same whatever the steps, and whole or refused. That a state goes on from one as
//! before, whatever it holds, is checked by every other suite: see `World::restore_standby`.

use larder_store::snapshot::{Builder, Part, Walk};
use larder_store::{Op, Request, State, TenantPolicy};
use larder_types::Key;

use crate::world::{SLAB, World, restored, tenant};

/// Objects of three tenants, one of which is to go, and extents that are being released.
fn state() -> State {
    let mut world = World::ready(3, 4, &["red", "green", "blue"]);
    for tenant in ["red", "green", "blue"] {
        for number in 0..6 {
            let start = World::start(tenant, &format!("k{number}"), SLAB / 8);
            world.put(start).expect("room");
        }
    }
    world
        .put(World::start("red", "pieces", 3 * SLAB))
        .expect("room");
    // Its agent does not say what it has erased.
    world.agents[1].up = false;
    for number in 0..6 {
        world.ask(World::remove("green", &format!("k{number}")));
    }
    let tenant = tenant("blue");
    world.ask(Request::TenantDelete { tenant });
    world.propose(vec![Op::PoolVersion { version: 2 }]);
    while world.commit() {}
    world.state.clone()
}

fn parts(state: &State) -> Vec<Part> {
    Walk::default().next(state, usize::MAX)
}

fn built(parts: impl IntoIterator<Item = Part>) -> Result<State, String> {
    let mut builder = Builder::default();
    for part in parts {
        builder.take(part).map_err(|error| error.to_string())?;
    }
    builder.finish().map_err(|error| error.to_string())
}

#[test]
fn any_steps_give_the_same_parts() {
    let state = state();
    let whole = parts(&state);
    for kind in ["Tenant", "Agent", "Segment", "Slab", "Releasing", "Object"] {
        let of_kind = |part: &&Part| format!("{part:?}").starts_with(kind);
        assert!(whole.iter().any(|part| of_kind(&part)), "no {kind}");
    }
    for parts_max in [1, 2, 3, 5, 64] {
        let mut walk = Walk::default();
        let steps = std::iter::from_fn(|| Some(walk.next(&state, parts_max)));
        let stepped: Vec<Part> = steps
            .take_while(|step| !step.is_empty())
            .flatten()
            .collect();
        assert_eq!(stepped, whole, "{parts_max} at a time");
        assert!(restored(&state, parts_max).expect("whole") == state);
    }
}

#[test]
fn a_snapshot_with_a_part_missing_or_twice_is_refused() {
    let state = state();
    let whole = parts(&state);
    assert!(built(whole.clone()).is_ok());
    for at in 0..whole.len() {
        let mut less = whole.clone();
        let gone = less.remove(at);
        assert!(built(less).is_err(), "without {gone:?}");
        let mut more = whole.clone();
        more.insert(at, gone);
        assert!(built(more).is_err(), "twice {:?}", whole[at]);
    }
    assert!(built([]).is_err(), "nothing at all");
}

#[test]
fn a_snapshot_with_a_changed_part_is_refused() {
    let state = state();
    for at in 0..parts(&state).len() {
        let mut changed = parts(&state);
        match &mut changed[at] {
            Part::Head { generation, .. } => *generation += 1,
            Part::Quota { policy, .. } => policy.guaranteed_bytes += 1,
            Part::Tenant { policy, .. } => *policy = other(policy),
            Part::Agent { draining, .. } => *draining = !*draining,
            Part::Segment { segment, .. } => segment.numa += 1,
            Part::Slab { slab, .. } => slab.registration.0 += 1,
            Part::Releasing { releasing, .. } => releasing.version.counter += 1,
            Part::Task { task, .. } => task.version.counter += 1,
            Part::Object { key, .. } => {
                *key = Key::new([key.as_bytes(), b"x"].concat()).expect("short")
            }
            Part::Life { version, .. } => *version += 1,
            Part::Doomed { version, .. } => version.counter += 1,
            Part::End { objects, .. } => *objects += 1,
        }
        assert!(built(changed).is_err(), "part {at}");
    }
}

fn other(policy: &TenantPolicy) -> TenantPolicy {
    TenantPolicy {
        guaranteed_bytes: policy.guaranteed_bytes + 1,
        ..policy.clone()
    }
}
