//! A decorator that breaks calls by a seed: the same seed breaks the same calls in the same way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use larder_wire::FrameError;
use larder_wire::checksum::block_crcs;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep_until};

use super::{BoxFuture, ReadDone, ReadOp, TransferError, Transport, WriteDone, WriteOp};

/// How often which fault happens, each in thousandths of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Where the choices start.
    pub seed: u64,
    /// The connection breaks before the agent hears of the call.
    pub lose_before: u16,
    /// The connection breaks after the agent has done the call.
    pub lose_after: u16,
    /// The call takes longer.
    pub delay: u16,
    /// The longest delay, in ms.
    pub delay_max_ms: u64,
    /// One bit of the payload flips on the way.
    pub flip: u16,
    /// The payload ends early.
    pub truncate: u16,
}

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    LoseBefore,
    LoseAfter,
    Delay(Duration),
    Flip(u64),
    Truncate,
}

/// Breaks the calls of `T`.
#[derive(Debug)]
pub struct Faulty<T> {
    inner: T,
    plan: FaultPlan,
    calls: AtomicU64,
    broken: AtomicU64,
}

impl<T> Faulty<T> {
    /// Puts faults before `inner`.
    pub const fn new(inner: T, plan: FaultPlan) -> Self {
        Self {
            inner,
            plan,
            calls: AtomicU64::new(0),
            broken: AtomicU64::new(0),
        }
    }

    /// How many calls something went wrong with.
    pub fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }

    fn next_fault(&self) -> Fault {
        // Each call has its own generator, so that calls at the same time need no lock and get
        // the same faults whatever order their steps take.
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut rng = SmallRng::seed_from_u64(self.plan.seed ^ call.wrapping_mul(0x9e37_79b9));
        let fault = self.plan.choose(&mut rng);
        if fault != Fault::None {
            self.broken.fetch_add(1, Ordering::Relaxed);
        }
        fault
    }
}

impl FaultPlan {
    fn choose(&self, rng: &mut SmallRng) -> Fault {
        let mut dice = rng.random_range(0..1000_u16);
        let faults = [
            (self.lose_before, Fault::LoseBefore),
            (self.lose_after, Fault::LoseAfter),
            (
                self.delay,
                Fault::Delay(Duration::from_millis(
                    rng.random_range(0..=self.delay_max_ms),
                )),
            ),
            (self.flip, Fault::Flip(rng.random())),
            (self.truncate, Fault::Truncate),
        ];
        for (often, fault) in faults {
            match dice.checked_sub(often) {
                Some(rest) => dice = rest,
                None => return fault,
            }
        }
        Fault::None
    }
}

/// Changes one bit of `bytes`.
fn flip(bytes: &mut [u8], choice: u64) {
    let bits = bytes.len() as u64 * 8;
    if let Some(bit) = choice.checked_rem(bits)
        && let Some(byte) = usize::try_from(bit / 8)
            .ok()
            .and_then(|at| bytes.get_mut(at))
    {
        *byte ^= 1 << (bit % 8);
    }
}

/// Waits, or until the caller gives up.
async fn delayed(by: Duration, deadline: Instant) -> Result<(), TransferError> {
    let until = Instant::now() + by;
    sleep_until(until.min(deadline)).await;
    if until > deadline {
        Err(TransferError::DeadlinePassed)
    } else {
        Ok(())
    }
}

impl<T: Transport> Transport for Faulty<T> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn write(&self, mut op: WriteOp) -> BoxFuture<'_, WriteDone> {
        let fault = self.next_fault();
        Box::pin(async move {
            let payload = op.payload.clone();
            match fault {
                Fault::None => return self.inner.write(op).await,
                Fault::LoseBefore => {
                    return WriteDone {
                        payload,
                        result: Err(TransferError::ConnectionLost),
                    };
                }
                Fault::Delay(by) => {
                    if let Err(error) = delayed(by, op.deadline).await {
                        return WriteDone {
                            payload,
                            result: Err(error),
                        };
                    }
                }
                Fault::LoseAfter => {}
                Fault::Flip(choice) => {
                    let mut changed = BytesMut::from(&op.payload[..]);
                    flip(&mut changed, choice);
                    op.payload = changed.freeze();
                }
                Fault::Truncate => op.payload.truncate(op.payload.len() / 2),
            }
            let done = self.inner.write(op).await;
            let result = match fault {
                Fault::LoseAfter => Err(TransferError::ConnectionLost),
                _ => done.result,
            };
            WriteDone { payload, result }
        })
    }

    fn read(&self, op: ReadOp) -> BoxFuture<'_, ReadDone> {
        let fault = self.next_fault();
        Box::pin(async move {
            let before = op.buffer.len();
            match fault {
                Fault::LoseBefore => {
                    let result = Err(TransferError::ConnectionLost);
                    return ReadDone {
                        buffer: op.buffer,
                        result,
                    };
                }
                Fault::Delay(by) => {
                    if let Err(error) = delayed(by, op.deadline).await {
                        return ReadDone {
                            buffer: op.buffer,
                            result: Err(error),
                        };
                    }
                }
                _ => {}
            }
            let mut done = self.inner.read(op).await;
            let Ok(facts) = &done.result else { return done };
            let wrong = match fault {
                Fault::LoseAfter => Some(TransferError::ConnectionLost),
                Fault::Truncate => Some(FrameError::Truncated.into()),
                Fault::Flip(choice) => {
                    // The same check as behind a real wire.
                    flip(&mut done.buffer[before..], choice);
                    let right = block_crcs(&done.buffer[before..]) == facts.block_crcs;
                    (!right).then_some(TransferError::Corrupt)
                }
                _ => None,
            };
            if let Some(error) = wrong {
                done.buffer.truncate(before);
                done.result = Err(error);
            }
            done
        })
    }
}
