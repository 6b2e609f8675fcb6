//! What a caller got wrong: each operation answers with a status of the caller's (4xx) and an error in its own form.

use super::site::{Site, root};
use palisade_agent::http::{OperationInput, operations};
use serde_json::Value;

/// The path of an operation with this text for each parameter.
fn path_with(path: &str, parameter: &str) -> String {
    let parts = path.split('/');
    let filled = parts.map(|part| {
        if part.starts_with('{') {
            parameter
        } else {
            part
        }
    });
    filled.collect::<Vec<_>>().join("/")
}

/// Asserts that a request is the caller's mistake; returns the status.
async fn assert_refused(site: &Site, method: &str, path: &str, body: &str) -> u16 {
    let (status, answer) = site.ask(root(), method, path, body).await;
    let what = format!("{method} {path} {body:?}: {status} {answer}");
    assert!(status.is_client_error(), "{what}");
    assert!(answer["code"].is_string(), "{what}");
    assert!(
        answer["error"]
            .as_str()
            .is_some_and(|error| !error.is_empty()),
        "{what}"
    );
    status.as_u16()
}

#[tokio::test]
async fn every_operation_refuses_what_is_wrong_in_the_form_of_its_errors() {
    let site = Site::new();
    let all = operations();
    assert!(all.len() > 15);
    for operation in &all {
        let (method, path) = (operation.method, operation.path);
        match operation.input {
            OperationInput::Nothing => {}
            OperationInput::Path(_) => {
                for parameter in ["%ff", "%zz", "%00", "%2e%2e", "a%0ab"] {
                    assert_refused(&site, method, &path_with(path, parameter), "").await;
                }
            }
            OperationInput::Query(_) => {
                for query in [
                    "%zz=%ff",
                    "from=%ff&to=%ff",
                    "port=1&port=2",
                    "last=many",
                    "nothing",
                ] {
                    let asked = format!("{path}?{query}");
                    // Filters are any text.
                    let is_filter = operation.id == "listFlows" && query.starts_with("from=");
                    let is_refused = operation.id != "monitor" || query == "last=many";
                    if is_refused && !is_filter {
                        assert_refused(&site, method, &asked, "").await;
                    }
                }
            }
            OperationInput::Body(_) => {
                for body in [
                    "",
                    "{",
                    "[]",
                    "null",
                    "\"text\"",
                    "{\"namespace\": 1}",
                    "\u{0}",
                ] {
                    assert_refused(&site, method, path, body).await;
                }
                let large = "x".repeat(1 << 20);
                assert_eq!(assert_refused(&site, method, path, &large).await, 413);
            }
        }
        for wrong in ["PUT", "PATCH", "OPTIONS", "TRACE"] {
            assert_eq!(
                assert_refused(&site, wrong, &path_with(path, "a"), "").await,
                405
            );
        }
    }
    for path in [
        "/",
        "/v1",
        "/v1/nothing",
        "/v1/%zz",
        "/v1/%ff",
        "/v2/status",
        "/v1/status/",
    ] {
        assert_eq!(assert_refused(&site, "GET", path, "").await, 404, "{path}");
    }
    let (status, answer) = site.ask(root(), "GET", "/v1/endpoints", "").await;
    assert_eq!(
        (status.as_u16(), &answer["endpoints"]),
        (200, &Value::Array(Vec::new()))
    );
}
