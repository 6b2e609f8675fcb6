//! The operations of the agent's API that the page may use: all of them read. Nothing else is passed on.

use axum::http::{Method, StatusCode};
use palisade_api::path;

/// How a request is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageOperation {
    /// A response that ends.
    Read,
    /// A stream of events.
    Stream,
    /// A computation on a body.
    Preview,
}

/// The operation of a request; the status of the error response if the page has none.
pub(crate) fn find_operation(method: &Method, path: &str) -> Result<PageOperation, StatusCode> {
    let operation = match path {
        path::MONITOR => PageOperation::Stream,
        path::PREVIEW => PageOperation::Preview,
        path::STATUS
        | path::FLOWS
        | path::POLICIES
        | path::ENDPOINTS
        | path::EXPLAIN
        | path::MANIFEST => PageOperation::Read,
        _ if is_policy(path) => PageOperation::Read,
        _ => return Err(StatusCode::NOT_FOUND),
    };
    let expected = match operation {
        PageOperation::Preview => Method::POST,
        PageOperation::Read | PageOperation::Stream => Method::GET,
    };
    if *method == expected {
        Ok(operation)
    } else {
        Err(StatusCode::METHOD_NOT_ALLOWED)
    }
}

/// Whether a path is that of one policy: one to three segments, none of which is relative.
fn is_policy(path: &str) -> bool {
    let Some(rest) = path
        .strip_prefix(path::POLICIES)
        .and_then(|rest| rest.strip_prefix('/'))
    else {
        return false;
    };
    let segments: Vec<&str> = rest.split('/').collect();
    let is_name = |segment: &&str| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        !plain.is_empty() && plain != "." && plain != ".." && !plain.contains("%2f")
    };
    segments.len() <= 3 && segments.iter().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_read_operations_are_found() {
        let get = |path: &str| find_operation(&Method::GET, path);
        for path in [
            "/v1/status",
            "/v1/flows",
            "/v1/policies",
            "/v1/policies/db",
            "/v1/policies/shop/db",
            "/v1/policies/networkpolicy/shop/d%20b",
            "/v1/endpoints",
            "/v1/explain",
            "/v1/manifest",
        ] {
            assert_eq!(get(path), Ok(PageOperation::Read), "{path}");
            let other = find_operation(&Method::POST, path);
            assert_eq!(other, Err(StatusCode::METHOD_NOT_ALLOWED), "{path}");
        }
        assert_eq!(get("/v1/monitor"), Ok(PageOperation::Stream));
        let preview = find_operation(&Method::POST, "/v1/preview");
        assert_eq!(preview, Ok(PageOperation::Preview));
        assert_eq!(get("/v1/preview"), Err(StatusCode::METHOD_NOT_ALLOWED));
        for path in [
            "/v1/config",
            "/v1/workloads",
            "/v1/cni",
            "/metrics",
            "/v1/policies/",
            "/v1/policies/../config",
            "/v1/policies/%2E%2e/config",
            "/v1/policies/a%2fb",
            "/v1/policies/a/b/c/d",
            "/v1/policies//db",
            "/v1/endpoints/shop/db",
            "//v1/status",
        ] {
            assert_eq!(get(path), Err(StatusCode::NOT_FOUND), "{path}");
        }
    }
}
