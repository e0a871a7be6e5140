//! The status of a pool: pure until the one patch, which is sent only when something differs.

use kube::{Resource, ResourceExt};
use larder_crds::{CachePool, CachePoolStatus, MastersStatus, NodesStatus, Phase, rounded};

use super::build::Owner;
use super::observe::{MasterSeen, Seen, ready_agents};
use super::{events, recovery, scale_in, signals};
use crate::conditions::{Wanted, changed, is_true, merge, named};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::{MasterView, Usage, coarse};
use crate::masters;
use crate::names::PoolId;
use crate::node::members::Members;
use crate::reasons::{ConditionType, Reason};
use crate::status_patch;

/// What became of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It cannot be carried out.
    Refused(Wanted),
    /// It was carried out, with these members.
    Applied(Members),
}

impl Outcome {
    /// Whether nodes are leaving, or returning from that.
    #[must_use]
    pub fn is_scaling_in(&self) -> bool {
        let moves =
            |members: &Members| !members.draining.is_empty() || !members.returning.is_empty();
        matches!(self, Self::Applied(members) if moves(members))
    }

    /// How many nodes leave, if any.
    fn draining(&self) -> Option<u32> {
        match self {
            Self::Applied(members) => u32::try_from(members.draining.len())
                .ok()
                .filter(|n| *n > 0),
            Self::Refused(_) => None,
        }
    }

    /// Whether the API server refuses what is needed.
    #[must_use]
    pub fn is_refused_by_api(&self) -> bool {
        matches!(self, Self::Refused(wanted) if wanted.reason == Reason::ApiRefused)
    }

    /// An error that people must deal with, as a condition; others come back.
    ///
    /// # Errors
    /// Every error that another try may cure.
    pub fn of_error(error: ReconcileError) -> Result<Self, ReconcileError> {
        let (reason, message) = error.for_people()?;
        let wanted = Wanted::new(ConditionType::Accepted, false, reason, message);
        Ok(Self::Refused(wanted))
    }
}

/// The conditions of a pool.
#[must_use]
pub fn conditions(outcome: &Outcome, seen: &Seen) -> Vec<Wanted> {
    use ConditionType::{Accepted, LeaderElected, MastersReady, NodesReady, Ready};
    let members = match outcome {
        Outcome::Applied(members) => members,
        Outcome::Refused(refused) => {
            let not = |condition| {
                Wanted::new(
                    condition,
                    false,
                    Reason::NotAccepted,
                    "the pool is not accepted",
                )
            };
            return vec![
                refused.clone(),
                not(LeaderElected),
                not(MastersReady),
                not(NodesReady),
                not(Ready),
            ];
        }
    };
    let accepted = Wanted::new(Accepted, true, Reason::Accepted, "the spec is carried out");
    let master = master_condition(seen);
    let masters = masters_condition(&seen.masters);
    let ready = ready_agents(&seen.standing);
    let nodes = nodes_condition(members, ready, seen.refusal.as_deref());
    let scale_in = scale_in::condition(members);
    let serves = serves(seen, members, &master, &nodes);
    let mut wanted = vec![accepted, master, masters, nodes, scale_in, serves];
    let roll = seen.roll();
    wanted.extend(roll.map(|roll| masters::condition(&seen.id, &roll)));
    let view = seen.master.view();
    wanted.extend(view.map(overcommit_condition));
    wanted.extend(view.and_then(|view| recovery::condition(&view.status)));
    wanted
}

/// Whether calls are answered.
fn serves(seen: &Seen, members: &Members, master: &Wanted, nodes: &Wanted) -> Wanted {
    let wanted = |status, reason, message: String| {
        Wanted::new(ConditionType::Ready, status, reason, message)
    };
    if !master.status {
        return wanted(false, master.reason, master.message.clone());
    }
    if seen
        .master
        .view()
        .is_some_and(|view| view.status.rebuilding)
    {
        let message = "calls wait until the pool is made again from what its agents hold";
        return wanted(false, Reason::Rebuilding, message.to_owned());
    }
    let ready = ready_agents(&seen.standing);
    if ready == 0 {
        let reason = match nodes.reason {
            _ if nodes.status => Reason::NoNodes,
            Reason::TooFewNodes => Reason::AgentsStarting,
            other => other,
        };
        return wanted(false, reason, nodes.message.clone());
    }
    let message = format!("{ready} of {} nodes serve", members.desired);
    wanted(true, Reason::Serving, message)
}

fn masters_condition(masters: &MastersStatus) -> Wanted {
    let message = format!("{} of {} masters are ready", masters.ready, masters.desired);
    let all = masters.ready >= masters.desired;
    let reason = if all {
        Reason::AllMastersReady
    } else {
        Reason::MastersStarting
    };
    Wanted::new(ConditionType::MastersReady, all, reason, message)
}

