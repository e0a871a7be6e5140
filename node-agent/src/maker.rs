//! Making slabs: threads of their own, one for each segment, since a slab's pages take their time.
//!
//! A page belongs to the NUMA node of the thread that touches it first, so each thread stays on
//! the processors of its node while it touches all pages of the slabs that it makes.

use std::fmt::Debug;
use std::sync::Arc;

use larder_telemetry::error_chain;
use larder_transfer::SlabMemory;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::sync::mpsc;

use crate::segment_plan::PlannedSegment;
use crate::step::MakeId;

/// Makes a slab's memory. A trait, so that a test can make it slow.
pub trait SlabMaker: Send + Sync + Debug {
    /// Makes `bytes` of memory with all pages there. May take seconds.
    ///
    /// # Errors
    /// A sentence for people and the master: what is short and what would be needed.
    fn make(&self, name: &str, bytes: u64) -> Result<SlabMemory, String>;
}

/// Makes memory files and touches every page.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemfdMaker;

impl SlabMaker for MemfdMaker {
    fn make(&self, name: &str, bytes: u64) -> Result<SlabMemory, String> {
        let memory = SlabMemory::create(name, bytes).map_err(|error| error_chain(&error))?;
        memory.prefault().map_err(|error| error_chain(&error))?;
        Ok(memory)
    }
}

/// An order for one slab.
#[derive(Debug)]
pub(crate) struct MakeOrder {
    pub(crate) make: MakeId,
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// What came of an order.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) make: MakeId,
    pub(crate) result: Result<SlabMemory, String>,
}

/// Orders that wait beyond one for each slab: those whose slab was taken back meanwhile.
const SPARE_ORDERS: usize = 64;

/// Starts a thread for each segment.
pub(crate) fn spawn_all(
    segments: &[PlannedSegment],
    maker: &Arc<dyn SlabMaker>,
    done: &mpsc::Sender<Made>,
) -> std::io::Result<Vec<mpsc::Sender<MakeOrder>>> {
    (0..)
        .zip(segments)
        .map(|(ordinal, segment)| spawn(ordinal, segment, Arc::clone(maker), done.clone()))
        .collect()
}

/// Starts the thread of one segment. It ends when the returned channel is dropped.
fn spawn(
    ordinal: usize,
    segment: &PlannedSegment,
    maker: Arc<dyn SlabMaker>,
    done: mpsc::Sender<Made>,
) -> std::io::Result<mpsc::Sender<MakeOrder>> {
    let (orders, mut waiting) =
        mpsc::channel::<MakeOrder>(segment.shape.slabs as usize + SPARE_ORDERS);
    let (numa, cpus) = (segment.shape.numa, segment.cpus.clone());
    std::thread::Builder::new()
        .name(format!("larder-make-{ordinal}"))
        .spawn(move || {
            stay_on(numa, &cpus);
            while let Some(MakeOrder { make, name, bytes }) = waiting.blocking_recv() {
                let result = maker.make(&name, bytes);
                if let Err(detail) = &result {
                    tracing::error!("slab {name} cannot be made: {detail}");
                }
                if done.blocking_send(Made { make, result }).is_err() {
                    return;
                }
            }
        })?;
    Ok(orders)
}

fn stay_on(numa: u16, cpus: &[u32]) {
    let mut set = CpuSet::new();
    let cpus = cpus.iter().filter_map(|cpu| usize::try_from(*cpu).ok());
    for cpu in cpus.filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    if set.count() == 0 {
        return;
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(
            "no processor of NUMA node {numa} may be used ({error}); its segment's memory comes \
             from wherever there is some"
        );
    }
}
