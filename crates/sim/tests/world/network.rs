//! What the network promises, for any weather.

use std::collections::BTreeMap;

use larder_sim::seed::Seed;
use larder_sim::world::{Arrival, Network, Node, Sent, Storm, Weather};
use proptest::prelude::*;

const NODES: u32 = 4;

fn network(seed: u64, weather: Weather) -> Network<u32> {
    Network::new(weather, 10_000, Seed(seed).stream("network"))
}

/// Sends numbered messages at these times, and takes all arrivals as time goes on.
fn played(network: &mut Network<u32>, sends: &[(u64, u32, u32)]) -> Vec<Arrival<u32>> {
    let mut arrivals = Vec::new();
    let mut sends: Vec<_> = (0..).zip(sends.iter().copied()).collect();
    sends.sort_by_key(|(_, (at_ns, _, _))| *at_ns);
    for (number, (at_ns, from, to)) in sends {
        arrivals.extend(std::iter::from_fn(|| network.take(at_ns)));
        network.send(at_ns, Node(from), Node(to), number);
    }
    arrivals.extend(std::iter::from_fn(|| network.take(u64::MAX)));
    arrivals
}

fn sends() -> impl Strategy<Value = Vec<(u64, u32, u32)>> {
    proptest::collection::vec((0_u64..1_000, 0..NODES, 0..NODES), 0..80)
}

fn weather() -> impl Strategy<Value = Weather> {
    let chances = (0_u32..500, 0_u32..500, 0_u32..500, 0_u32..=1000);
    (1_u64..20, 0_u64..50, chances, any::<bool>()).prop_map(|(min, more, chances, reorders)| {
        let (loss_permille, repeat_permille, late_permille, wait_permille) = chances;
        Weather {
            loss_permille,
            repeat_permille,
            late_permille,
            wait_permille,
            late_ns: 90,
            reorders,
            ..Weather::calm(min, min + more)
        }
    })
}

/// Numbers that arrived first on each way, in order.
fn by_way(arrivals: &[Arrival<u32>]) -> BTreeMap<(Node, Node), Vec<u32>> {
    let mut ways: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for arrival in arrivals.iter().filter(|arrival| !arrival.is_repeat) {
        ways.entry((arrival.from, arrival.to))
            .or_default()
            .push(arrival.message);
    }
    ways
}

