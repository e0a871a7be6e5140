//! The core on a made-up fabric: slices that take their time, break, are refused, or never end.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proptest::prelude::*;

use super::super::bucket::Bucket;
use super::super::buffers::{Access, BufferSpec, Described, Known, Refusal};
use super::super::class::Class;
use super::super::queue::QueueLimits;
use super::super::rails::Rails;
use super::super::{Failure, Outcome};
use super::*;

const LIMITS: CoreLimits = CoreLimits {
    buffers: 1_000,
    peer_buffers: 1_000,
    requests: 1_000,
    transfers: 1_000,
    queue: QueueLimits {
        entries: 1_000,
        bytes: 1 << 40,
        tenant_entries: 1_000,
    },
};
const LATE_NS: u64 = 1 << 50;
const MIB: u64 = 1 << 20;
const FAR: u64 = 1 << 40;

fn qos(deadline_ns: u64) -> Qos {
    Qos {
        class: Class::Foreground,
        tenant: 1,
        deadline_ns,
    }
}

/// What the fabric does with a slice.
type Fate = Box<dyn FnMut(&Job) -> Option<(u64, SliceEnd)>>;

/// Plays the part of transports: each slice ends after its time, or never.
struct Fabric {
    core: Core,
    now_ns: u64,
    /// By when they end.
    flying: BTreeSet<(u64, SliceKey)>,
    jobs: BTreeMap<SliceKey, (Job, Option<SliceEnd>)>,
    fate: Fate,
    /// The time, for fates that go by it.
    clock: Rc<Cell<u64>>,
    ended: BTreeMap<RequestKey, Outcome>,
    released: Vec<super::super::buffers::BufferKey>,
    sent: Vec<Job>,
}

impl Fabric {
    fn new(fate: impl FnMut(&Job) -> Option<(u64, SliceEnd)> + 'static) -> Self {
        let mut core = Core::new(LIMITS);
        let spec = BufferSpec {
            start: MIB,
            bytes: 256 * MIB,
            regions: Vec::new(),
            access: Access::default(),
        };
        core.buffers.register(spec).expect("free");
        Self {
            core,
            now_ns: 0,
            flying: BTreeSet::new(),
            jobs: BTreeMap::new(),
            fate: Box::new(fate),
            clock: Rc::default(),
            ended: BTreeMap::new(),
            released: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// A peer with so many rails and one large buffer.
    fn peer(&mut self, count: usize) -> PeerKey {
        let mut rails = Rails::default();
        for _ in 0..count {
            rails.add(1e9, 20_000);
        }
        let peer = self.core.open(rails);
        self.describe(peer, 1);
        peer
    }

    fn describe(&mut self, peer: PeerKey, epoch: u64) {
        let added = vec![Described {
            registration: 7,
            epoch,
            start: FAR,
            bytes: 256 * MIB,
            regions: Vec::new(),
            access: Access::default(),
        }];
        let changes = Changes {
            is_whole: true,
            removed: Vec::new(),
            added,
            known: Known::default(),
            has_more: false,
        };
        self.core.described(peer, changes).expect("sound");
    }

    fn write(&mut self, peer: PeerKey, bytes: u64, deadline_ns: u64) -> RequestKey {
        let range = Range {
            local_address: MIB,
            remote_address: FAR,
            bytes,
        };
        let done = self.core.submit(
            peer,
            Direction::Write,
            &[range],
            qos(deadline_ns),
            self.now_ns,
        );
        let request = done.expect("taken");
        self.act();
        request
    }

    /// Does what the core says.
    fn act(&mut self) {
        loop {
            let actions: Vec<Action> = self.core.actions().collect();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Send(slice, job) => {
                        self.sent.push(job);
                        self.clock.set(self.now_ns);
                        let fate = (self.fate)(&job);
                        if let Some((after_ns, _)) = fate {
                            self.flying.insert((self.now_ns + after_ns, slice));
                        }
                        self.jobs.insert(slice, (job, fate.map(|fate| fate.1)));
                    }
                    Action::Stop(slice) => {
                        // It ends a moment later, and not before.
                        self.flying.retain(|(_, flying)| *flying != slice);
                        if let Some((_, end)) = self.jobs.get_mut(&slice) {
                            *end = Some(SliceEnd::Stopped);
                            self.flying.insert((self.now_ns + 1_000, slice));
                        }
                    }
                    Action::Ended(request, outcome) => {
                        assert!(self.ended.insert(request, outcome).is_none(), "once");
                    }
                    Action::Released(buffer) => self.released.push(buffer),
                }
            }
        }
    }

