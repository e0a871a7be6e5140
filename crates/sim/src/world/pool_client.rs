//! A client of a pool: one operation after the other, by the protocol of real clients.
//!
//! put: start, write to every agent, end with the receipts. get: locate, read from one replica,
//! verify. It finds the leader by itself and says of each operation what it may say: an end or a
//! removal without an answer is of unknown outcome, and a put whose end was not answered is never
//! started again, only ended again, unless a master says that this version is none.

mod bytes;
mod master;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use larder_types::{AgentName, Incarnation, Key, Reason, TenantId};
use larder_wire::master::{
    Exists, Get, Located, PutEnd, PutEndItem, PutMode, PutStart, PutStartItem, PutStarted, Remove,
};
use larder_wire::{CallError, CallResult, Kind};
use tokio::time::{Instant, sleep};

use self::master::{MasterEnd, NoAnswer};
use super::network::Node;
use super::packet::Packet;
use super::stage::Context;
use super::work::{Step, bytes_of, value_of};
use crate::history::{Call, Outcome, Recorder};

/// How long it waits before it tries again what cannot be done now.
const PAUSE: Duration = Duration::from_millis(15);

/// How long an agent may take to move the bytes of an extent.
const AGENT_SILENT: Duration = Duration::from_millis(100);

/// What a client is started with.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Addresses of masters, and where they are.
    pub masters: Vec<(String, Node)>,
    /// Agents by name.
    pub agents: Vec<(AgentName, Node)>,
    /// Whose client it is.
    pub tenant: TenantId,
    /// What proves that to a master.
    pub credential: Vec<u8>,
    /// How many replicas its puts ask for.
    pub replicas: u8,
    /// How long it tries an operation.
    pub patience: Duration,
    /// A mistake: it removes again when it does not know whether it did.
    pub removes_again: bool,
}

struct Client {
    context: Context<Packet>,
    settings: ClientSettings,
    master: MasterEnd,
    next_number: u64,
}

/// Whether the end of a put can have worked.
enum Ended {
    Yes,
    No,
    Unknown,
}

/// Does all steps and takes down what it is told. The record is read when the client is done.
pub async fn run_client(
    context: Context<Packet>,
    settings: ClientSettings,
    steps: Vec<Step>,
    record: Rc<RefCell<Recorder>>,
) {
    let mut chance = context.seed.stream("client");
    let incarnation = Incarnation(chance.draw());
    let mut client = Client {
        master: MasterEnd::new(incarnation, chance.draw()),
        context,
        settings,
        next_number: 0,
    };
    for step in steps {
        sleep(Duration::from_nanos(step.think_ns)).await;
        let now_ns = client.context.face.true_ns();
        let begun = record.borrow_mut().begin(&step.key, step.call, now_ns);
        let Ok(token) = begun else { return };
        let outcome = client.act(&step).await;
        let now_ns = client.context.face.true_ns();
        // Each call has only outcomes of its own.
        let _misfit = record.borrow_mut().end(token, outcome, now_ns);
    }
}

/// Whether what was asked may be done all the same.
fn is_open(error: &CallError) -> bool {
    matches!(error.reason, Reason::DeadlinePassed | Reason::Internal)
}

impl Client {
    async fn act(&mut self, step: &Step) -> Outcome {
        let until = Instant::now() + self.settings.patience;
        let Ok(key) = Key::try_from(step.key.as_str()) else {
            return Outcome::Failed;
        };
        match step.call {
            Call::Put(value) => {
                self.put(
                    key,
                    bytes_of(value, step.size_bytes),
                    PutMode::Create,
                    until,
                )
                .await
            }
            Call::Upsert(value) => {
                let mode = PutMode::Upsert { if_unleased: false };
                self.put(key, bytes_of(value, step.size_bytes), mode, until)
                    .await
            }
            Call::Get => self.get(key, until).await,
            Call::Remove => self.remove(key, until).await,
            Call::Exists => self.exists(key, until).await,
        }
    }

    /// One call for one key: the answer for that key.
    async fn ask<T: serde::de::DeserializeOwned>(
        &mut self,
        kind: Kind,
        body: &impl serde::Serialize,
        until: Instant,
    ) -> Result<CallResult<T>, NoAnswer> {
        let Self {
            context,
            settings,
            master,
            ..
        } = self;
        master.call(context, settings, kind, body, until).await
    }

