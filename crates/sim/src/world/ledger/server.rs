//! The one server of a ledger: registers, and a log from which they come back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use larder_oplog::{BootId, Entry, Log, LogError, Options, Position, SyncPolicy, SyncWork};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Message, Mistake};
use crate::history::{Call, Outcome, Value};
use crate::world::disk::MachineDisk;
use crate::world::network::{Arrival, Node};
use crate::world::stage::Context;

/// How long a full disk is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(50);
/// At most so many bytes are read at once.
const READ_BYTES: usize = 1 << 20;

/// What is wrong, for the world.
pub(super) type Findings = Rc<RefCell<Vec<String>>>;

/// A change, as it stands in the log.
#[derive(Debug, Serialize, Deserialize)]
struct Change {
    client: u32,
    number: u64,
    key: String,
    call: Call,
}

/// The last request of a client and what came of it.
struct Last {
    number: u64,
    outcome: Outcome,
    /// It may be told once this is durable.
    needs: Option<u64>,
}

struct Server {
    context: Context<Message>,
    log: Log<MachineDisk>,
    mistake: Option<Mistake>,
    registers: BTreeMap<String, Value>,
    lasts: BTreeMap<Node, Last>,
    /// Answers that wait for the log. One a client, since each waits for its answer.
    waiting: BTreeMap<Node, Last>,
    /// The sync that is under way, and when the disk will have done it.
    syncing: Option<(SyncWork, Instant)>,
    start: Instant,
    last_sync_ms: u64,
}

