//! Orders of copies: the target agent reads as a client of the tenant would.

use std::collections::BTreeSet;

use larder_store::CopyOrder as StoreOrder;
use larder_types::{AgentId, Extent, Memo, Principal, SessionId};
use larder_wire::agent::{Command, CopyOrder};
use larder_wire::{Reach, SessionClaims};

use super::answer::Desk;
use super::grants::{Terms, grant_bytes, replica_grant};

/// The session of copies: no client's, as those count up from 1.
const SESSION: SessionId = SessionId(0);
/// What an order takes besides its extents, in bytes, at the most: a token, an address, a name.
const ORDER_BYTES: usize = 1_024;
/// The longest of the other commands, in bytes.
const COMMAND_BYTES: usize = 200;

/// How long a command may be, in bytes.
pub(crate) fn command_bytes(command: &Command) -> usize {
    match command {
        Command::Copy(order) => ORDER_BYTES + grant_bytes(&order.from) + grant_bytes(&order.to),
        _ => COMMAND_BYTES,
    }
}

/// An order with all that its agent needs; `None` if an agent that it names is not mounted.
pub(super) fn copy_order(order: &StoreOrder, desk: &Desk<'_>) -> Option<CopyOrder> {
    let nothing = Memo::default();
    let terms = |reach, key, memo| Terms {
        tenant: &order.tenant,
        version: order.version,
        reach,
        deadline: order.deadline,
        object_bytes: order.size_bytes,
        key,
        memo,
    };
    let from = replica_grant(&order.from, &terms(Reach::Read, &[], &nothing), 0, desk)?;
    let key = order.key.as_bytes();
    let memo = &order.memo;
    let written = terms(Reach::Write, key, memo);
    let to = replica_grant(&order.to, &written, memo.stripe, desk)?;
    let agent = |extent: &Extent| extent.slab.agent;
    let agents: BTreeSet<AgentId> = order.from.iter().map(agent).collect();
    let sources = agents.into_iter().map(|agent| desk.agents.address(agent));
    let claims = SessionClaims {
        principal: Principal::Tenant(order.tenant.clone()),
        session: SESSION,
        epoch: desk.epoch,
        deadline: order.deadline,
    };
    let token = desk.signer.sign(&claims);
    let token = token.inspect_err(|error| tracing::error!(%error, "no token for a copy"));
    Some(CopyOrder {
        copy: order.copy,
        tenant: order.tenant.clone(),
        size_bytes: order.size_bytes,
        digest: order.digest,
        session_token: token.ok()?.as_bytes().to_vec(),
        sources: sources.collect::<Option<_>>()?,
        from: from.extents,
        to: to.extents,
        remaining_ms: order.deadline.since_ms(desk.now),
    })
}
