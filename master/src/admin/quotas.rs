//! The routes of quotas: what tenants share, and what a tenant's own comes to.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use larder_types::{QuotaName, Reason, TenantId};

use super::reject::Rejection;
use super::{Admin, Asker, named};
use crate::config::QuotaConfig;
use crate::event::AdminAsk;

type Answer = Result<Response, Rejection>;

pub(super) async fn of_tenant(State(admin): State<Admin>, Path(id): Path<String>) -> Answer {
    let tenant = TenantId::new(&id).map_err(Rejection::bad_argument)?;
    admin.document(AdminAsk::TenantQuota(tenant)).await
}

pub(super) async fn all(State(admin): State<Admin>) -> Answer {
    admin.document(AdminAsk::Quotas).await
}

pub(super) async fn one(State(admin): State<Admin>, Path(name): Path<String>) -> Answer {
    let quota = QuotaName::new(&name).map_err(Rejection::bad_argument)?;
    match admin.ask(AdminAsk::Quota(quota)).await {
        Ok(value) => Ok(Json(value).into_response()),
        Err(error) if error.reason == Reason::NotFound => {
            Err(Rejection::not_found("no such quota"))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn set(
    State(admin): State<Admin>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer {
    let config: QuotaConfig = named("quota", &name, &body)?;
    let (quota, policy) = config.into_policy();
    let ask = AdminAsk::QuotaSet(quota, policy);
    let object = format!("quotas/{name}");
    admin.change(&asker, &Method::PUT, &object, ask).await
}

pub(super) async fn delete(
    State(admin): State<Admin>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Answer {
    let quota = QuotaName::new(&name).map_err(Rejection::bad_argument)?;
    let ask = AdminAsk::QuotaDelete(quota);
    let object = format!("quotas/{name}");
    admin.change(&asker, &Method::DELETE, &object, ask).await
}
