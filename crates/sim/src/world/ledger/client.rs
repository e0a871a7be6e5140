//! A client of a ledger: one operation after the other, each asked again until it is answered.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Message;
use crate::history::{Outcome, Recorder};
use crate::world::network::Node;
use crate::world::stage::Context;
use crate::world::work::Step;

/// How long an answer is waited for before the same is asked again.
const AGAIN: Duration = Duration::from_millis(60);

/// What the world reads when the client is done; nobody else writes it.
pub(super) type Record = Rc<RefCell<Recorder>>;

/// Does all steps. After `patience` without an answer an operation is given up.
pub(super) async fn work(
    mut context: Context<Message>,
    server: Node,
    steps: Vec<Step>,
    patience: Duration,
    record: Record,
) {
    for (number, step) in (1..).zip(steps) {
        sleep(Duration::from_nanos(step.think_ns)).await;
        let now_ns = context.face.true_ns();
        let begun = record.borrow_mut().begin(&step.key, step.call, now_ns);
        let Ok(token) = begun else { return };
        let outcome = ask(&mut context, server, number, &step, patience).await;
        let now_ns = context.face.true_ns();
        // The server told an outcome of this call, or none.
        let _misfit = record.borrow_mut().end(token, outcome, now_ns);
    }
}

async fn ask(
    context: &mut Context<Message>,
    server: Node,
    number: u64,
    step: &Step,
    patience: Duration,
) -> Outcome {
    let start = Instant::now();
    let mut asked = 0_u32;
    while start.elapsed() < patience {
        let (key, call) = (step.key.clone(), step.call);
        let _lost = context.send(server, Message::Ask { number, key, call });
        asked += 1;
        let until = Instant::now() + AGAIN;
        while let Ok(Some(arrival)) = timeout(
            until.saturating_duration_since(Instant::now()),
            context.inbox.recv(),
        )
        .await
        {
            match arrival.message {
                Message::Answer {
                    number: of,
                    outcome,
                } if of == number => {
                    // It may be in the server's hands a second time, after a restart.
                    let is_sure = outcome != Outcome::Failed || asked == 1;
                    return if is_sure { outcome } else { Outcome::Unknown };
                }
                _ => {}
            }
        }
    }
    Outcome::Unknown
}
