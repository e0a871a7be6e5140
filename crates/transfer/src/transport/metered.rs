//! A decorator that tells what passes through a transport.

use std::time::Duration;

use tokio::time::Instant;

use super::{BoxFuture, ReadDone, ReadOp, Transport, WriteDone, WriteOp};

/// Is told of every finished call. `outcome` is `ok` or a label of
/// [`TransferError`](super::TransferError), `bytes` the length that was asked for.
pub trait TransferMeter: Send + Sync + std::fmt::Debug {
    /// A write ended.
    fn wrote(&self, transport: &'static str, outcome: &'static str, bytes: u64, took: Duration);

    /// A read ended.
    fn read(&self, transport: &'static str, outcome: &'static str, bytes: u64, took: Duration);
}

/// Counts the calls of `T`. A call that is dropped before its end is not counted.
#[derive(Debug)]
pub struct Metered<T, M> {
    inner: T,
    meter: M,
}

impl<T, M> Metered<T, M> {
    /// Puts `meter` before `inner`.
    pub const fn new(inner: T, meter: M) -> Self {
        Self { inner, meter }
    }

    /// The transport behind.
    pub const fn inner(&self) -> &T {
        &self.inner
    }
}

impl<T: Transport, M: TransferMeter> Transport for Metered<T, M> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn write(&self, op: WriteOp) -> BoxFuture<'_, WriteDone> {
        Box::pin(async move {
            let (started, bytes) = (Instant::now(), op.payload.len() as u64);
            let done = self.inner.write(op).await;
            let outcome = done
                .result
                .as_ref()
                .map_or_else(super::TransferError::label, |_| "ok");
            self.meter
                .wrote(self.name(), outcome, bytes, started.elapsed());
            done
        })
    }

    fn read(&self, op: ReadOp) -> BoxFuture<'_, ReadDone> {
        Box::pin(async move {
            let (started, bytes) = (Instant::now(), op.length_bytes);
            let done = self.inner.read(op).await;
            let outcome = done
                .result
                .as_ref()
                .map_or_else(super::TransferError::label, |_| "ok");
            self.meter
                .read(self.name(), outcome, bytes, started.elapsed());
            done
        })
    }
}