    async fn put(&mut self, key: Key, bytes: Vec<u8>, mode: PutMode, until: Instant) -> Outcome {
        while Instant::now() < until {
            let item = PutStartItem {
                key: key.clone(),
                size_bytes: bytes.len() as u64,
                replicas: self.settings.replicas,
                preferred: Vec::new(),
                mode,
                strict: false,
                attributes: larder_types::Attributes::default(),
            };
            let start = PutStart { items: vec![item] };
            let started = self.ask::<PutStarted>(Kind::PutStart, &start, until).await;
            let grant = match started {
                Ok(Ok(mut started)) => started.grants.pop().map(|grant| (started.agents, grant)),
                Ok(Err(_)) | Err(NoAnswer) => None,
            };
            let (agents, grant) = match grant {
                Some((agents, Ok(grant))) => (agents, grant),
                Some((_, Err(error))) if error.reason == Reason::AlreadyExists => {
                    return Outcome::AlreadyExists;
                }
                Some((_, Err(error))) if !error.reason.is_retryable() => return Outcome::Failed,
                _ => {
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let Some(receipts) = self.write(&agents, &grant.replicas, &bytes, until).await else {
                sleep(PAUSE).await;
                continue;
            };
            let item = PutEndItem {
                key: key.clone(),
                version: grant.version,
                receipts,
            };
            match self.end(PutEnd { items: vec![item] }, until).await {
                Ended::Yes => return Outcome::Done,
                Ended::Unknown => return Outcome::Unknown,
                Ended::No => sleep(PAUSE).await,
            }
        }
        Outcome::Failed
    }

    async fn end(&mut self, end: PutEnd, until: Instant) -> Ended {
        let mut is_unknown = false;
        while Instant::now() < until {
            let ended = self
                .ask::<Vec<CallResult<()>>>(Kind::PutEnd, &end, until)
                .await;
            let ended = ended.map(|all| all.map(|mut items| items.pop()));
            match ended {
                Ok(Ok(Some(Ok(())))) => return Ended::Yes,
                // A leader says so of a version that is not complete, and that never will be: it
                // has applied all that former leaders committed.
                Ok(Ok(Some(Err(error)))) if error.reason == Reason::StaleEpoch => return Ended::No,
                Ok(Ok(Some(Err(error)))) if !error.reason.is_retryable() => {
                    return if is_unknown {
                        Ended::Unknown
                    } else {
                        Ended::No
                    };
                }
                Ok(Ok(Some(Err(error))) | Err(error)) => is_unknown |= is_open(&error),
                Ok(Ok(None)) | Err(NoAnswer) => is_unknown = true,
            }
            sleep(PAUSE).await;
        }
        Ended::Unknown
    }

    async fn get(&mut self, key: Key, until: Instant) -> Outcome {
        while Instant::now() < until {
            let keys = vec![key.clone()];
            let located = self.ask::<Located>(Kind::Get, &Get { keys }, until).await;
            if let Ok(Ok(mut located)) = located {
                match located.objects.pop() {
                    Some(Ok(object)) => {
                        let read = self.read(&located.agents, &object, until).await;
                        if let Some(bytes) = read {
                            return value_of(&bytes).map_or(Outcome::Garbled, Outcome::Got);
                        }
                    }
                    Some(Err(error)) if error.reason == Reason::NotFound => {
                        return Outcome::Missing;
                    }
                    _ => {}
                }
            }
            sleep(PAUSE).await;
        }
        Outcome::Failed
    }

    async fn remove(&mut self, key: Key, until: Instant) -> Outcome {
        while Instant::now() < until {
            let remove = Remove {
                keys: vec![key.clone()],
                if_unleased: false,
            };
            let removed = self
                .ask::<Vec<CallResult<()>>>(Kind::Remove, &remove, until)
                .await;
            match removed.map(|all| all.map(|mut items| items.pop())) {
                Ok(Ok(Some(Ok(())))) => return Outcome::Done,
                Ok(Ok(Some(Err(error)))) if error.reason == Reason::NotFound => {
                    return Outcome::Missing;
                }
                // To ask again could remove what another client wrote meanwhile.
                Ok(Ok(Some(Err(error))) | Err(error))
                    if is_open(&error) && !self.settings.removes_again =>
                {
                    return Outcome::Unknown;
                }
                Ok(Ok(None)) | Err(NoAnswer) if !self.settings.removes_again => {
                    return Outcome::Unknown;
                }
                _ => sleep(PAUSE).await,
            }
        }
        Outcome::Failed
    }

    async fn exists(&mut self, key: Key, until: Instant) -> Outcome {
        while Instant::now() < until {
            let exists = Exists {
                keys: vec![key.clone()],
                lease: false,
            };
            let told = self
                .ask::<Vec<CallResult<bool>>>(Kind::Exists, &exists, until)
                .await;
            if let Ok(Ok(mut items)) = told
                && let Some(Ok(is_there)) = items.pop()
            {
                return if is_there {
                    Outcome::Present
                } else {
                    Outcome::Missing
                };
            }
            sleep(PAUSE).await;
        }
        Outcome::Failed
    }
}
