//! `larder transfer serve`: offers memory until it is stopped.

use std::sync::Arc;

use larder_transfer::OwnMemory;
use larder_transfer::endpoint::Endpoint;
use larder_transfer::interop;
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
        let stock = match &asked.mooncake_listen {
            Some(listen) => Some(Stock::bind(listen).await?),
            None => None,
        };
        let told = json!({
            "addr": addr.to_string(),
            "memory_bytes": asked.memory,
            "address": memory.address(),
            "mooncake_addr": stock.as_ref().map(|stock| stock.name.clone()),
        });
        let human = format!(
            "{} at {addr}; Ctrl-C ends it. From elsewhere: larder transfer bench --peer {addr} \
             --secret-file FILE",
            show_bytes(asked.memory)
        );
        output.result(&told, &human)?;
        let of_stock = async {
            match stock {
                Some(stock) => stock.serve(&endpoint, stopped.clone()).await,
                None => Ok(()),
            }
        };
        let served = endpoint.serve(listener, stopped.clone());
        let ((), (), of_stock) = tokio::join!(served, signals, of_stock);
        of_stock.map(|()| 0)
    })
}

/// The two ports of stock engines.
struct Stock {
    name: String,
    host: String,
    handshakes: TcpListener,
    data: TcpListener,
}

impl Stock {
    async fn bind(listen: &str) -> Result<Self, CliError> {
        let wrong = |source| CliError::System {
            action: "listen at the address of --mooncake-listen",
            source,
        };
        let (host, _) = listen
            .rsplit_once(':')
            .ok_or_else(|| CliError::Usage("--mooncake-listen takes host:port".to_owned()))?;
        let handshakes = TcpListener::bind(listen).await.map_err(wrong)?;
        let data = TcpListener::bind(format!("{host}:0"))
            .await
            .map_err(wrong)?;
        let port = handshakes.local_addr().map_err(wrong)?.port();
        Ok(Self {
            name: format!("{host}:{port}"),
            host: host.to_owned(),
            handshakes,
            data,
        })
    }

    async fn serve(
        self,
        endpoint: &Endpoint,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), CliError> {
        let options = interop::ListenOptions::new(self.name, self.host);
        let space = endpoint.address_space();
        let served = interop::serve(self.handshakes, self.data, space, options, stopped).await;
        served.map_err(program)
    }
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
