//! A holder for tests: segments with slabs of two tenants, both listeners and every transport.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_transfer::serve::{ServeMetrics, ServeOptions, serve_tcp, serve_unix};
use larder_transfer::transport::{
    FakeTransport, FaultPlan, Faulty, Metered, ReadDone, ReadOp, SessionSource, ShmOptions,
    ShmTransport, TcpOptions, TcpTransport, TransferMeter, Transport, WriteDone, WriteOp,
};
use larder_transfer::{LocalMs, Segments, SegmentsHandle, SlabMemory};
use larder_types::layout::{align_bytes, reserved_bytes};
use larder_types::{
    AgentId, AgentName, Epoch, Extent, Incarnation, Memo, PoolTime, Principal, Registration,
    SegmentId, SessionId, SlabRef, TenantId, Version,
};
use larder_wire::checksum::block_crcs;
use larder_wire::data::DataReason;
use larder_wire::{
    AgentKey, Capability, Kind, Reach, RootKey, SessionClaims, SessionSigner, SessionVerifier,
    SignedCapability,
};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::Instant;

pub(crate) const SLAB_BYTES: u64 = 16 * 1024 * 1024;
pub(crate) const EPOCH: Epoch = Epoch {
    generation: 3,
    term: 5,
};
pub(crate) const POOL_TIME: PoolTime = PoolTime(1_000_000);
pub(crate) const INCARNATION: Incarnation = Incarnation(0x1f2e_3d4c);

/// Runs a test on one thread, as an agent's data path does. Nothing here takes a minute; the
/// limit turns a hang into a failure.
pub(crate) fn on_one_thread<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let limit = Duration::from_secs(600);
        tokio::time::timeout(limit, test())
            .await
            .expect("the test hangs");
    });
}

/// Which transport a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Tcp,
    Shm,
    Fake,
    /// `Metered` and `Faulty` without faults, before tcp: decorators change nothing.
    Decorated,
}

/// Counts by `listener/what` or `kind/what`.
#[derive(Debug, Default)]
pub(crate) struct Counts(RefCell<BTreeMap<String, u64>>);

impl Counts {
    fn add(&self, name: String, by: u64) {
        *self.0.borrow_mut().entry(name).or_default() += by;
    }

    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.borrow().get(name).copied().unwrap_or(0)
    }
}

impl ServeMetrics for Counts {
    fn connected(&self, listener: &'static str) {
        self.add(format!("{listener}/connected"), 1);
    }
    fn greeted(&self, listener: &'static str) {
        self.add(format!("{listener}/greeted"), 1);
    }
    fn hello_failed(&self, listener: &'static str, reason: &'static str) {
        self.add(format!("{listener}/hello/{reason}"), 1);
    }
    fn closed(&self, listener: &'static str, reason: &'static str) {
        self.add(format!("{listener}/closed/{reason}"), 1);
    }
    fn refused(&self, kind: Kind, reason: DataReason) {
        self.add(format!("{kind:?}/{}", reason.label()), 1);
    }
    fn moved(&self, kind: Kind, bytes: u64) {
        self.add(format!("{kind:?}/bytes"), bytes);
        self.add(format!("{kind:?}/ops"), 1);
    }
}

/// Counts calls. A clone counts together with its origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<AtomicU64>);

