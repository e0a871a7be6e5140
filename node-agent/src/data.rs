//! The data thread: owns the segments, serves both listeners, obeys the control side.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use larder_telemetry::Registry;
use larder_transfer::serve::{ServeOptions, boot_clock, serve_tcp, serve_unix};
use larder_transfer::{InventoryCursor, InventoryPage, Segments, SegmentsHandle, SlabMemory};
use larder_types::{AgentName, Epoch, Incarnation, SlabRef, TenantId};
use larder_wire::agent::Event as Outcome;
use larder_wire::limit::MAX_BATCH;
use larder_wire::{AgentKey, SessionVerifier};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;

use crate::copier::{Copier, Myself};
use crate::load::LoadMeter;
use crate::metrics::{SegmentGauges, ServeCounters};
use crate::step::DataOrder;

/// What the data thread is told.
#[derive(Debug)]
pub(crate) enum DataMessage {
    /// Anything but giving a slab.
    Order(DataOrder),
    /// Give a slab its memory.
    Give {
        slab: SlabRef,
        tenant: TenantId,
        memory: Arc<SlabMemory>,
        view_bytes: Option<u64>,
    },
    /// Say what there is, a page of it.
    List(Option<InventoryCursor>, oneshot::Sender<InventoryPage>),
    /// Bring the gauges of the segments up to date, and say when it is done.
    Show(oneshot::Sender<()>),
}

/// What the data thread starts with.
#[derive(Debug)]
pub(crate) struct DataStart {
    pub(crate) name: AgentName,
    pub(crate) incarnation: Incarnation,
    pub(crate) epoch: Epoch,
    pub(crate) tcp: TcpListener,
    pub(crate) unix: UnixListener,
    pub(crate) connections: usize,
    /// How many extents may be described; `None` is no limit.
    pub(crate) records: Option<u64>,
    /// Where the master gives no limit of its own.
    pub(crate) view_bytes: Option<u64>,
    pub(crate) registry: Registry,
    pub(crate) messages: mpsc::Receiver<DataMessage>,
    pub(crate) outcomes: mpsc::Sender<Vec<Outcome>>,
    /// Turns true when no new connection shall be accepted.
    pub(crate) stop: watch::Receiver<bool>,
}

/// Starts the thread. It ends when its channel of messages is dropped, after connections had two
/// seconds to finish their frame.
pub(crate) fn spawn(start: DataStart) -> std::io::Result<(DataThread, LoadMeter)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let load = LoadMeter::new(runtime.metrics());
    let thread = std::thread::Builder::new()
        .name("larder-data".to_owned())
        .spawn(move || LocalSet::new().block_on(&runtime, serve(start)))?;
    Ok((thread, load))
}

/// The running thread.
pub(crate) type DataThread = JoinHandle<std::io::Result<()>>;

async fn serve(start: DataStart) -> std::io::Result<()> {
    let mut segments = Segments::new(start.incarnation, start.epoch);
    if let Some(records) = start.records {
        segments.limit_records(records);
    }
    let segments = SegmentsHandle::new(segments);
    let mut options = ServeOptions::new(start.incarnation, start.connections);
    options.name = start.name.as_str().into();
    options.metrics = Rc::new(ServeCounters::new(&start.registry));
    let tcp = tokio::net::TcpListener::from_std(start.tcp)?;
    let unix = tokio::net::UnixListener::from_std(start.unix)?;
    let mut listeners = tokio::task::JoinSet::new();
    let (again, stop) = (segments.clone(), start.stop.clone());
    listeners.spawn_local(serve_tcp(tcp, again, options.clone(), stop));
    listeners.spawn_local(serve_unix(
        unix,
        segments.clone(),
        options.clone(),
        start.stop,
    ));
    let gauges_registry = start.registry.clone();
    let (gauges, view_bytes) = (SegmentGauges::new(start.registry), start.view_bytes);
    let copier = Copier::new(
        segments.clone(),
        Myself {
            name: start.name,
            incarnation: start.incarnation,
        },
        options.events.clone(),
        &gauges_registry,
    );
    let mut desk = Desk {
        copier,
        segments,
        options,
        gauges,
        view_bytes,
        refused: Vec::new(),
    };
    let (mut messages, outcomes) = (start.messages, start.outcomes);
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => desk.obey(message),
                None => break,
            },
            () = desk.options.events.notified() => {}
        }
        // A batch of commands is answered together.
        for _ in 0..MAX_BATCH {
            let Ok(message) = messages.try_recv() else {
                break;
            };
            desk.obey(message);
        }
        let mut happened = desk.segments.with(Segments::take_events);
        happened.append(&mut desk.refused);
        happened.append(&mut desk.copier.take_outcomes());
        while !happened.is_empty() {
            let rest = happened.split_off(happened.len().min(MAX_BATCH));
            if outcomes.send(happened).await.is_err() {
                break;
            }
            happened = rest;
        }
    }
    while listeners.join_next().await.is_some() {}
    Ok(())
}

