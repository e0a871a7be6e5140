//! The operator's program: arguments, logs, the Lease, and everything started.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use kube::{Api, Client};
use larder_operator::config::Config;
use larder_operator::election::{self, Leadership, LeaseSettings};
use larder_operator::master_api::http::HttpMasters;
use larder_operator::master_api::tokens::Tokens;
use larder_operator::metrics::OperatorMetrics;
use larder_operator::{ClientHandle, Parts, probes, reasons};
use larder_telemetry::{Component, Registry, trace};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The operator of Larder.
#[derive(Debug, Parser)]
#[command(name = "larder-operator", version)]
struct Arguments {
    /// The configuration, a JSON file
    #[arg(long, required_unless_present = "print_reasons")]
    config: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    check_config: bool,
    /// Name of this pod; it holds the Lease under it
    #[arg(long, env = "POD_NAME", default_value = "larder-operator")]
    pod_name: String,
    /// Namespace of this pod; the Lease lies there
    #[arg(long, env = "POD_NAMESPACE", default_value = "larder-system")]
    pod_namespace: String,
    /// Print docs/conditions.md and exit
    #[arg(long, hide = true)]
    print_reasons: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let Some(path) = arguments
        .config
        .as_deref()
        .filter(|_| !arguments.print_reasons)
    else {
        print!("{}", reasons::page());
        return Ok(());
    };
    let config = Config::load(path)?;
    if arguments.check_config {
        return Ok(());
    }
    trace::init(config.log.format.parse()?, &config.log.filter)?;
    let mut settings = kube::Config::infer()
        .await
        .context("no Kubernetes API server was found")?;
    // Our own back-off tries again, and asks before each try whether this operator still leads.
    settings.default_retry = false;
    let client = Client::try_from(settings).context("the client of the API server")?;
    let (stop, stopped) = watch::channel(false);
    let ended = move || {
        let mut stopped = stopped.clone();
        async move { drop(stopped.wait_for(|stopped| *stopped).await) }
    };
    let registry = Registry::new(Component::Operator);
    let metrics = Arc::new(OperatorMetrics::new(registry.clone()));
    let (until, leadership) = Leadership::new(boot_clock);
    let listener = TcpListener::bind(&config.metrics_addr)
        .await
        .with_context(|| format!("cannot listen on {}", config.metrics_addr))?;
    let serving = tokio::spawn(probes::serve(
        listener,
        metrics.clone(),
        leadership.clone(),
        ended(),
    ));
    let lease = LeaseSettings::new("larder-operator", &arguments.pod_name);
    let leases = Api::namespaced(client.clone(), &arguments.pod_namespace);
    let electing = tokio::spawn(election::run(leases, lease, boot_clock, until, ended()));
    let operating = larder_operator::run(Parts {
        master_api: Arc::new(HttpMasters::new(Tokens::new(
            client.clone(),
            &arguments.pod_namespace,
            &config.service_account,
        ))),
        client: ClientHandle(client),
        leadership,
        registry,
        metrics,
        config,
        namespace: arguments.pod_namespace,
        identity: arguments.pod_name,
        now: jiff::Timestamp::now,
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        () = operating => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    // The controllers were dropped with `operating`, so giving the Lease back is the last write.
    stop.send_replace(true);
    electing.await?;
    serving.await??;
    Ok(())
}

/// A clock that only rises and goes on while the machine is suspended.
fn boot_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}
