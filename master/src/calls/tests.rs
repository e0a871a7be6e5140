//! Tests of the table of calls.

use super::*;
use larder_types::{Key, TenantId, Version};

fn call(items: usize, deadline_ms: u64) -> Call {
    Call::new(Origin::Own, items, PoolTime(deadline_ms), Instant::now())
}

fn call_of_one() -> Call {
    call(1, 1)
}

fn request(n: u8) -> Request {
    let tenant = TenantId::new("a").expect("valid");
    Request::Exists {
        tenant,
        key: Key::new(vec![n]).expect("one byte"),
        lease: false,
    }
}

fn space_of(table: &mut CallTable) -> Vec<usize> {
    table.wake(&WaitOn::Space);
    std::iter::from_fn(|| table.next_woken())
        .map(|parked| parked.item)
        .collect()
}

#[test]
fn items_wake_in_the_order_of_their_first_wait() {
    let mut table = CallTable::default();
    let id = table.insert(call(3, 10));
    for item in 0..3 {
        table.park(Parked::new(id, item, request(1)), WaitOn::Space);
    }
    table.wake(&WaitOn::Space);
    let first = table.next_woken().expect("woken");
    let second = table.next_woken().expect("woken");
    let third = table.next_woken().expect("woken");
    for parked in [third, first, second] {
        table.park(parked, WaitOn::Space);
    }
    assert_eq!(space_of(&mut table), [0, 1, 2]);
}

#[test]
fn only_what_waits_on_it_is_woken() {
    let mut table = CallTable::default();
    let id = table.insert(call(2, 10));
    let erased = WaitOn::Erased(Version::default());
    table.park(Parked::new(id, 0, request(1)), WaitOn::Space);
    table.park(Parked::new(id, 1, request(2)), erased.clone());
    table.wake(&erased);
    assert_eq!(table.next_woken().map(|parked| parked.item), Some(1));
    assert!(table.next_woken().is_none());
    assert_eq!(table.waiting(), 1);
}

#[test]
fn an_answer_waits_for_its_commit_and_the_last_item() {
    let mut table = CallTable::default();
    let id = table.insert(call(2, 10));
    table.settle(id, 0, Ok(Reply::Done), 7);
    assert!(table.next_complete(9).is_none(), "one item waits");
    table.settle(id, 1, Ok(Reply::Done), 5);
    assert!(table.next_complete(6).is_none(), "index 7 is not committed");
    let (_, mut call) = table.next_complete(7).expect("complete");
    assert_eq!(call.take_results(7), [Ok(Reply::Done), Ok(Reply::Done)]);
    assert!(table.next_deadline().is_none());
}

#[test]
fn a_late_call_leaves_nothing_behind() {
    let mut table = CallTable::default();
    let id = table.insert(call(2, 10));
    table.settle(id, 0, Ok(Reply::Done), 1);
    table.park(Parked::new(id, 1, request(1)), WaitOn::Space);
    assert!(table.next_late(PoolTime(9)).is_none());
    let (_, mut call) = table.next_late(PoolTime(10)).expect("late");
    assert_eq!(table.waiting(), 0);
    let late = Err(CallError::new(Reason::DeadlinePassed));
    assert_eq!(call.take_results(1), [Ok(Reply::Done), late.clone()]);
    // What was judged by an index that may never commit is not told as done.
    let mut uncommitted = call_of_one();
    uncommitted.settle(0, Ok(Reply::Done), 2);
    assert_eq!(uncommitted.take_results(1), [late]);
    table.wake(&WaitOn::Space);
    assert!(table.next_woken().is_none());
}

#[test]
fn a_removed_call_is_not_decided_again_after_it_was_woken() {
    let mut table = CallTable::default();
    let id = table.insert(call(1, 10));
    table.park(Parked::new(id, 0, request(1)), WaitOn::Space);
    table.wake(&WaitOn::Space);
    assert!(table.remove(id).is_some());
    assert!(table.next_woken().is_none());
}

#[test]
fn an_item_waits_for_space_no_longer_than_it_may_in_all() {
    let mut table = CallTable::default();
    let id = table.insert(call(1, 100));
    table.park_for_space(Parked::new(id, 0, request(1)), WaitOn::Space, PoolTime(10));
    assert_eq!(table.next_deadline(), Some(PoolTime(10)));
    assert!(table.next_without_space(PoolTime(9)).is_none());
    // Woken in vain: the time goes on.
    table.wake(&WaitOn::Space);
    assert_eq!(table.next_deadline(), Some(PoolTime(100)));
    let woken = table.next_woken().expect("woken");
    table.park_for_space(woken, WaitOn::Space, PoolTime(17));
    let parked = table.next_without_space(PoolTime(10)).expect("no longer");
    assert_eq!((parked.call, parked.item, table.waiting()), (id, 0, 0));
    // What waits for something that comes for certain has the time of its call.
    table.park(parked, WaitOn::Slab(larder_types::SegmentId(1), 0));
    assert!(table.next_without_space(PoolTime(99)).is_none());
    assert!(table.next_late(PoolTime(100)).is_some());
    // No wait is longer than the call.
    let id = table.insert(call(1, 5));
    table.park_for_space(Parked::new(id, 0, request(1)), WaitOn::Space, PoolTime(10));
    assert!(table.next_without_space(PoolTime(5)).is_some());
    // A call that ends leaves nothing.
    table.park_for_space(Parked::new(id, 0, request(1)), WaitOn::Space, PoolTime(10));
    assert!(table.remove(id).is_some() && table.next_deadline().is_none());
}