proptest! {
    #[test]
    fn in_calm_weather_all_arrive_once_and_in_order(
        sends in sends(), seed: u64, more in 0_u64..99,
    ) {
        let mut network = network(seed, Weather::calm(5, 5 + more));
        let arrivals = played(&mut network, &sends);
        prop_assert_eq!(arrivals.len(), sends.len());
        prop_assert!(arrivals.is_sorted_by_key(|arrival| arrival.at_ns));
        for arrival in &arrivals {
            let (at_ns, from, to) = sends[arrival.message as usize];
            prop_assert_eq!((arrival.from, arrival.to), (Node(from), Node(to)));
            prop_assert!(arrival.at_ns >= at_ns + 5);
        }
        for numbers in by_way(&arrivals).values() {
            let times: Vec<_> = numbers.iter().map(|n| (sends[*n as usize].0, *n)).collect();
            prop_assert!(times.is_sorted(), "{:?}", times);
        }
    }

    #[test]
    fn what_happened_is_counted_and_follows_from_the_seed(
        sends in sends(), seed: u64, weather in weather(),
    ) {
        let mut one = network(seed, weather);
        let arrivals = played(&mut one, &sends);
        let mut same = network(seed, weather);
        prop_assert_eq!(&arrivals, &played(&mut same, &sends));
        let counts = one.counts();
        prop_assert_eq!(counts.sent, sends.len() as u64);
        prop_assert_eq!(counts.arrived, arrivals.len() as u64);
        prop_assert_eq!(counts.sent + counts.repeated, counts.arrived + counts.lost);
        let repeats = arrivals.iter().filter(|arrival| arrival.is_repeat).count();
        prop_assert_eq!(repeats as u64, counts.repeated);
        if !weather.reorders {
            prop_assert_eq!(counts.overtaken, 0);
        }
    }

    /// Nothing passes a cut while it is there; what waits comes after it, the other way is open.
    #[test]
    fn cuts_let_nothing_through(
        sends in sends(), seed: u64, weather in weather(), from in 0_u64..500, length in 0_u64..500,
    ) {
        let mut network = network(seed, weather);
        let (some, others) = ([Node(0), Node(1)], [Node(2), Node(3)]);
        let is_cut = |arrival: &Arrival<u32>| {
            some.contains(&arrival.from) && others.contains(&arrival.to)
        };
        let earlier = |at_ns: u64| move |send: &(u64, u32, u32)| send.0 < at_ns;
        let (before, rest): (Vec<_>, Vec<_>) = sends.iter().copied().partition(earlier(from));
        let (during, after): (Vec<_>, Vec<_>) = rest.into_iter().partition(earlier(from + length));
        let mut arrivals = Vec::new();
        for send in &before {
            network.send(send.0, Node(send.1), Node(send.2), 0);
        }
        arrivals.extend(std::iter::from_fn(|| network.take(from)));
        let cut = network.cut(&some, &others);
        let twice = network.cut(&[Node(0)], &others);
        for send in &during {
            network.send(send.0, Node(send.1), Node(send.2), 1);
        }
        let within: Vec<_> = std::iter::from_fn(|| network.take(from + length)).collect();
        prop_assert!(!within.iter().any(is_cut));
        network.mend(from + length, twice);
        prop_assert!(!std::iter::from_fn(|| network.take(from + length)).any(|a| is_cut(&a)));
        network.mend(from + length, cut);
        for send in &after {
            network.send(send.0, Node(send.1), Node(send.2), 2);
        }
        arrivals.extend(within);
        arrivals.extend(std::iter::from_fn(|| network.take(u64::MAX)));
        let counts = network.counts();
        let ended = counts.arrived + counts.lost + counts.cut;
        prop_assert_eq!(counts.sent + counts.repeated, ended);
        if weather.wait_permille == 1000 {
            prop_assert_eq!(counts.cut, 0);
        }
    }
}

#[test]
fn storms_are_where_they_are() {
    let mut network = network(3, Weather::calm(1, 2));
    let storm = |around: Vec<Node>| Storm {
        around,
        weather: Weather {
            loss_permille: 1000,
            ..Weather::calm(0, 0)
        },
    };
    network.begin_storm(1, storm(vec![Node(1)]));
    assert_eq!(network.send(0, Node(1), Node(2), 0), Sent::Lost);
    assert_eq!(network.send(0, Node(2), Node(1), 0), Sent::Lost);
    assert_eq!(network.send(0, Node(2), Node(3), 0), Sent::OnTheWay);
    network.begin_storm(2, storm(Vec::new()));
    assert_eq!(network.send(0, Node(2), Node(3), 0), Sent::Lost);
    network.end_storm(2);
    network.end_storm(1);
    assert_eq!(network.send(0, Node(1), Node(2), 0), Sent::OnTheWay);
    assert_eq!(network.next_ns().map(|at_ns| at_ns <= 2), Some(true));
}

#[test]
fn messages_to_the_dead_and_too_many_are_lost() {
    let mut network: Network<u32> = Network::new(Weather::calm(1, 2), 5, Seed(1).stream("network"));
    for number in 0..4 {
        assert_eq!(network.send(0, Node(1), Node(2), number), Sent::OnTheWay);
    }
    assert_eq!(network.send(0, Node(1), Node(2), 4), Sent::Lost);
    assert_eq!(network.counts().overflowed, 1);
    network.forget(Node(2));
    assert_eq!((network.take(9), network.counts().lost), (None, 4));
    assert_eq!(network.send(9, Node(1), Node(3), 5), Sent::OnTheWay);
}
