//! Calls between processes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use larder_sim::seed::Seed;
use larder_sim::world::{
    CallFailed, Caller, Calls, Context, Face, MachineDisk, Network, Node, Outbox, Packet, Stage,
    Weather, wait_for,
};

const MS: u64 = 1_000_000;

/// Answers every call with the same bytes and one more, after as many ms as the first byte says.
async fn echo(mut context: Context<Packet>) {
    while let Some(arrival) = context.inbox.recv().await {
        if let Packet::PeerAsk { number, mut body } = arrival.message {
            let outbox = context.outbox();
            tokio::task::spawn_local(async move {
                let ms = body.first().copied().unwrap_or(0);
                wait_for(Duration::from_millis(u64::from(ms))).await;
                body.push(0xff);
                outbox.send(arrival.from, Packet::PeerTold { number, body });
            });
        }
    }
}

type Heard = Rc<RefCell<Vec<(u8, Result<Vec<u8>, CallFailed>)>>>;

/// Calls with each of these first bytes at once, and notes what comes when.
async fn ask(mut context: Context<Packet>, bytes: Vec<u8>, within: Duration, heard: Heard) {
    let mut chance = context.seed.stream("calls");
    let (caller, mut calls) = Calls::new(context.outbox(), chance.draw());
    for byte in bytes {
        let (caller, heard) = (caller.clone(), Rc::clone(&heard));
        tokio::task::spawn_local(async move {
            let answer = caller.call(Node(2), vec![byte], within).await;
            heard.borrow_mut().push((byte, answer));
        });
    }
    loop {
        tokio::select! {
            biased;
            Some(arrival) = context.inbox.recv() => {
                if let Packet::PeerTold { number, body } = arrival.message {
                    calls.told(arrival.from, number, body);
                }
            }
            Some(asked) = calls.asked() => calls.begin(asked),
        }
    }
}

fn run(weather: Weather, bytes: &[u8]) -> Vec<(u8, Result<Vec<u8>, CallFailed>)> {
    let network = Network::new(weather, 1_000, Seed(3).stream("network"));
    let (mut stage, heard) = (Stage::new(Seed(3), MS, network), Heard::default());
    stage.start(Node(2), echo).expect("a runtime");
    let (bytes, within, told) = (
        bytes.to_vec(),
        Duration::from_millis(100),
        Rc::clone(&heard),
    );
    stage
        .start(Node(1), |context| ask(context, bytes, within, told))
        .expect("a runtime");
    (0..300).for_each(|_| stage.pass().expect("no panic"));
    heard.take()
}

#[test]
fn each_call_gets_its_answer_or_is_late() {
    let heard = run(Weather::calm(MS, 3 * MS), &[40, 0, 20, 200]);
    assert_eq!(
        heard,
        [
            (0, Ok(vec![0, 0xff])),
            (20, Ok(vec![20, 0xff])),
            (40, Ok(vec![40, 0xff])),
            (200, Err(CallFailed::Late)),
        ]
    );
}

#[test]
fn repeated_answers_count_once_and_lost_ones_not_at_all() {
    let weather = Weather {
        repeat_permille: 1000,
        ..Weather::calm(MS, 3 * MS)
    };
    assert_eq!(run(weather, &[1, 2, 3]).len(), 3);
    let weather = Weather {
        loss_permille: 1000,
        ..weather
    };
    assert_eq!(run(weather, &[1]), [(1, Err(CallFailed::Late))]);
}

/// What a master's tasks are given may go from one to the other.
#[test]
fn what_tasks_share_can_be_sent() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Caller>();
    shared::<Face>();
    shared::<MachineDisk>();
    shared::<Outbox<Packet>>();
}
