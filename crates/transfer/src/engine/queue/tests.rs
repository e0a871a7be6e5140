//! Shares, deadlines, bounds and limits.

use proptest::prelude::*;

use super::super::bucket::Bucket;
use super::*;

const LIMITS: QueueLimits = QueueLimits {
    entries: 10_000,
    bytes: u64::MAX,
    tenant_entries: 10_000,
};
const MIB: u64 = 1 << 20;

/// Serves a rail of one byte per ns for so long; who sent how many bytes.
fn serve(
    queue: &mut Queue<(Class, u32)>,
    tenants: &mut Tenants,
    ns: u64,
) -> BTreeMap<(Class, u32), u64> {
    let (mut now_ns, mut sent) = (0, BTreeMap::new());
    while now_ns < ns {
        match queue.pop(tenants, now_ns) {
            Next::Entry(owner, bytes) => {
                now_ns += bytes;
                *sent.entry(owner).or_default() += bytes;
            }
            Next::At(at_ns) => {
                assert!(at_ns > now_ns);
                now_ns = at_ns;
            }
            Next::Idle => break,
        }
    }
    sent
}

fn fill(queue: &mut Queue<(Class, u32)>, owner: (Class, u32), count: u64, bytes: u64) {
    for at in 0..count {
        queue.push(owner, at, bytes, owner).expect("room");
    }
}

#[test]
fn classes_and_tenants_share_by_weight_whatever_their_sizes() {
    let (mut queue, mut tenants) = (Queue::new(LIMITS), Tenants::default());
    tenants.set(2, 3, None);
    let (one, three) = ((Class::Foreground, 1), (Class::Foreground, 2));
    let low = (Class::Checkpoint, 3);
    fill(&mut queue, one, 4_000, 64 << 10);
    fill(&mut queue, three, 250, MIB);
    fill(&mut queue, low, 250, MIB);
    let sent = serve(&mut queue, &mut tenants, 200 * MIB);
    let mib = |owner| sent[&owner] / MIB;
    assert!((140..=146).contains(&mib(three)), "{sent:?}");
    assert!((45..=49).contains(&mib(one)), "{sent:?}");
    assert!((10..=14).contains(&mib(low)), "{sent:?}");
}

#[test]
fn who_was_idle_has_saved_nothing_up() {
    let (mut queue, mut tenants) = (Queue::new(LIMITS), Tenants::default());
    let (busy, back) = ((Class::Prefetch, 1), (Class::Prefetch, 2));
    fill(&mut queue, back, 1, MIB);
    fill(&mut queue, busy, 1_000, MIB);
    serve(&mut queue, &mut tenants, 500 * MIB);
    fill(&mut queue, back, 500, MIB);
    let sent = serve(&mut queue, &mut tenants, 100 * MIB);
    assert!(sent[&back].abs_diff(sent[&busy]) <= 2 * MIB, "{sent:?}");
}

#[test]
fn the_earliest_deadline_of_a_tenant_goes_first() {
    let mut queue = Queue::new(LIMITS);
    for deadline_ns in [30, 10, 20] {
        let done = queue.push((Class::Foreground, 1), deadline_ns, 1, deadline_ns);
        done.expect("room");
    }
    let order: Vec<u64> = std::iter::from_fn(|| match queue.pop(&mut Tenants::default(), 0) {
        Next::Entry(item, _) => Some(item),
        _ => None,
    })
    .collect();
    assert_eq!(order, [10, 20, 30]);
}

#[test]
fn a_limit_of_bandwidth_holds_and_lets_others_by() {
    let (mut queue, mut tenants) = (Queue::new(LIMITS), Tenants::default());
    tenants.set(1, 1, Some(Bucket::new(250_000_000, MIB, 0)));
    let (limited, free) = ((Class::Foreground, 1), (Class::Migration, 2));
    fill(&mut queue, limited, 1_000, MIB);
    fill(&mut queue, free, 1_000, MIB);
    let sent = serve(&mut queue, &mut tenants, 400 * MIB);
    // A quarter of a rail of a byte per ns.
    assert!((99..=103).contains(&(sent[&limited] / MIB)), "{sent:?}");
    assert!(sent[&free] / MIB >= 297, "the rest is for others: {sent:?}");
}

