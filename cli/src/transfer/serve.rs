//! `larder transfer serve`: offers memory until it is stopped.

use std::sync::Arc;

use larder_transfer::OwnMemory;
use larder_transfer::endpoint::Endpoint;
use larder_wire::engine::BufferAccess;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::LocalSet;

use super::{options, program, runtime};
use crate::args::Serve;
use crate::bytes_text::show_bytes;
use crate::error::CliError;
use crate::output::Output;

/// What peers may do.
const BOTH: BufferAccess = BufferAccess {
    read: true,
    write: true,
};

/// Serves until a signal.
pub(super) fn serve(asked: &Serve, output: &mut Output) -> Result<u8, CliError> {
    let options = options(&asked.secret_file)?;
    let memory = Arc::new(OwnMemory::create(asked.memory).map_err(program)?);
    let local = LocalSet::new();
    local.block_on(&runtime()?, async {
        let endpoint = Endpoint::new(options);
        let registered = endpoint.register(Arc::clone(&memory), BOTH, Vec::new());
        registered.map_err(program)?;
        let listener = TcpListener::bind(&asked.listen).await;
        let listener = listener.map_err(|source| CliError::System {
            action: "listen at the address of --listen",
            source,
        })?;
        let addr = listener.local_addr().map_err(program)?;
        let (stop, stopped) = watch::channel(false);
        let signals = signals(stop)?;
        let told = json!({ "addr": addr.to_string(), "memory_bytes": asked.memory });
        let human = format!(
            "{} at {addr}; Ctrl-C ends it. From elsewhere: larder transfer bench --peer {addr} \
             --secret-file FILE",
            show_bytes(asked.memory)
        );
        output.result(&told, &human)?;
        tokio::join!(endpoint.serve(listener, stopped), signals);
        Ok(0)
    })
}

/// Stops at the first signal that asks for it.
fn signals(stop: watch::Sender<bool>) -> Result<impl Future<Output = ()>, CliError> {
    let heard = |kind| {
        signal(kind).map_err(|source| CliError::System {
            action: "listen for signals",
            source,
        })
    };
    let mut interrupt = heard(SignalKind::interrupt())?;
    let mut terminate = heard(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // Nobody listens any more if it has ended already.
        let _ = stop.send(true);
    })
}