struct Desk {
    copier: Copier,
    segments: SegmentsHandle,
    options: ServeOptions,
    gauges: SegmentGauges,
    view_bytes: Option<u64>,
    /// Slabs that the segments passed over; at most one for each message of a batch.
    refused: Vec<Outcome>,
}

impl Desk {
    fn obey(&mut self, message: DataMessage) {
        match message {
            DataMessage::Order(order) => self.obey_order(order),
            DataMessage::Give {
                slab,
                tenant,
                memory,
                view_bytes,
            } => {
                let view_bytes = view_bytes.or(self.view_bytes);
                let given = self.segments.with(|all| {
                    all.give_slab(slab, tenant, memory, view_bytes);
                    all.has_slab(slab)
                });
                if !given {
                    let detail = "this life of the slab is over".to_owned();
                    self.refused.push(Outcome::SlabFailed { slab, detail });
                }
            }
            DataMessage::List(from, page) => {
                // Whoever asked may have begun anew.
                let _ = page.send(self.segments.with(|all| all.inventory_page(from)));
            }
            DataMessage::Show(done) => {
                self.segments.with(|all| self.gauges.show(all));
                // Whoever asked may have given up.
                let _ = done.send(());
            }
        }
    }

    fn obey_order(&mut self, order: DataOrder) {
        match order {
            DataOrder::Mounted(mounted) => {
                let key = AgentKey::new(mounted.capability_key, mounted.key_id);
                let verifier = SessionVerifier::new(mounted.session_key);
                self.segments.with(|all| {
                    all.mounted(mounted.agent, mounted.segments, key, verifier);
                });
            }
            DataOrder::SeeEpoch {
                epoch,
                pool_time,
                heard,
                keeps,
            } => {
                let seen = self.segments.with(|all| {
                    if keeps {
                        all.see_epoch_keeping(epoch, pool_time, heard)
                    } else {
                        all.see_epoch(epoch, pool_time, heard)
                    }
                });
                // The control side lets nothing lower through.
                if let Err(error) = seen {
                    tracing::error!(%error, "an epoch of the past came through the gate");
                }
            }
            DataOrder::Take(slab) => self.segments.with(|all| all.take_slab(slab)),
            DataOrder::Erase(extent, version) => {
                self.segments.with(|all| all.erase(extent, version));
            }
            DataOrder::Copy(order) => self.copier.begin(*order),
            DataOrder::TenantGone(tenant) => {
                self.segments.with(|all| all.tenant_gone(&tenant));
                self.options.connections.close_tenant(&tenant);
            }
            // The control side sends where to put the page with it.
            DataOrder::List { walk, .. } => {
                tracing::error!(?walk, "a page was asked for by nobody");
            }
            // The control side sends the memory with it.
            DataOrder::Give { slab, .. } => {
                tracing::error!(?slab, "a slab was given without memory");
            }
        }
    }
}

/// The clock that segments, capabilities and the control side share.
pub(crate) fn now() -> larder_transfer::LocalMs {
    boot_clock()
}