#[test]
fn a_full_queue_says_so_and_gives_back() {
    let mut queue = Queue::new(QueueLimits {
        entries: 3,
        bytes: 100,
        tenant_entries: 2,
    });
    let owner = (Class::Foreground, 1);
    // Larger than all of it: it goes alone.
    let large = queue.push(owner, 0, 1_000, "large").expect("alone");
    assert_eq!(queue.push(owner, 0, 1, "more").expect_err("full").1, "more");
    assert_eq!(queue.remove(large), Some("large"));
    assert_eq!(queue.remove(large), None, "it is gone");
    let first = queue.push(owner, 0, 50, "a").expect("room");
    queue.push(owner, 0, 50, "b").expect("room");
    assert!(queue.push(owner, 0, 0, "c").is_err(), "of this tenant");
    let other = (Class::Foreground, 2);
    assert!(queue.push(other, 0, 1, "d").is_err(), "of all bytes");
    queue.push(other, 0, 0, "e").expect("room");
    assert!(queue.push((Class::Foreground, 3), 0, 0, "f").is_err());
    assert_eq!(queue.remove(first), Some("a"));
    queue.push(owner, 0, 50, "g").expect("room again");
}

#[test]
fn what_is_taken_out_takes_no_room() {
    let mut queue = Queue::new(LIMITS);
    for _ in 0..10_000 {
        let ticket = queue
            .push((Class::Foreground, 1), u64::MAX, 1, ())
            .expect("room");
        queue.remove(ticket);
    }
    assert!(queue.flows[0].line.len() <= SLACK && queue.tenants.is_empty());
    assert_eq!(queue.lines[0].ready.len(), 1);
}

proptest! {
    /// Everything that goes in comes out once, whatever is pushed, taken out and limited.
    #[test]
    fn nothing_is_lost_or_doubled(
        steps in prop::collection::vec(
            (0_u8..5, 0_u8..5, 0_u32..4, 1_u64..5_000, 0_u64..100), 1..300),
    ) {
        let mut queue = Queue::new(QueueLimits { entries: 64, bytes: 100_000, tenant_entries: 32 });
        let mut tenants = Tenants::default();
        let (mut now_ns, mut next) = (0, 0_u64);
        let mut waiting = BTreeMap::new();
        for (step, class, tenant, bytes, pause_ns) in steps {
            now_ns += pause_ns;
            match step {
                0 | 1 => {
                    let class = Class::from_number(class).expect("a class");
                    if let Ok(ticket) = queue.push((class, tenant), now_ns + bytes, bytes, next) {
                        waiting.insert(next, ticket);
                        next += 1;
                    }
                }
                2 => match queue.pop(&mut tenants, now_ns) {
                    Next::Entry(item, _) => prop_assert!(waiting.remove(&item).is_some()),
                    Next::At(at_ns) => prop_assert!(at_ns > now_ns && !waiting.is_empty()),
                    Next::Idle => prop_assert!(waiting.is_empty()),
                },
                3 => {
                    let some = waiting.keys().nth(bytes as usize % waiting.len().max(1)).copied();
                    if let Some(some) = some
                        && let Some(ticket) = waiting.remove(&some)
                    {
                        prop_assert_eq!(queue.remove(ticket), Some(some));
                        prop_assert_eq!(queue.remove(ticket), None);
                    }
                }
                _ => {
                    let bucket = Bucket::new(bytes * 1_000_000, bytes, now_ns);
                    tenants.set(tenant, bytes, (class < 3).then_some(bucket));
                }
            }
            prop_assert_eq!(queue.len(), waiting.len());
        }
        while !waiting.is_empty() {
            match queue.pop(&mut tenants, now_ns) {
                Next::Entry(item, _) => prop_assert!(waiting.remove(&item).is_some()),
                Next::At(at_ns) => now_ns = at_ns,
                Next::Idle => prop_assert!(false, "{} wait", waiting.len()),
            }
        }
        prop_assert_eq!((queue.bytes(), queue.pop(&mut tenants, now_ns)), (0, Next::Idle));
    }
}
