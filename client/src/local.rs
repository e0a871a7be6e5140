//! The agent on this node: its Unix socket, connected anew whenever it breaks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_transfer::transport::{SessionSource, ShmOptions, ShmTransport};
use larder_types::{AgentName, Incarnation};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::session::pause;

/// How long a new client waits for the local agent, which answers within a few milliseconds.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// What follows from having none.
const BY_TCP: &str = "all bytes go by tcp until it does";
/// The longest pause between two attempts to reach the local agent: it may be gone for good.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The connection to the local agent, owned by a task.
#[derive(Debug)]
pub(crate) struct Local {
    state: watch::Receiver<State>,
    /// One word is enough: more say the same.
    broken: Option<mpsc::Sender<()>>,
}

/// The local agent in one life of its process.
#[derive(Clone, Debug)]
pub(crate) struct LocalAgent {
    /// As it calls itself.
    pub(crate) name: Option<AgentName>,
    pub(crate) incarnation: Incarnation,
    pub(crate) transport: Arc<ShmTransport>,
}

#[derive(Clone, Debug)]
enum State {
    Off,
    Connecting,
    Up(LocalAgent),
    Down(String),
}

impl Local {
    /// No local agent is wanted.
    pub(crate) fn off() -> Self {
        Self {
            state: watch::channel(State::Off).1,
            broken: None,
        }
    }

    /// Starts the task that connects and stays connected. It ends with this value.
    pub(crate) fn start(socket: PathBuf, session: SessionSource) -> Self {
        let (state, watch) = watch::channel(State::Connecting);
        let (broken, failures) = mpsc::channel(1);
        tokio::spawn(keep(socket, session, state, failures));
        Self {
            state: watch,
            broken: Some(broken),
        }
    }

    /// Waits until the first attempt has ended, but not as long as a call may take; says so if it
    /// failed or takes longer, because then every byte travels by tcp.
    pub(crate) async fn settled(&mut self, call: Duration) {
        let first = self
            .state
            .wait_for(|state| !matches!(state, State::Connecting));
        match timeout(call.min(SETTLE_MAX), first).await {
            Ok(Ok(state)) => {
                if let State::Down(why) = &*state {
                    tracing::warn!(%why, "the agent on this node cannot be reached; {BY_TCP}");
                }
            }
            Ok(Err(_)) => {}
            Err(_) => tracing::warn!("the agent on this node does not answer yet; {BY_TCP}"),
        }
    }

    pub(crate) fn current(&self) -> Option<LocalAgent> {
        match &*self.state.borrow() {
            State::Up(agent) => Some(agent.clone()),
            _ => None,
        }
    }

    pub(crate) fn why_not(&self) -> String {
        match &*self.state.borrow() {
            State::Off => "no socket of an agent on this node was given".to_owned(),
            State::Connecting => "the agent on this node is being connected".to_owned(),
            State::Down(why) => why.clone(),
            State::Up(_) => "the agent on this node does not hold it".to_owned(),
        }
    }

    pub(crate) fn reconnect(&self) {
        if let Some(broken) = &self.broken {
            // A full queue says it already.
            let _ = broken.try_send(());
        }
    }
}

async fn keep(
    socket: PathBuf,
    session: SessionSource,
    state: watch::Sender<State>,
    mut failures: mpsc::Receiver<()>,
) {
    let mut attempt = 0;
    loop {
        match connect(&socket, &session).await {
            Ok(agent) => {
                attempt = 0;
                state.send_replace(State::Up(agent));
                if failures.recv().await.is_none() {
                    return;
                }
                state.send_replace(State::Down("its connection broke".to_owned()));
            }
            Err(why) => {
                state.send_replace(State::Down(why));
            }
        }
        attempt += 1;
        let doubled = pause(attempt, rand::random()).saturating_mul(1 << attempt.min(4));
        tokio::select! {
            () = state.closed() => return,
            () = tokio::time::sleep(doubled.min(RETRY_MAX)) => {}
        }
        // What failed before this attempt says nothing about the next connection.
        while failures.try_recv().is_ok() {}
    }
}

async fn connect(socket: &Path, session: &SessionSource) -> Result<LocalAgent, String> {
    let connected =
        ShmTransport::connect(socket.to_owned(), ShmOptions::default(), session.clone()).await;
    match connected {
        Ok(transport) => Ok(LocalAgent {
            name: AgentName::new(transport.agent_name()).ok(),
            incarnation: transport.incarnation(),
            transport: Arc::new(transport),
        }),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Err(cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// It waits no longer than a call may take: the hello of the agent is still open then.
    #[tokio::test]
    async fn a_silent_agent_does_not_hold_a_client_up() {
        let name = format!("larder-silent-{}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let silent = UnixListener::bind(&socket).expect("a socket");
        let session = SessionSource::fixed(Vec::new(), "test", Incarnation(1));
        let mut local = Local::start(socket.clone(), session);
        local.settled(Duration::from_millis(1)).await;
        assert!(local.current().is_none());
        assert_eq!(local.why_not(), "the agent on this node is being connected");
        drop(silent);
        std::fs::remove_file(socket).expect("removed");
    }
}
