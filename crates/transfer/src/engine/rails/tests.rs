//! Rails of a made-up fabric: each carries one slice after the other at its rate.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// One rail of the fabric.
struct Way {
    bytes_per_ns: f64,
    delay_ns: u64,
    free_at_ns: u64,
    /// Slices that fail on it: each so many, or all from a time on, in ns.
    fails: Box<dyn Fn(u64, u64) -> bool>,
    carried: u64,
    count: u64,
}

impl Way {
    fn new(gb_per_s: f64, fails: impl Fn(u64, u64) -> bool + 'static) -> Self {
        Self {
            bytes_per_ns: gb_per_s,
            delay_ns: 20_000,
            free_at_ns: 0,
            fails: Box::new(fails),
            carried: 0,
            count: 0,
        }
    }

    /// When a slice is over, and how.
    fn send(&mut self, bytes: u64, now_ns: u64) -> (u64, End) {
        self.count += 1;
        if (self.fails)(self.count, now_ns) {
            return (now_ns + self.delay_ns, End::RailFailed);
        }
        let takes_ns = whole(bytes as f64 / self.bytes_per_ns);
        self.free_at_ns = self.free_at_ns.max(now_ns) + takes_ns;
        self.carried += bytes;
        (self.free_at_ns + self.delay_ns, End::Done)
    }
}

/// Keeps `depth` slices under way for so long; the bytes that arrived.
fn carry(rails: &mut Rails, ways: &mut [Way], depth: usize, ns: u64) -> u64 {
    let (mut now_ns, mut arrived) = (0, 0);
    let mut underway: VecDeque<(u64, End, Underway)> = VecDeque::new();
    while now_ns < ns {
        while underway.len() < depth {
            let bytes = rails.slice_bytes();
            match rails.choose(bytes, now_ns, |_| Some(1.0)) {
                Choice::Rail(number) => {
                    let (at_ns, end) = ways[number].send(bytes, now_ns);
                    underway.push_back((at_ns, end, rails.begin(number, bytes, now_ns)));
                }
                Choice::At(at_ns) => {
                    assert!(at_ns > now_ns);
                    if underway.is_empty() {
                        now_ns = at_ns;
                    }
                    break;
                }
                Choice::Busy => break,
                Choice::Nowhere => panic!("there are rails"),
            }
        }
        underway.make_contiguous().sort_by_key(|one| one.0);
        if let Some((at_ns, end, one)) = underway.pop_front() {
            now_ns = now_ns.max(at_ns);
            if end == End::Done {
                arrived += one.bytes();
            }
            rails.end(one, end, now_ns);
        }
    }
    for (_, _, one) in underway {
        rails.end(one, End::Abandoned, now_ns);
    }
    arrived
}

fn of(ways: &[Way]) -> Rails {
    let mut rails = Rails::default();
    for _ in ways {
        rails.add(1e9, 100_000);
    }
    rails
}

