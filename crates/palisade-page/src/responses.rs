//! Responses of the page's own: errors as JSON, and the headers that every response has.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use palisade_api::{ApiError, ErrorCode};
use palisade_text::printable_json;
use serde::Serialize;

/// What a browser may do with the page: nothing but run its own files and ask its own server.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);

/// Adds the headers that every response has.
pub(crate) fn add_security_headers(headers: &mut HeaderMap) {
    let fixed = HeaderValue::from_static;
    let opener = HeaderName::from_static("cross-origin-opener-policy");
    let resource = HeaderName::from_static("cross-origin-resource-policy");
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (REFERRER_POLICY, fixed("no-referrer")),
        (X_FRAME_OPTIONS, fixed("DENY")),
        (CACHE_CONTROL, fixed("no-store")),
        (opener, fixed("same-origin")),
        (resource, fixed("same-origin")),
    ] {
        headers.insert(name, value);
    }
}

/// A response with this body.
pub(crate) fn response(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A JSON response without characters that control a terminal or reorder text.
pub(crate) fn json_response<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => {
            let text = printable_json(&text).into_owned();
            response(status, "application/json", text)
        }
        Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", ""),
    }
}

/// An error response.
pub(crate) fn error_response(status: StatusCode, mut error: ApiError) -> Response {
    error.code = match status {
        StatusCode::BAD_REQUEST => ErrorCode::BadRequest,
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => ErrorCode::Forbidden,
        StatusCode::NOT_FOUND => ErrorCode::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => ErrorCode::MethodNotAllowed,
        StatusCode::REQUEST_TIMEOUT => ErrorCode::Timeout,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
        StatusCode::UNPROCESSABLE_ENTITY => ErrorCode::Invalid,
        StatusCode::TOO_MANY_REQUESTS => ErrorCode::RateLimited,
        StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Unavailable,
        _ => ErrorCode::Failed,
    };
    json_response(status, &error)
}

/// The error response where a bound is reached.
pub(crate) fn busy_response(bound: &str) -> Response {
    let error = ApiError::new(format!("too many {bound} of the page at once"));
    let error = error.with_hint("close other tabs of it, or try again");
    let mut response = error_response(StatusCode::SERVICE_UNAVAILABLE, error);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(1));
    response
}
