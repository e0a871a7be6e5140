//! One operator writes at a time: a Lease, judged by a monotonic clock and never by wall time.
//!
//! [`Elector`] decides and knows no I/O; [`run`] reads and writes the Lease. Whoever writes asks
//! [`Leadership`] first (see `gate.rs`), so an operator that was paused for longer than its lease
//! stops before its next write. A crate for this exists (`kube-lease-manager`), but it compares
//! the wall clocks of two machines, which nothing keeps in step.

mod elector;

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::watch;

pub use elector::{Elector, Move, Seen};

/// Now, on a clock that only rises; it goes on while the machine is suspended.
pub type Clock = fn() -> Duration;

/// How the Lease is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Name of the Lease.
    pub name: String,
    /// Who this operator is: the name of its pod.
    pub identity: String,
    /// Others take the Lease when it stood still for this long.
    pub duration: Duration,
    /// The holder stops writing when it could not renew for this long; well below `duration`, so
    /// that a write that left just before has arrived when another takes over.
    pub renew_deadline: Duration,
    /// Pause between two looks.
    pub retry: Duration,
}

impl LeaseSettings {
    /// 15 s, 10 s and 2 s, as Kubernetes' own components have it.
    #[must_use]
    pub fn new(name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Whether this operator may write. A clone looks at the same lease.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: watch::Receiver<Option<Duration>>,
    clock: Clock,
}

impl Leadership {
    /// A leadership that its sender grants until a time of `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> (watch::Sender<Option<Duration>>, Self) {
        let (sender, until) = watch::channel(None);
        (sender, Self { until, clock })
    }

    /// Whether it may write right now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.until
            .borrow()
            .is_some_and(|until| (self.clock)() < until)
    }

    /// Returns once it may write.
    pub async fn held(&self) {
        let mut until = self.until.clone();
        let clock = self.clock;
        let held = |until: &Option<Duration>| until.is_some_and(|until| clock() < until);
        // The value behind the answer is a lock; it must not live over the next wait.
        let is_orphaned = until.wait_for(held).await.is_err();
        if is_orphaned {
            // Nobody can grant it any more.
            std::future::pending::<()>().await;
        }
    }

    /// Returns once it may no longer write.
    pub async fn lost(&self) {
        let mut until = self.until.clone();
        loop {
            let end = *until.borrow_and_update();
            let Some(end) = end else { return };
            let left = end.saturating_sub((self.clock)());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                changed = until.changed() => if changed.is_err() {
                    tokio::time::sleep(left).await;
                    return;
                },
            }
        }
    }
}

/// Takes and renews the Lease until `stop`, then gives it back.
pub async fn run(
    api: Api<Lease>,
    settings: LeaseSettings,
    clock: Clock,
    until: watch::Sender<Option<Duration>>,
    stop: impl Future<Output = ()>,
) {
    let mut elector = Elector::new(settings.clone());
    let mut stop = std::pin::pin!(stop);
    loop {
        // Taken before the call leaves: what it grants counts from here.
        let before = clock();
        let turn = async {
            match turn(&api, &mut elector, clock, before).await {
                Ok(()) => {}
                Err(error) => tracing::warn!(%error, "the lease could not be read or written"),
            }
            elector.held_until()
        };
        // A call that hangs must not keep the holder from noticing that its time is up.
        let turned = tokio::time::timeout(settings.renew_deadline, turn).await;
        let held = turned.unwrap_or_else(|_| elector.held_until());
        until.send_if_modified(|known| std::mem::replace(known, held) != held);
        tokio::select! {
            () = tokio::time::sleep(settings.retry) => {}
            () = &mut stop => break,
        }
    }
    until.send_replace(None);
    if let Some(lease) = elector.release() {
        let freed = write(&api, &settings, &lease, None).await;
        if let Err(error) = freed {
            tracing::warn!(%error, "the lease was not given back; it runs out by itself");
        }
    }
}

async fn turn(
    api: &Api<Lease>,
    elector: &mut Elector,
    clock: Clock,
    before: Duration,
) -> Result<(), kube::Error> {
    let found = api.get_opt(&elector.settings().name).await?;
    let seen = found.as_ref().map(seen);
    let settings = elector.settings().clone();
    let step = elector.look(seen, clock());
    let written = match &step {
        Move::Wait => return Ok(()),
        Move::Create => {
            let lease = body(&settings, None, Some(&settings.identity), 0);
            api.create(&PostParams::default(), &lease).await
        }
        Move::Take(seen) | Move::Renew(seen) => {
            write(api, &settings, seen, Some(&settings.identity)).await
        }
    };
    match written {
        Ok(lease) => {
            if !matches!(step, Move::Renew(_)) {
                tracing::info!(identity = settings.identity, "this operator leads");
            }
            elector.wrote(self::seen(&lease), before);
            Ok(())
        }
        // Somebody was faster; the next look tells who.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            elector.lost();
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn seen(lease: &Lease) -> Seen {
    let spec = lease.spec.clone().unwrap_or_default();
    Seen {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        transitions: spec.lease_transitions.unwrap_or(0),
        resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// Replaces the Lease as it was seen: the resource version lets only one of two win.
async fn write(
    api: &Api<Lease>,
    settings: &LeaseSettings,
    seen: &Seen,
    holder: Option<&str>,
) -> Result<Lease, kube::Error> {
    let taken = holder.is_some() && seen.holder.as_deref() != holder;
    let transitions = seen.transitions.saturating_add(i32::from(taken));
    let lease = body(settings, Some(&seen.resource_version), holder, transitions);
    api.replace(&settings.name, &PostParams::default(), &lease)
        .await
}

// The times are for people; no operator judges by them.
fn body(
    settings: &LeaseSettings,
    version: Option<&str>,
    holder: Option<&str>,
    transitions: i32,
) -> Lease {
    let seconds = if holder.is_some() {
        settings.duration.as_secs()
    } else {
        1
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(settings.name.clone()),
            resource_version: version.map(str::to_owned),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.unwrap_or_default().to_owned()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            lease_transitions: Some(transitions),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    }
}
