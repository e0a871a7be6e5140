//! Processes on paused clocks.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use larder_sim::seed::Seed;
use larder_sim::world::{Context, Network, Node, Stage, StageError, Weather, wait_for};

const MS: u64 = 1_000_000;

fn stage(seed: u64) -> Stage<u64> {
    let network = Network::new(
        Weather::calm(MS, 4 * MS),
        1_000,
        Seed(seed).stream("network"),
    );
    Stage::new(Seed(seed), MS, network)
}

type Seen = Rc<RefCell<Vec<(u32, u64, u64)>>>;

/// Says a number every 10 ms to the other one and notes what it hears, on its own clock.
async fn talk(mut context: Context<u64>, to: Node, seen: Seen) {
    let start_ns = context.face.local_ns();
    for number in 0.. {
        tokio::select! {
            biased;
            Some(arrival) = context.inbox.recv() => {
                let local_ns = context.face.local_ns() - start_ns;
                seen.borrow_mut().push((context.node.0, local_ns, arrival.message));
            }
            () = wait_for(Duration::from_millis(10)) => {
                context.send(to, number);
            }
        }
    }
}

fn pair(seed: u64) -> (Stage<u64>, Seen) {
    let (mut stage, seen) = (stage(seed), Seen::default());
    for (node, other) in [(Node(1), Node(2)), (Node(2), Node(1))] {
        let seen = Rc::clone(&seen);
        stage
            .start(node, move |context| talk(context, other, seen))
            .expect("a runtime");
    }
    (stage, seen)
}

fn pass(stage: &mut Stage<u64>, ms: u64) {
    (0..ms).for_each(|_| stage.pass().expect("no panic"));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let (mut stage, seen) = pair(seed);
        pass(&mut stage, 200);
        stage.clock(Node(1)).leap(500);
        stage.pause(Node(2), true);
        pass(&mut stage, 50);
        stage.pause(Node(2), false);
        pass(&mut stage, 50);
        seen.take()
    };
    let one = run(5);
    assert!(one.len() > 20, "{one:?}");
    assert_eq!(one, run(5));
    assert_ne!(one, run(6));
}

#[test]
fn the_paused_do_nothing_and_the_dead_are_gone() {
    let (mut stage, seen) = pair(1);
    pass(&mut stage, 100);
    stage.pause(Node(1), true);
    pass(&mut stage, 20);
    seen.borrow_mut().clear();
    pass(&mut stage, 100);
    assert!(
        seen.borrow().is_empty(),
        "one stands still and the other hears nothing of it"
    );
    stage.pause(Node(1), false);
    pass(&mut stage, 1);
    assert!(!seen.borrow().is_empty(), "what came meanwhile is read now");
    assert_eq!(Rc::strong_count(&seen), 3);
    stage.kill(Node(2));
    assert_eq!(Rc::strong_count(&seen), 2, "it died with all that it held");
    assert!(stage.is_running(Node(1)) && !stage.is_running(Node(2)));
    // What it sent is on its way still.
    pass(&mut stage, 10);
    seen.borrow_mut().clear();
    pass(&mut stage, 100);
    assert!(seen.borrow().is_empty());
}

#[test]
fn timers_go_by_the_steady_clock() {
    let mut stage = stage(1);
    let slept = Rc::new(RefCell::new(0));
    let told = Rc::clone(&slept);
    stage.clock(Node(1)).drift(0, -500_000);
    let sleeper = move |context: Context<u64>| async move {
        let before_ns = context.face.local_ns();
        wait_for(Duration::from_millis(100)).await;
        *told.borrow_mut() = context.face.local_ns() - before_ns;
    };
    stage.start(Node(1), sleeper).expect("a runtime");
    pass(&mut stage, 10);
    stage.clock(Node(1)).leap(7_000 * MS);
    pass(&mut stage, 150);
    assert!(
        stage.is_running(Node(1)),
        "a sleep of the machine wakes nobody"
    );
    pass(&mut stage, 60);
    assert!(
        !stage.is_running(Node(1)),
        "it is over when its main task is"
    );
    assert!(
        (7_100 * MS..7_110 * MS).contains(&*slept.borrow()),
        "{slept:?}"
    );
}

#[test]
fn a_panic_is_a_finding() {
    let mut stage = stage(1);
    let panics = |_: Context<u64>| async {
        wait_for(Duration::from_millis(5)).await;
        panic!("no luck");
    };
    stage.start(Node(4), panics).expect("a runtime");
    let error = (0..20)
        .find_map(|_| stage.pass().err())
        .expect("it panicked");
    assert!(matches!(&error, StageError::Panicked { node: Node(4), why } if why == "no luck"));
}