impl TransferMeter for Meter {
    fn wrote(&self, _: &'static str, _: &'static str, _: u64, _: Duration) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn read(&self, _: &'static str, _: &'static str, _: u64, _: Duration) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Meter {
    pub(crate) fn calls(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An agent's data side, alive as long as this is.
pub(crate) struct Holder {
    pub(crate) segments: SegmentsHandle,
    pub(crate) options: ServeOptions,
    pub(crate) counts: Rc<Counts>,
    pub(crate) key: AgentKey,
    pub(crate) signer: SessionSigner,
    pub(crate) tcp_addr: String,
    pub(crate) unix_path: PathBuf,
    pub(crate) shutdown: watch::Sender<bool>,
    pub(crate) clock_ms: Rc<Cell<u64>>,
    folder: PathBuf,
    free_bytes: Cell<u64>,
    puts: Cell<u64>,
}

/// Two capabilities for one fresh extent.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) write: Capability,
    pub(crate) read: Capability,
}

impl Grant {
    pub(crate) fn bytes(&self) -> u64 {
        self.write.extent.length_bytes
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a name")
}

pub(crate) fn slab(index: u16) -> SlabRef {
    let (agent, segment) = (AgentId(7), SegmentId(2));
    SlabRef {
        agent,
        segment,
        index,
        registration: Registration(40 + u64::from(index)),
    }
}

/// Payload that differs from byte to byte and from seed to seed.
pub(crate) fn payload(bytes: u64, seed: u64) -> Bytes {
    let bytes = usize::try_from(bytes).expect("fits");
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let words = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()
    });
    let mut all: Vec<u8> = words.take(bytes.div_ceil(8)).flatten().collect();
    all.truncate(bytes);
    all.into()
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

/// A folder that nobody has; others of this process may be looking for one too.
fn fresh_folder() -> PathBuf {
    let names = (0..10_000).map(|n| format!("larder-transfer-{}-{n}", std::process::id()));
    let mut folders = names.map(|name| std::env::temp_dir().join(name));
    folders
        .find(|folder| std::fs::create_dir(folder).is_ok())
        .expect("a folder")
}

impl Holder {
    pub(crate) async fn start() -> Self {
        Self::start_as(INCARNATION, 64, None).await
    }

    pub(crate) async fn start_as(
        incarnation: Incarnation,
        connections_max: usize,
        view_bytes: Option<u64>,
    ) -> Self {
        let root = RootKey::new([9; 32]);
        let name = AgentName::new("pool-small-0").expect("a name");
        let key = root.agent_key(&name, incarnation, 1);
        let signer = SessionSigner::new(&root).expect("a signer");
        let verifier = SessionVerifier::new(signer.verify_key().expect("its key"));
        let mut segments = Segments::new(incarnation, EPOCH);
        let clock_ms = Rc::new(Cell::new(5_000));
        let now = LocalMs(clock_ms.get());
        segments
            .see_epoch(EPOCH, POOL_TIME, now)
            .expect("the first epoch");
        segments.mounted(AgentId(7), vec![SegmentId(2)], key.clone(), verifier);
        for (index, owner) in ["team-a", "team-b"].into_iter().enumerate() {
            let memory = SlabMemory::create("test", SLAB_BYTES).expect("memory");
            let index = u16::try_from(index).expect("small");
            segments.give_slab(slab(index), tenant(owner), Arc::new(memory), view_bytes);
        }
        let segments = SegmentsHandle::new(segments);
        let counts = Rc::new(Counts::default());
        let mut options = ServeOptions::new(incarnation, connections_max);
        let clock = Rc::clone(&clock_ms);
        options.clock = Rc::new(move || LocalMs(clock.get()));
        options.metrics = counts.clone();
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let tcp_addr = tcp.local_addr().expect("bound").to_string();
        let folder = fresh_folder();
        let unix_path = folder.join("agent.sock");
        let unix = UnixListener::bind(&unix_path).expect("a socket");
        let (shutdown, told) = watch::channel(false);
        let serving = serve_tcp(tcp, segments.clone(), options.clone(), told.clone());
        tokio::task::spawn_local(serving);
        tokio::task::spawn_local(serve_unix(unix, segments.clone(), options.clone(), told));
        Self {
            segments,
            options,
            counts,
            key,
            signer,
            tcp_addr,
            unix_path,
            shutdown,
            clock_ms,
            folder,
            free_bytes: Cell::new(0),
            puts: Cell::new(0),
        }
    }

    pub(crate) fn claims(&self, principal: Principal) -> SessionClaims {
        let session = SessionId(1);
        SessionClaims {
            principal,
            session,
            epoch: EPOCH,
            deadline: POOL_TIME.plus_ms(3_600_000),
        }
    }

    pub(crate) fn session(&self, name: &str) -> SessionSource {
        let claims = self.claims(Principal::Tenant(tenant(name)));
        let token = self.signer.sign(&claims).expect("signed");
        SessionSource::fixed(token.as_bytes().to_vec(), "test", Incarnation(77))
    }

    pub(crate) fn tcp(&self, name: &str) -> TcpTransport {
        let options = TcpOptions {
            incarnation: Some(INCARNATION),
            ..TcpOptions::default()
        };
        TcpTransport::new(self.tcp_addr.clone(), options, self.session(name))
    }

    pub(crate) async fn shm(&self, name: &str) -> ShmTransport {
        let session = self.session(name);
        let shm = ShmTransport::connect(self.unix_path.clone(), ShmOptions::default(), session);
        shm.await.expect("connected")
    }

    pub(crate) fn fake(&self, name: &str) -> FakeTransport {
        let (transport, agent) = FakeTransport::new();
        let clock = Rc::clone(&self.options.clock);
        tokio::task::spawn_local(agent.run(self.segments.clone(), tenant(name), clock));
        transport
    }

    pub(crate) async fn transport(&self, wire: Wire, name: &str) -> Box<dyn Transport> {
        match wire {
            Wire::Tcp => Box::new(self.tcp(name)),
            Wire::Shm => Box::new(self.shm(name).await),
            Wire::Fake => Box::new(self.fake(name)),
            Wire::Decorated => {
                let faulty = Faulty::new(self.tcp(name), FaultPlan::default());
                Box::new(Metered::new(faulty, Meter::default()))
            }
        }
    }

    /// Room for `bytes` in the slab of team-a, under a fresh version.
    pub(crate) fn grant(&self, bytes: u64) -> Grant {
        let at = self.free_bytes.get().next_multiple_of(align_bytes(bytes));
        assert!(at + bytes <= SLAB_BYTES, "the test needs a larger slab");
        self.free_bytes
            .set(at + reserved_bytes(bytes).expect("small"));
        self.grant_at(at, bytes)
    }

    pub(crate) fn grant_at(&self, offset_bytes: u64, length_bytes: u64) -> Grant {
        self.puts.set(self.puts.get() + 1);
        let write = Capability {
            tenant: tenant("team-a"),
            incarnation: self.options.incarnation,
            extent: Extent {
                slab: slab(0),
                offset_bytes,
                length_bytes,
            },
            version: Version {
                epoch: EPOCH,
                counter: self.puts.get(),
            },
            reach: Reach::Write,
            epoch: EPOCH,
            deadline: POOL_TIME.plus_ms(30_000),
            part: 0,
            parts: 1,
            object_bytes: length_bytes,
            key: format!("key-{}", self.puts.get()).into_bytes(),
            memo: Memo::default(),
        };
        let read = Capability {
            reach: Reach::Read,
            key: Vec::new(),
            ..write.clone()
        };
        Grant { write, read }
    }

    pub(crate) fn sign(&self, capability: &Capability) -> SignedCapability {
        SignedCapability::sign(capability, &self.key).expect("signed")
    }

    pub(crate) async fn put(&self, to: &dyn Transport, grant: &Grant, payload: &Bytes) {
        let done = write(to, self.sign(&grant.write), payload).await;
        let receipt = done.result.expect("written");
        receipt.verify(&self.key).expect("signed by the holder");
    }

    /// Waits until nothing of the segments is held.
    pub(crate) async fn until_unheld(&self) {
        loop {
            let stats = self.segments.with(|all| all.stats());
            if (stats.writes, stats.reads, stats.views) == (0, 0, 0) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a count reaches a number.
    pub(crate) async fn until(&self, name: &str, count: u64) {
        while self.counts.get(name) < count {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn unix_path(&self) -> &Path {
        &self.unix_path
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // A folder that stays in the temporary one harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn write_op(capability: SignedCapability, payload: &Bytes) -> WriteOp {
    WriteOp {
        capability,
        payload: payload.clone(),
        block_crcs: block_crcs(payload).into(),
        deadline: soon(),
    }
}

pub(crate) async fn write(
    to: &dyn Transport,
    capability: SignedCapability,
    payload: &Bytes,
) -> WriteDone {
    to.write(write_op(capability, payload)).await
}

pub(crate) fn read_op(capability: SignedCapability, offset_bytes: u64, length: u64) -> ReadOp {
    let buffer = BytesMut::new();
    ReadOp {
        capability,
        offset_bytes,
        length_bytes: length,
        buffer,
        deadline: soon(),
    }
}

pub(crate) async fn read(
    from: &dyn Transport,
    capability: SignedCapability,
    offset_bytes: u64,
    length: u64,
) -> ReadDone {
    from.read(read_op(capability, offset_bytes, length)).await
}