fn never(_: u64, _: u64) -> bool {
    false
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn unequal_rails_carry_what_they_can() {
    let mut ways = [
        Way::new(4.0, never),
        Way::new(1.0, never),
        Way::new(0.5, never),
    ];
    let mut rails = of(&ways);
    let arrived = carry(&mut rails, &mut ways, 16, SECOND);
    let possible = 5.5 * SECOND as f64;
    assert!(arrived as f64 > 0.95 * possible, "{arrived}");
    for (number, truth) in [(0, 4e9), (1, 1e9), (2, 0.5e9)] {
        let (rate, _, _) = rails.seen(number).expect("a rail");
        assert!((rate / truth - 1.0).abs() < 0.1, "{number}: {rate}");
    }
}

#[test]
fn a_rail_that_breaks_costs_what_it_carried_and_comes_back() {
    let broken = |_, now_ns| (SECOND / 4..SECOND / 2).contains(&now_ns);
    let mut ways = [Way::new(1.0, never), Way::new(1.0, broken)];
    let mut rails = of(&ways);
    let arrived = carry(&mut rails, &mut ways, 16, 2 * SECOND);
    // It is away for 0.25 s, and found again within its time out.
    assert!(arrived as f64 > 0.93 * 3.75 * SECOND as f64, "{arrived}");
    let (_, _, is_out) = rails.seen(1).expect("a rail");
    assert!(!is_out);
}

#[test]
fn one_error_in_a_thousand_costs_one_in_a_hundred_at_most() {
    let mut ways = [
        Way::new(1.0, |count, _| count % 1_000 == 0),
        Way::new(1.0, never),
    ];
    let mut rails = of(&ways);
    let arrived = carry(&mut rails, &mut ways, 16, 4 * SECOND);
    assert!(arrived as f64 > 0.99 * 8.0 * SECOND as f64, "{arrived}");
}

#[test]
fn small_slices_alone_teach_the_delay_and_leave_the_rate() {
    let mut ways = [Way::new(2.0, never)];
    let mut rails = of(&ways);
    carry(&mut rails, &mut ways, 8, SECOND);
    let (rate, ..) = rails.seen(0).expect("a rail");
    let mut now_ns = SECOND * 2;
    for _ in 0..100_000 {
        let (at_ns, end) = ways[0].send(4_096, now_ns);
        let one = rails.begin(0, 4_096, now_ns);
        now_ns = at_ns;
        rails.end(one, end, now_ns);
    }
    let (after, delay_ns, _) = rails.seen(0).expect("a rail");
    assert_eq!(after.to_bits(), rate.to_bits());
    assert!((delay_ns - 20_000.0).abs() < 1_000.0, "{delay_ns}");
}

#[test]
fn a_rail_takes_what_it_can_do_soon_and_no_more() {
    let mut rails = Rails::default();
    rails.add(1e9, 1_000);
    let mut underway = Vec::new();
    while rails.choose(SLICE_MIN_BYTES, 0, |_| Some(1.0)) == Choice::Rail(0) {
        underway.push(rails.begin(0, SLICE_MIN_BYTES, 0));
    }
    assert_eq!(
        rails.choose(SLICE_MIN_BYTES, 0, |_| Some(1.0)),
        Choice::Busy
    );
    // Some milliseconds of work.
    assert!(
        (2_000_000..8_000_000).contains(&rails.bytes(0)),
        "{}",
        rails.bytes(0)
    );
    rails.end(underway.remove(0), End::Done, 65_536);
    assert_eq!(
        rails.choose(SLICE_MIN_BYTES, 65_536, |_| Some(1.0)),
        Choice::Rail(0)
    );
    // A slice larger than that goes alone.
    for one in underway {
        rails.end(one, End::Abandoned, 65_536);
    }
    assert_eq!(
        rails.choose(1 << 40, 65_536, |_| Some(1.0)),
        Choice::Rail(0)
    );
}

#[test]
fn what_a_rail_does_not_reach_goes_elsewhere_or_nowhere() {
    let mut rails = Rails::default();
    rails.add(1e12, 0);
    rails.add(1e6, 1_000);
    let reach = |number: usize| move |rail: usize| (rail == number).then_some(1.0);
    assert_eq!(rails.choose(1, 0, reach(0)), Choice::Rail(0));
    assert_eq!(rails.choose(1, 0, reach(1)), Choice::Rail(1));
    assert_eq!(rails.choose(1, 0, reach(2)), Choice::Nowhere);
    let far = |rail: usize| Some(if rail == 0 { 1e9 } else { 1.0 });
    assert_eq!(rails.choose(1 << 20, 0, far), Choice::Rail(1));
    for _ in 0..3 {
        let one = rails.begin(1, 1, 0);
        rails.end(one, End::RailFailed, 0);
    }
    assert!(matches!(rails.choose(1, 0, reach(1)), Choice::At(at_ns) if at_ns > 0));
    assert_eq!(rails.choose(1, 0, |_| Some(1.0)), Choice::Rail(0));
}

proptest! {
    /// What is under way adds up, whatever happens in whatever order.
    #[test]
    fn the_books_balance(
        steps in prop::collection::vec(
            (0_usize..3, 1_u64..1 << 24, 0_u8..5, 0_u64..5_000_000), 1..200),
    ) {
        let mut rails = Rails::default();
        for _ in 0..3 {
            rails.add(1e9, 10_000);
        }
        let (mut now_ns, mut underway) = (0, Vec::new());
        for (rail, bytes, what, pause_ns) in steps {
            now_ns += pause_ns;
            let ends = [End::Done, End::RailFailed, End::Refused, End::Abandoned];
            match ends.get(usize::from(what)) {
                Some(end) if !underway.is_empty() => {
                    let at = usize::try_from(bytes).expect("64 bits") % underway.len();
                    rails.end(underway.swap_remove(at), *end, now_ns);
                }
                _ => underway.push(rails.begin(rail, bytes, now_ns)),
            }
            for rail in 0..3 {
                let ours = underway.iter().filter(|one: &&Underway| one.rail() == rail);
                prop_assert_eq!(rails.bytes(rail), ours.map(Underway::bytes).sum::<u64>());
                let (rate, delay_ns, _) = rails.seen(rail).expect("a rail");
                prop_assert!(rate >= 1.0 && rate.is_finite() && delay_ns >= 0.0);
            }
            let slice = rails.slice_bytes();
            prop_assert!(slice.is_multiple_of(SLICE_MIN_BYTES) && slice > 0);
        }
    }
}