    /// Goes on to what happens next; false: nothing does.
    fn step(&mut self) -> bool {
        let arrives = self.flying.first().copied();
        let wakes_ns = self.core.wakes_at();
        match (arrives, wakes_ns) {
            (Some((at_ns, slice)), wakes_ns) if wakes_ns.is_none_or(|wakes| at_ns <= wakes) => {
                self.flying.remove(&(at_ns, slice));
                self.now_ns = self.now_ns.max(at_ns);
                let (_, end) = self.jobs.remove(&slice).expect("under way");
                self.core
                    .ended(slice, end.expect("it has a fate"), self.now_ns);
            }
            (_, Some(wakes_ns)) => {
                self.now_ns = self.now_ns.max(wakes_ns);
                self.core.tick(self.now_ns);
            }
            (_, None) => return false,
        }
        self.act();
        true
    }

    fn until_ended(&mut self, request: RequestKey) -> Outcome {
        for _ in 0..1_000_000 {
            if let Some(outcome) = self.ended.get(&request) {
                return outcome.clone();
            }
            assert!(self.step(), "nothing happens any more");
        }
        panic!("it never ends");
    }
}

fn takes(job: &Job) -> u64 {
    20_000 + job.bytes
}

#[test]
fn a_large_request_is_cut_and_goes_over_all_rails() {
    let mut fabric = Fabric::new(|job| Some((takes(job), SliceEnd::Done)));
    let peer = fabric.peer(4);
    let request = fabric.write(peer, 64 * MIB, LATE_NS);
    let outcome = fabric.until_ended(request);
    assert_eq!(outcome.transfers, [Ok(())]);
    assert_eq!(
        fabric.sent.iter().map(|job| job.bytes).sum::<u64>(),
        64 * MIB
    );
    let rails: BTreeSet<usize> = fabric.sent.iter().map(|job| job.rail).collect();
    assert_eq!(rails.len(), 4);
    let timeline = outcome.timeline;
    assert_eq!(
        (timeline.asked_ns, timeline.sent_ns, timeline.retries),
        (0, Some(0), 0)
    );
    assert_eq!(timeline.slices as usize, fabric.sent.len());
    assert!(timeline.ended_ns > 0);
}

#[test]
fn what_a_rail_fails_goes_over_another_and_each_byte_counts_once() {
    let mut fabric = Fabric::new(|job| match job.rail {
        0 => Some((1_000, SliceEnd::RailFailed)),
        _ => Some((takes(job), SliceEnd::Done)),
    });
    let peer = fabric.peer(2);
    let request = fabric.write(peer, 16 * MIB, LATE_NS);
    let outcome = fabric.until_ended(request);
    assert_eq!(outcome.transfers, [Ok(())]);
    assert!(outcome.timeline.retries > 0);
    let done = fabric.sent.iter().filter(|job| job.rail == 1);
    assert_eq!(done.map(|job| job.bytes).sum::<u64>(), 16 * MIB);
}

#[test]
fn where_every_rail_fails_the_request_fails_after_a_few_tries() {
    let mut fabric = Fabric::new(|_| Some((1_000, SliceEnd::RailFailed)));
    let peer = fabric.peer(2);
    let request = fabric.write(peer, 4_096, LATE_NS);
    let outcome = fabric.until_ended(request);
    assert_eq!(
        outcome.transfers,
        [Err(Failure::RailsFailed { tries: TRIES_MAX })]
    );
    assert_eq!(fabric.sent.len(), TRIES_MAX as usize);
}

#[test]
fn a_refusal_is_told_and_not_tried_again() {
    let refusal = Refusal::StaleEpoch;
    let mut fabric = Fabric::new(move |_| Some((1_000, SliceEnd::Refused(refusal))));
    let peer = fabric.peer(2);
    let request = fabric.write(peer, 4_096, LATE_NS);
    let outcome = fabric.until_ended(request);
    assert_eq!(outcome.transfers, [Err(Failure::Refused(refusal))]);
    assert_eq!(fabric.sent.len(), 1);
}

#[test]
fn a_late_request_ends_when_nothing_of_it_is_under_way() {
    let mut fabric = Fabric::new(|_| None);
    let peer = fabric.peer(1);
    let buffer = fabric.core.buffers.find(MIB, 1).expect("there").0;
    let request = fabric.write(peer, 64 * MIB, 5_000_000);
    assert!(!fabric.jobs.is_empty());
    assert_eq!(
        fabric.core.buffers.unregister(buffer),
        Ok(false),
        "it is in use"
    );
    while fabric.now_ns < 5_000_000 {
        assert!(fabric.step());
    }
    assert!(
        fabric.ended.is_empty() && fabric.released.is_empty(),
        "slices are still under way"
    );
    let outcome = fabric.until_ended(request);
    assert_eq!(outcome.transfers, [Err(Failure::DeadlinePassed)]);
    assert!(fabric.jobs.is_empty());
    assert_eq!(fabric.released, [buffer]);
    assert!(fabric.core.peers.values().all(|peer| peer.queue.is_empty()));
}