/// What to do when too few masters answer for one of them to lead: which are missing, what they
/// hold, and that it is not to be thrown away.
fn quorum_lost(answered: &[String], seen: &Seen) -> Wanted {
    let count = masters_there(seen);
    let all = (0..count).map(|one| seen.id.master_pod(one));
    let missing: Vec<String> = all.filter(|name| !answered.contains(name)).collect();
    let advice = if seen.pods.has_volumes {
        "nothing is lost while their volumes are there. Start them again with their volumes: bring \
         back their nodes, or delete the pods of nodes that are surely off; delete no volume"
    } else {
        "nothing is lost while their pods are there. Let their containers start again and delete \
         no pod: without spec.masters.storage its log goes with it"
    };
    let are = if missing.len() == 1 { "is" } else { "are" };
    let message = format!(
        "{} {are} down, and {} of {count} masters must answer: {advice}",
        named(missing.iter()),
        count / 2 + 1,
    );
    Wanted::new(
        ConditionType::LeaderElected,
        false,
        Reason::QuorumLost,
        message,
    )
}

/// How many masters the pool has, those included that are to go.
fn masters_there(seen: &Seen) -> u32 {
    seen.masters.desired.max(seen.pods.count.unwrap_or(0))
}

fn master_condition(seen: &Seen) -> Wanted {
    let wanted = |status, reason, message: String| {
        Wanted::new(ConditionType::LeaderElected, status, reason, message)
    };
    match &seen.master {
        MasterSeen::Starting => wanted(
            false,
            Reason::MasterStarting,
            "no pod of the masters is ready".to_owned(),
        ),
        MasterSeen::Silent(why) => wanted(false, Reason::MasterNotReached, why.clone()),
        MasterSeen::Leaderless(answered) if answered.len() > masters_there(seen) as usize / 2 => {
            let (answered, all) = (answered.len(), masters_there(seen));
            let message = format!("{answered} of {all} masters elect a leader");
            wanted(false, Reason::Electing, message)
        }
        MasterSeen::Leaderless(answered) => quorum_lost(answered, seen),
        MasterSeen::Leads(looks) => wanted(
            true,
            Reason::Leading,
            format!("{} leads", looks.now.status.name),
        ),
    }
}

fn nodes_condition(members: &Members, ready: u32, refusal: Option<&str>) -> Wanted {
    let wanted = |status, reason, message: String| {
        Wanted::new(ConditionType::NodesReady, status, reason, message)
    };
    let desired = members.desired;
    if members.matching == 0 && members.nodes.is_empty() {
        let message = "no node matches spec.nodes.selector".to_owned();
        return wanted(false, Reason::NoMatchingNode, message);
    }
    if members.nodes.len() < desired {
        if members.too_small.is_empty() {
            let message = format!("{} nodes match, {desired} are wanted", members.matching);
            return wanted(false, Reason::TooFewNodes, message);
        }
        let names = named(members.too_small.iter());
        let message = format!("too little allocatable memory for the tiers on {names}");
        return wanted(false, Reason::NodeTooSmall, message);
    }
    if let Some(refusal) = refusal {
        let advice = if refusal.contains("PodSecurity") {
            "; for two folders of their node they need the namespace's label \
             pod-security.kubernetes.io/enforce=privileged"
        } else {
            ""
        };
        let message = format!("the API server refuses pods of the agents{advice}: {refusal}");
        return wanted(false, Reason::AgentsRefused, message);
    }
    let message = format!("{ready} of {} agents are ready", members.nodes.len());
    if (ready as usize) < members.nodes.len() {
        return wanted(false, Reason::AgentsStarting, message);
    }
    wanted(true, Reason::AllReady, message)
}

/// Nothing before the master has answered: what was known stays.
fn overcommit_condition(view: &MasterView) -> Wanted {
    let (asked, has) = (view.status.guaranteed_bytes, view.status.capacity_bytes);
    let wanted = |status, reason, message| {
        Wanted::new(ConditionType::QuotaOvercommitted, status, reason, message)
    };
    if view.status.overcommitted {
        let message = format!("{} are guaranteed of {}", rounded(asked), rounded(has));
        wanted(true, Reason::GuaranteesExceedCapacity, message)
    } else {
        let message = "the pool has what is guaranteed".to_owned();
        wanted(false, Reason::GuaranteesFit, message)
    }
}

