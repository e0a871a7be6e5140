//! `larder quota`: what tenants may hold, and why a put would be refused.

use larder_client::TenantUsage;
use larder_types::{Borrowing, BoundKind, OnExceed};
use larder_wire::quota::{CohortUsage, QuotaBound};
use serde::Deserialize;
use serde_json::json;

use crate::administer::Administered;
use crate::args::{Administration, Explain, Global, Quota};
use crate::bytes_text::show_bytes;
use crate::error::CliError;
use crate::output::Output;
use crate::target::connect;

/// Does what was asked.
pub(crate) async fn quota(
    global: &Global,
    quota: &Quota,
    output: &mut Output,
) -> Result<u8, CliError> {
    match quota {
        Quota::Explain(explain) => self::explain(global, explain, output).await,
        Quota::List(administration) => list(global, administration, output).await,
    }
}

async fn explain(global: &Global, what: &Explain, output: &mut Output) -> Result<u8, CliError> {
    let usage = match &what.tenant {
        Some(tenant) => {
            let path = format!("/v1/tenants/{tenant}/quota");
            Administered::find(global, &what.administration)
                .await?
                .get(&path)
                .await?
        }
        None if what.administration.admin.is_some() => {
            let message = "say which tenant: `larder quota explain TENANT --admin ...`";
            return Err(CliError::Usage(message.to_owned()));
        }
        None => connect(global, None).await?.usage().await?,
    };
    let size = what.size.unwrap_or(1);
    let refused = usage.quota.refused_by(size, usage.replica_factor);
    let value = json!({
        "usage": usage,
        "size_bytes": size,
        "admitted": refused.is_none(),
        "refused_by": refused,
        "reason": refused.map(|bound| bound.kind.reason().label()),
        "advice": refused.map(|bound| bound.kind.reason().advice()),
    });
    output.result(&value, &show(&usage, what.size, refused))?;
    Ok(0)
}

async fn list(
    global: &Global,
    administration: &Administration,
    output: &mut Output,
) -> Result<u8, CliError> {
    #[derive(Deserialize)]
    struct Quotas {
        quotas: Vec<CohortUsage>,
    }
    let master = Administered::find(global, administration).await?;
    let Quotas { quotas } = master.get("/v1/quotas").await?;
    let lines: Vec<String> = quotas.iter().map(quota_line).collect();
    let human = if lines.is_empty() {
        "no quotas".to_owned()
    } else {
        lines.join("\n")
    };
    output.result(&json!({ "quotas": quotas }), &human)?;
    Ok(0)
}

/// The explanation for people.
fn show(usage: &TenantUsage, size: Option<u64>, refused: Option<&QuotaBound>) -> String {
    let quota = &usage.quota;
    let mut lines = vec![
        format!("tenant      {}", usage.tenant),
        format!(
            "used        {} in {} objects, {} under way",
            show_bytes(usage.used_bytes),
            usage.objects,
            show_bytes(usage.reserved_bytes)
        ),
        format!(
            "guaranteed  {}, comes to {}",
            show_bytes(quota.guaranteed_bytes),
            show_bytes(quota.effective_guaranteed_bytes)
        ),
        format!(
            "limit       {}, {}",
            bytes_or_none(usage.limit_bytes),
            usage.limit_objects.map_or_else(
                || "any number of objects".to_owned(),
                |n| format!("{n} objects")
            )
        ),
        format!(
            "pinned      {}, at most {}",
            show_bytes(usage.pinned_bytes),
            show_bytes(quota.effective_pinned_bytes)
        ),
        format!(
            "borrowing   {}, {} borrowed, {} lent",
            match quota.borrowing {
                Borrowing::Allowed => "allowed",
                Borrowing::Forbidden => "forbidden",
            },
            show_bytes(quota.borrowed_bytes),
            show_bytes(quota.lent_bytes)
        ),
    ];
    if let Some(cohort) = &quota.cohort {
        lines.push(format!("quota       {}", quota_line(cohort)));
    }
    if quota.overcommitted {
        lines.push(format!(
            "pool        {} are guaranteed of {}: every guarantee shrinks in proportion",
            show_bytes(quota.pool_requested_bytes),
            show_bytes(usage.pool_capacity_bytes)
        ));
    }
    lines.extend(quota.bounds.iter().map(bound_line));
    lines.push(verdict_line(usage, size, refused));
    lines.join("\n")
}

/// Whether a put is admitted now.
fn verdict_line(usage: &TenantUsage, size: Option<u64>, refused: Option<&QuotaBound>) -> String {
    let what = size.map_or_else(
        || "a put".to_owned(),
        |size| format!("a put of {}", show_bytes(size)),
    );
    match refused {
        None if usage.pool_capacity_bytes == 0 => {
            format!("now         the quota admits {what}, but no agent offers memory")
        }
        None => format!("now         the quota admits {what}"),
        Some(bound) => {
            let does = match bound.on_exceed {
                OnExceed::EvictOwn if may_fit(bound, size, usage.replica_factor) => {
                    "evicts the tenant's own coldest objects first, else it"
                }
                OnExceed::EvictOwn | OnExceed::Refuse => "",
            };
            let reason = bound.kind.reason();
            format!(
                "now         {what} {does} is refused with {}: {}",
                reason.label(),
                reason.advice()
            )
        }
    }
}