#[test]
fn a_cancelled_request_frees_the_rail_for_others() {
    let mut fabric = Fabric::new(|job| (job.bytes < MIB / 2).then_some((1_000, SliceEnd::Done)));
    let peer = fabric.peer(1);
    let stuck = fabric.write(peer, 256 * MIB, LATE_NS);
    let next = fabric.write(peer, 4_096, LATE_NS);
    fabric.core.cancel(stuck, fabric.now_ns);
    fabric.act();
    assert_eq!(
        fabric.until_ended(stuck).transfers,
        [Err(Failure::Cancelled)]
    );
    assert_eq!(fabric.until_ended(next).transfers, [Ok(())]);
    fabric.core.cancel(stuck, fabric.now_ns);
    assert_eq!(
        fabric.core.actions().count(),
        0,
        "a stale handle does nothing"
    );
}

#[test]
fn a_peer_that_does_not_answer_holds_up_no_other() {
    let mut fabric = Fabric::new(|_| None);
    let dead = fabric.peer(1);
    let alive = fabric.peer(1);
    fabric.fate = Box::new(move |job| (job.peer == alive).then(|| (takes(job), SliceEnd::Done)));
    let stuck: Vec<_> = (0..50)
        .map(|_| fabric.write(dead, 4 * MIB, LATE_NS))
        .collect();
    for _ in 0..200 {
        let request = fabric.write(alive, MIB, LATE_NS);
        assert_eq!(fabric.until_ended(request).transfers, [Ok(())]);
    }
    assert!(fabric.now_ns < 300 * 2_000_000, "{}", fabric.now_ns);
    fabric.core.close(dead, fabric.now_ns);
    fabric.act();
    for request in stuck {
        assert_eq!(
            fabric.until_ended(request).transfers,
            [Err(Failure::PeerGone)]
        );
    }
    assert!(fabric.core.mirror(dead).is_none(), "nothing of it is left");
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_held() {
    let mut fabric = Fabric::new(|_| None);
    let peer = fabric.peer(1);
    let range = |local_address, remote_address, bytes| Range {
        local_address,
        remote_address,
        bytes,
    };
    let mut submit = |ranges: &[Range]| {
        let done = fabric
            .core
            .submit(peer, Direction::Read, ranges, qos(LATE_NS), 0);
        done.expect_err("refused")
    };
    let good = range(MIB, FAR, 1);
    assert_eq!(submit(&[]), SubmitError::Empty { number: 0 });
    assert_eq!(
        submit(&[good, range(MIB, FAR, 0)]),
        SubmitError::Empty { number: 1 }
    );
    let error = submit(&[good, range(0, FAR, 1)]);
    assert!(matches!(
        error,
        SubmitError::NotLocal {
            number: 1,
            address: 0,
            ..
        }
    ));
    let error = submit(&[range(MIB, FAR - 1, 2)]);
    assert!(matches!(error, SubmitError::NotRemote { number: 0, .. }));
    assert!(matches!(
        submit(&[good; 1_001]),
        SubmitError::TooMany { .. }
    ));
    let buffer = fabric.core.buffers.find(MIB, 1).expect("there").0;
    assert_eq!(
        fabric.core.buffers.unregister(buffer),
        Ok(true),
        "nothing holds it"
    );
    let gone = fabric
        .core
        .submit(peer, Direction::Read, &[good], qos(LATE_NS), 0);
    assert!(matches!(gone, Err(SubmitError::NotLocal { .. })));
    fabric.core.close(peer, 0);
    let closed = fabric
        .core
        .submit(peer, Direction::Read, &[good], qos(LATE_NS), 0);
    assert_eq!(closed, Err(SubmitError::NoPeer));
}

#[test]
fn opening_and_closing_leaves_nothing() {
    let mut fabric = Fabric::new(|job| Some((takes(job), SliceEnd::Done)));
    for _ in 0..1_000 {
        let peer = fabric.peer(2);
        let request = fabric.write(peer, 4_096, LATE_NS);
        fabric.until_ended(request);
        fabric.core.close(peer, fabric.now_ns);
    }
    let core = &fabric.core;
    assert!(core.peers.is_empty() && core.requests.is_empty() && core.flying.is_empty());
    assert!(
        core.deadlines.len() <= 2 * SLACK,
        "{}",
        core.deadlines.len()
    );
}

#[test]
fn a_tenant_with_many_requests_does_not_hold_up_another() {
    let mut fabric = Fabric::new(|job| Some((takes(job), SliceEnd::Done)));
    let peer = fabric.peer(1);
    for _ in 0..200 {
        fabric.write(peer, 16 * MIB, LATE_NS);
    }
    let range = Range {
        local_address: MIB,
        remote_address: FAR,
        bytes: 4_096,
    };
    let small = Qos {
        tenant: 2,
        ..qos(LATE_NS)
    };
    let done = fabric
        .core
        .submit(peer, Direction::Write, &[range], small, 0);
    let request = done.expect("taken");
    fabric.act();
    let ended_ns = fabric.until_ended(request).timeline.ended_ns;
    assert!(ended_ns < 20_000_000, "{ended_ns} ns behind 3.2 GB");
}

/// Only what is sent counts: a busy rail does not eat a tenant's limit, and what waits for it in
/// great number goes behind what is more urgent.
#[test]
fn a_limit_is_reached_over_a_busy_rail() {
    let mut fabric = Fabric::new(|_| None);
    // One slice after the other, a byte per ns.
    let (mut free_at_ns, clock) = (0, Rc::clone(&fabric.clock));
    fabric.fate = Box::new(move |job| {
        free_at_ns = job.bytes + clock.get().max(free_at_ns);
        Some((free_at_ns - clock.get(), SliceEnd::Done))
    });
    let peer = fabric.peer(1);
    let limited = Qos {
        tenant: 9,
        ..qos(LATE_NS)
    };
    let bucket = Bucket::new(400_000_000, 8 * MIB, 0);
    fabric.core.tenants.set(9, 1, Some(bucket));
    let range = Range {
        local_address: MIB,
        remote_address: FAR,
        bytes: 64 * MIB,
    };
    for tenant in [9, 1] {
        for _ in 0..20 {
            let owner = Qos { tenant, ..limited };
            let done = fabric
                .core
                .submit(peer, Direction::Write, &[range], owner, 0);
            done.expect("taken");
        }
    }
    fabric.act();
    while fabric.now_ns < 400_000_000 {
        assert!(fabric.step());
    }
    let of_limited = fabric.sent.iter().filter(|job| job.qos.tenant == 9);
    let sent: u64 = of_limited.map(|job| job.bytes).sum();
    // 160 MB, what the bucket held at first, and what is under way.
    assert!((155_000_000..180_000_000).contains(&sent), "{sent}");
}

proptest! {
    /// Whatever rails do and whenever requests are given up, each ends once, with as many results
    /// as transfers, when nothing of it is under way; what says it is done has sent all of its
    /// bytes.
    #[test]
    fn every_request_ends_once_and_truly(
        seed in any::<u64>(),
        asks in prop::collection::vec(
            (0_usize..3, 1_usize..5, 1_u64..3 * MIB, 0_u64..60_000_000, 0_u8..8), 1..30),
    ) {
        let mut state = seed | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut fabric = Fabric::new(move |job| {
            let roll = next();
            let end = match roll % 16 {
                0 => return None,
                1 | 2 => SliceEnd::RailFailed,
                3 if roll % 5 == 0 => SliceEnd::Refused(Refusal::OutOfRange),
                _ => SliceEnd::Done,
            };
            Some((roll / 16 % 100_000 + job.bytes, end))
        });
        let peers: Vec<PeerKey> = (1..4).map(|rails| fabric.peer(rails)).collect();
        let mut asked = Vec::new();
        for (peer, count, bytes, deadline_ns, what) in asks {
            let ranges: Vec<Range> = (0..count as u64)
                .map(|at| Range {
                    local_address: MIB + at * 8 * MIB,
                    remote_address: FAR + at * (if what < 4 { 8 * MIB } else { bytes }),
                    bytes,
                })
                .collect();
            let now_ns = fabric.now_ns;
            let deadline_ns = now_ns + deadline_ns;
            let (peer, qos) = (peers[peer], qos(deadline_ns));
            let done = fabric.core.submit(peer, Direction::Read, &ranges, qos, now_ns);
            asked.push((done.expect("taken"), count));
            fabric.act();
            for _ in 0..what {
                fabric.step();
            }
            if what == 7 {
                fabric.core.cancel(asked[asked.len() / 2].0, fabric.now_ns);
                fabric.act();
            }
        }
        for (request, count) in &asked {
            let outcome = fabric.until_ended(*request);
            prop_assert_eq!(outcome.transfers.len(), *count);
        }
        prop_assert_eq!(fabric.ended.len(), asked.len());
        prop_assert!(fabric.core.flying.is_empty() && fabric.core.requests.is_empty());
        prop_assert!(fabric.core.peers.values().all(|peer| peer.queue.is_empty()));
        prop_assert!(fabric.jobs.is_empty());
        for peer in peers {
            let rails = fabric.core.rails(peer).expect("open");
            prop_assert!((0..rails.len()).all(|rail| rails.bytes(rail) == 0));
        }
        let buffer = fabric.core.buffers.find(MIB, 1).expect("there").0;
        prop_assert_eq!(fabric.core.buffers.unregister(buffer), Ok(true), "nothing holds it");
    }
}