/// The new status, from the old one.
#[must_use]
pub fn next(
    pool: &CachePool,
    wanted: &[Wanted],
    outcome: &Outcome,
    seen: &Seen,
    now: jiff::Timestamp,
) -> CachePoolStatus {
    let old = pool.status.clone().unwrap_or_default();
    let generation = pool.metadata.generation;
    let mut conditions = merge(&old.conditions, wanted, generation, now);
    // Conditions of ours that say nothing about most pools. What is not known now stays.
    if matches!(outcome, Outcome::Applied(_)) {
        let mut rare = vec![ConditionType::EventsPublished];
        let recovered = ConditionType::RecoveredFromInventory;
        rare.extend(seen.master.view().map(|_| recovered));
        rare.retain(|kind| !wanted.iter().any(|one| one.condition == *kind));
        conditions.retain(|one| !rare.iter().any(|kind| one.type_ == kind.text()));
    }
    let id = PoolId::of(pool);
    let (ready, desired) = match outcome {
        Outcome::Applied(members) => (ready_agents(&seen.standing), members.desired),
        Outcome::Refused(_) => (ready_agents(&seen.standing), 0),
    };
    let selector = Owner::new(&id).selector("agent");
    let selector = selector.as_object().into_iter().flatten();
    let selector: Vec<String> = selector
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    let mut status = CachePoolStatus {
        phase: Some(phase(&conditions)),
        observed_generation: generation,
        conditions,
        nodes: Some(NodesStatus {
            desired: u32::try_from(desired).unwrap_or(u32::MAX),
            ready,
            draining: outcome.draining(),
        }),
        masters: Some(seen.masters.clone()),
        // From the first reconcile on: an autoscaler gives up without it.
        selector: Some(selector.join(",")),
        ..CachePoolStatus::default()
    };
    match &seen.master {
        MasterSeen::Leads(looks) => {
            let shown = old.used_bytes.zip(old.objects);
            let shown = shown.map(|(used_bytes, objects)| Usage {
                used_bytes,
                objects,
            });
            let before = looks.before.as_deref().map(usage);
            let usage = coarse(shown, before, usage(&looks.now));
            status.capacity_bytes = Some(looks.now.status.capacity_bytes);
            status.used_bytes = Some(usage.used_bytes);
            status.objects = Some(usage.objects);
            status.leader = Some(looks.now.status.name.clone());
        }
        // What was last known; the condition says that it is old.
        MasterSeen::Silent(_) | MasterSeen::Leaderless(_) => {
            status.capacity_bytes = old.capacity_bytes;
            status.used_bytes = old.used_bytes;
            status.objects = old.objects;
            status.signals = old.signals;
        }
        MasterSeen::Starting => {}
    }
    status.capacity = status.capacity_bytes.map(rounded);
    status.used = status.used_bytes.map(rounded);
    status
}

fn usage(view: &MasterView) -> Usage {
    Usage {
        used_bytes: view.status.used_bytes,
        objects: view.status.objects,
    }
}

/// One word, from the conditions alone.
#[must_use]
pub fn phase(conditions: &[larder_crds::Condition]) -> Phase {
    if !is_true(conditions, ConditionType::Accepted) {
        return Phase::Failed;
    }
    let is_whole = is_true(conditions, ConditionType::NodesReady)
        && is_true(conditions, ConditionType::MastersReady);
    match (is_true(conditions, ConditionType::Ready), is_whole) {
        (true, true) => Phase::Ready,
        (true, false) => Phase::Degraded,
        (false, _) => Phase::Pending,
    }
}

fn events_condition(context: &Context, pool: &CachePool) -> Option<Wanted> {
    let settings = pool.settings().ok()?;
    let tenants = crate::tenant::accepted_of(context, &PoolId::of(pool));
    events::condition(settings.master.events.as_ref(), &tenants)
}

/// Writes the status if it differs, then tells the changes as events. Returns whether the pool is
/// ready with all its nodes.
///
/// # Errors
/// [`ReconcileError::Api`].
pub async fn write(
    context: &Context,
    pool: &CachePool,
    outcome: &Outcome,
    seen: &Seen,
) -> Result<bool, ReconcileError> {
    let mut wanted = conditions(outcome, seen);
    let told = pool.status.as_ref().map_or(&[][..], |old| &old.conditions);
    scale_in::keep_loss(told, pool.metadata.generation, &mut wanted);
    if let Outcome::Applied(_) = outcome {
        wanted.extend(events_condition(context, pool));
    }
    let mut status = next(pool, &wanted, outcome, seen, (context.now)());
    let old = pool.status.clone().unwrap_or_default();
    let uid = pool.uid().unwrap_or_default();
    if let MasterSeen::Leads(looks) = &seen.master {
        let since = context.signal_times.since(&uid);
        let now = &looks.now.status.signals;
        status.signals = signals::coarse(old.signals.as_ref(), now, since);
    }
    let is_ready = status.phase == Some(Phase::Ready);
    if status == old {
        return Ok(is_ready);
    }
    if status_patch::write(context, pool, &status).await? {
        if status.signals != old.signals {
            context.signal_times.wrote(&uid);
        }
        let changes = changed(&old.conditions, &wanted);
        context.publish(&pool.object_ref(&()), &changes).await;
    }
    Ok(is_ready)
}