/// Whether a put could fit this bound if objects of the tenant went.
fn may_fit(bound: &QuotaBound, size_bytes: Option<u64>, replicas: u8) -> bool {
    let is_bytes = matches!(bound.kind, BoundKind::Bytes | BoundKind::CohortBytes);
    let asked = match size_bytes.filter(|_| is_bytes) {
        Some(size_bytes) => size_bytes.saturating_mul(u64::from(replicas)),
        None => 1,
    };
    bound.charged > 0 && bound.limit.is_none_or(|limit| asked <= limit)
}

fn bound_line(bound: &QuotaBound) -> String {
    let figure = |number: u64| {
        if bound.kind.counts_objects() {
            number.to_string()
        } else {
            show_bytes(number)
        }
    };
    let name = match bound.kind {
        BoundKind::Bytes => "own bytes",
        BoundKind::Objects => "own objects",
        BoundKind::CohortBytes => "bytes of the quota",
        BoundKind::CohortObjects => "objects of the quota",
        BoundKind::Memory => "guarantee and idle memory",
    };
    let room = bound.room.map_or_else(
        || "no bound".to_owned(),
        |room| format!("{} more", figure(room)),
    );
    format!("  {name}: {} charged, {room}", figure(bound.charged))
}

fn quota_line(quota: &CohortUsage) -> String {
    if !quota.is_set {
        return format!("{} is not set and bounds nothing", quota.quota);
    }
    let objects = quota
        .limit_objects
        .map_or_else(String::new, |limit| format!(" of {limit}"));
    format!(
        "{}: {} tenants, {} of {} in {}{objects} objects, guaranteed {}, comes to {}",
        quota.quota,
        quota.tenants,
        show_bytes(quota.charged_bytes),
        bytes_or_none(quota.limit_bytes),
        quota.charged_objects,
        show_bytes(quota.guaranteed_bytes),
        show_bytes(quota.effective_guaranteed_bytes)
    )
}

fn bytes_or_none(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any number of bytes".to_owned(), show_bytes)
}

#[cfg(test)]
mod tests {
    use larder_types::{QuotaName, TenantId};
    use larder_wire::quota::TenantQuota;

    use super::*;

    fn usage() -> TenantUsage {
        let bound = |kind, charged, room| QuotaBound {
            kind,
            limit: None,
            charged,
            room,
            on_exceed: OnExceed::Refuse,
        };
        TenantUsage {
            tenant: TenantId::new("team-a").expect("an id"),
            used_bytes: 3 << 20,
            pinned_bytes: 0,
            reserved_bytes: 0,
            limit_bytes: None,
            objects: 3,
            limit_objects: Some(10),
            pool_capacity_bytes: 1 << 30,
            agents: 1,
            replica_factor: 1,
            quota: TenantQuota {
                guaranteed_bytes: 1,
                effective_guaranteed_bytes: 2 << 20,
                borrowed_bytes: 1 << 20,
                bounds: vec![
                    bound(BoundKind::Objects, 3, Some(7)),
                    bound(BoundKind::Memory, 3 << 20, Some(1 << 20)),
                ],
                cohort: Some(CohortUsage {
                    quota: QuotaName::new("team").expect("a name"),
                    is_set: false,
                    tenants: 0,
                    guaranteed_bytes: 0,
                    effective_guaranteed_bytes: 0,
                    limit_bytes: None,
                    effective_limit_bytes: None,
                    limit_objects: None,
                    limit_pinned_bytes: None,
                    borrowing: Borrowing::Allowed,
                    on_exceed: OnExceed::EvictOwn,
                    charged_bytes: 0,
                    charged_objects: 0,
                }),
                ..TenantQuota::default()
            },
        }
    }

    #[test]
    fn an_explanation_says_what_is_refused_and_what_to_do() {
        let usage = usage();
        let refused = |size| usage.quota.refused_by(size, usage.replica_factor);
        let fits = show(&usage, Some(1 << 20), refused(1 << 20));
        assert!(
            fits.ends_with("now         the quota admits a put of 1.0 MiB"),
            "{fits}"
        );
        let empty = TenantUsage {
            pool_capacity_bytes: 0,
            ..usage.clone()
        };
        let nowhere = show(&empty, None, None);
        assert!(
            nowhere.ends_with("a put, but no agent offers memory"),
            "{nowhere}"
        );
        let bound = |limit, charged| QuotaBound {
            limit: Some(limit),
            charged,
            kind: BoundKind::Bytes,
            room: Some(0),
            on_exceed: OnExceed::EvictOwn,
        };
        assert!(may_fit(&bound(4, 4), Some(2), 2) && may_fit(&bound(4, 4), None, 2));
        assert!(
            !may_fit(&bound(4, 4), Some(3), 2),
            "more than the whole limit"
        );
        assert!(!may_fit(&bound(4, 0), Some(1), 1), "nothing to evict");
        let large = show(&usage, Some(2 << 20), refused(2 << 20));
        assert!(large.contains("is refused with quota_borrow: "), "{large}");
        assert!(large.contains("own objects: 3 charged, 7 more"), "{large}");
        assert!(
            large.contains("team is not set and bounds nothing"),
            "{large}"
        );
        assert!(
            large.contains("guaranteed  1 B, comes to 2.0 MiB"),
            "{large}"
        );
    }
}