/// Serves until the process is killed, or its log stops.
pub(super) async fn serve(
    context: Context<Message>,
    disk: MachineDisk,
    boot: BootId,
    mistake: Option<Mistake>,
    findings: Findings,
) {
    let found = match open(&disk, boot).await {
        Ok(log) => Server::new(context, log, mistake),
        Err(error) => Err(error),
    };
    let served = match found {
        Ok(mut server) => server.serve(&disk).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served
        && !error.is_retryable()
    {
        findings.borrow_mut().push(format!("the log says: {error}"));
    }
}

async fn open(disk: &MachineDisk, boot: BootId) -> Result<Log<MachineDisk>, LogError> {
    let options = Options {
        segment_bytes: 4 << 10,
        policy: SyncPolicy::Interval { ms: 20 },
        ..Options::default()
    };
    loop {
        let opened = Log::open(disk.clone(), options, boot).and_then(|(mut log, _)| {
            // Nothing that is not durable was ever told, so what is there is the whole truth.
            log.settle_doubt()?;
            Ok(log)
        });
        match opened {
            Err(error) if error.is_retryable() => sleep(FULL_PAUSE).await,
            opened => return opened,
        }
    }
}

impl Server {
    fn new(
        context: Context<Message>,
        log: Log<MachineDisk>,
        mistake: Option<Mistake>,
    ) -> Result<Self, LogError> {
        let mut server = Self {
            context,
            log,
            mistake,
            registers: BTreeMap::new(),
            lasts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            syncing: None,
            start: Instant::now(),
            last_sync_ms: 0,
        };
        let mut next = 0;
        while next < server.log.next_index() {
            for entry in server.log.read(next..server.log.next_index(), READ_BYTES)? {
                next = entry.at.index + 1;
                if let Ok(change) = serde_json::from_slice::<Change>(&entry.payload) {
                    server.replay(&change, entry.at.index);
                }
            }
        }
        Ok(server)
    }

    fn replay(&mut self, change: &Change, index: u64) {
        if self.mistake == Some(Mistake::ReplayDiffers) && change.call == Call::Remove {
            return;
        }
        let last = Last {
            number: change.number,
            outcome: Outcome::Done,
            needs: Some(index),
        };
        self.apply(&change.key, change.call);
        self.lasts.insert(Node(change.client), last);
    }

    fn apply(&mut self, key: &str, call: Call) {
        match call {
            Call::Put(value) | Call::Upsert(value) => {
                self.registers.insert(key.to_owned(), value);
            }
            Call::Remove => {
                self.registers.remove(key);
            }
            Call::Get | Call::Exists => {}
        }
    }

    async fn serve(&mut self, disk: &MachineDisk) -> Result<(), LogError> {
        loop {
            let due = match &self.syncing {
                Some((_, until)) => Some(*until),
                None => {
                    let due = self.log.next_sync_ms(self.last_sync_ms);
                    due.map(|ms| self.start + Duration::from_millis(ms))
                }
            };
            let never = self.start + Duration::from_secs(1 << 30);
            tokio::select! {
                biased;
                arrival = self.context.inbox.recv() => match arrival {
                    Some(arrival) => self.hear(arrival)?,
                    None => return Ok(()),
                },
                () = sleep_until(due.unwrap_or(never)) => self.sync(disk)?,
            }
        }
    }

    /// Begins a sync, or ends the one that has taken its time. Requests are heard meanwhile.
    fn sync(&mut self, disk: &MachineDisk) -> Result<(), LogError> {
        if let Some((work, _)) = self.syncing.take() {
            self.log.finish_sync(work.run())?;
            self.tell();
            return Ok(());
        }
        let passed = self.start.elapsed().as_millis();
        self.last_sync_ms = u64::try_from(passed).unwrap_or(u64::MAX);
        if let Some(work) = self.log.begin_sync()? {
            let until = Instant::now() + Duration::from_nanos(disk.sync_ns());
            self.syncing = Some((work, until));
        }
        Ok(())
    }

    fn hear(&mut self, arrival: Arrival<Message>) -> Result<(), LogError> {
        let Message::Ask { number, key, call } = arrival.message else {
            return Ok(());
        };
        let client = arrival.from;
        let forgets = self.mistake == Some(Mistake::ForgetsRequests);
        if let Some(last) = self.lasts.get(&client).filter(|_| !forgets) {
            if last.number > number {
                return Ok(());
            }
            if last.number == number {
                let again = Last { ..*last };
                self.waiting.insert(client, again);
                self.tell();
                return Ok(());
            }
        }
        let outcome = self.judge(&key, call);
        let changes = outcome == Outcome::Done;
        let outcome = match changes.then(|| self.append(client, number, &key, call)) {
            Some(Err(error)) if error.is_retryable() => {
                if self.mistake == Some(Mistake::FullIsDone) {
                    Outcome::Done
                } else {
                    Outcome::Failed
                }
            }
            Some(Err(error)) => return Err(error),
            Some(Ok(())) => {
                self.apply(&key, call);
                outcome
            }
            None => outcome,
        };
        let last = self.log.last().map(|last| last.index);
        let needs = match self.mistake {
            Some(Mistake::ToldBeforeDurable) if changes => None,
            Some(Mistake::ReadBeforeDurable) if !changes => None,
            _ => last,
        };
        for place in [&mut self.lasts, &mut self.waiting] {
            let told = Last {
                number,
                outcome,
                needs,
            };
            place.insert(client, told);
        }
        self.tell();
        Ok(())
    }

    fn judge(&self, key: &str, call: Call) -> Outcome {
        match (call, self.registers.get(key)) {
            (Call::Put(_), Some(_)) => Outcome::AlreadyExists,
            (Call::Get, Some(value)) => Outcome::Got(*value),
            (Call::Exists, Some(_)) => Outcome::Present,
            (Call::Get | Call::Exists | Call::Remove, None) => Outcome::Missing,
            (Call::Put(_) | Call::Upsert(_) | Call::Remove, _) => Outcome::Done,
        }
    }

    fn append(&mut self, client: Node, number: u64, key: &str, call: Call) -> Result<(), LogError> {
        let change = Change {
            client: client.0,
            number,
            key: key.to_owned(),
            call,
        };
        let at = Position {
            term: 1,
            index: self.log.next_index(),
        };
        // A change of names and numbers can always be written down.
        let payload = serde_json::to_vec(&change).unwrap_or_default();
        self.log.append(&[Entry { at, payload }])
    }

    /// Sends what may be told by now.
    fn tell(&mut self) {
        let durable = self.log.durable().map(|durable| durable.index);
        let ready = |last: &Last| last.needs.is_none() || last.needs <= durable;
        let waiting = std::mem::take(&mut self.waiting);
        for (client, last) in waiting {
            if !ready(&last) {
                self.waiting.insert(client, last);
                continue;
            }
            let (number, outcome) = (last.number, last.outcome);
            let answer = Message::Answer { number, outcome };
            // Lost or not, the client asks again.
            let _ = self.context.send(client, answer);
        }
    }
}
