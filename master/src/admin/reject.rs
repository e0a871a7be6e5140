//! Refusals of the admin port as JSON: `{"error": {"reason", "code", "message"}}`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use larder_types::{ErrorCode, Principal, Reason};
use larder_wire::CallError;
use serde_json::json;

/// A refused call.
#[derive(Debug)]
pub(super) struct Rejection {
    status: StatusCode,
    reason: &'static str,
    code: Option<ErrorCode>,
    message: String,
}

impl Rejection {
    fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            code: None,
            message: message.into(),
        }
    }

    pub(super) fn no_credential() -> Self {
        let message = "send `Authorization: Bearer <token>` of the operator or an administrator";
        Self::new(StatusCode::UNAUTHORIZED, "no_credential", message)
    }

    pub(super) fn role(principal: &Principal) -> Self {
        let message = format!("{principal} may not use this port; use an administrator's token");
        Self::new(StatusCode::FORBIDDEN, "role", message)
    }

    pub(super) fn not_found(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// It contradicts what is there.
    pub(super) fn conflict(reason: &'static str, message: String) -> Self {
        Self::new(StatusCode::CONFLICT, reason, message)
    }

    /// What it needs is not to be had now.
    pub(super) fn unavailable(reason: &'static str, message: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, message)
    }

    /// Why, in one word.
    pub(super) const fn reason(&self) -> &'static str {
        self.reason
    }

    pub(super) fn method() -> Self {
        let message = "the route does not take this method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", message)
    }

    /// The body is JSON at most, but not what is asked for.
    pub(super) fn bad_content(error: impl std::fmt::Display) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            ..Self::bad_argument(error)
        }
    }

    pub(super) fn bad_argument(error: impl std::fmt::Display) -> Self {
        Self::from(CallError {
            reason: Reason::BadArgument,
            detail: error.to_string(),
        })
    }
}

impl From<CallError> for Rejection {
    fn from(error: CallError) -> Self {
        let code = error.code();
        let status = match code {
            // Its name stands in the path.
            _ if error.reason == Reason::AgentUnknown => StatusCode::NOT_FOUND,
            ErrorCode::TaskNotFound => StatusCode::NOT_FOUND,
            ErrorCode::TenantNotRegistered | ErrorCode::ObjectNotFound => StatusCode::NOT_FOUND,
            ErrorCode::InvalidParams | ErrorCode::InvalidKey => StatusCode::BAD_REQUEST,
            ErrorCode::TenantNotEmpty => StatusCode::CONFLICT,
            ErrorCode::UnavailableInCurrentStatus => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::RpcTimeout => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let (reason, message) = (error.reason.label(), error.to_string());
        Self {
            status,
            reason,
            code: Some(code),
            message,
        }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let Self {
            status,
            reason,
            code,
            message,
        } = self;
        let code = code.map(ErrorCode::number);
        let body = json!({ "error": { "reason": reason, "code": code, "message": message } });
        let mut response = (status, axum::Json(body)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
