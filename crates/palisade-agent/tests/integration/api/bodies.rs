//! Response bodies match the OpenAPI document: every operation is called, and every body is validated.

use super::document::document;
use super::schema::check;
use super::site::{Site, root};
use hyper::StatusCode;
use palisade_agent::http::{OperationOutput, operations};
use palisade_api::API_VERSION;
use palisade_model::Update;
use palisade_testkit::FakeFastPath;
use palisade_testkit::spelling::misspelled_keys;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const POLICY: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: api}}}]
    ports: [{port: 80}]
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
"#;

/// The objects of the manifests above, in a file of this directory.
fn updates(dir: &Path) -> Vec<Update> {
    let file = dir.join("shop.yaml");
    palisade_sys::atomic_file::write_atomically(&file, POLICY.as_bytes()).unwrap();
    let loaded = palisade_source::load(&[file]);
    assert!(!loaded.has_errors());
    loaded.state.objects().map(Update::Upsert).collect()
}

#[tokio::test]
async fn every_operation_answers_what_the_document_says() {
    let site = Site::new();
    site.dataplane.set_fast_path(Some(FakeFastPath::default()));
    let dir = tempfile::tempdir().unwrap();
    site.says(updates(dir.path()));
    let document = document();
    let mut seen = BTreeSet::new();
    let calls = [
        (
            "POST",
            "/v1/workloads",
            r#"{"namespace":"shop","name":"web","netns":"web","labels":{"app":"web"},"ports":["http=80/TCP"]}"#,
        ),
        ("GET", "/v1/status", ""),
        ("GET", "/v1/endpoints", ""),
        ("GET", "/v1/endpoints/shop/web", ""),
        ("GET", "/v1/identities", ""),
        ("GET", "/v1/policies", ""),
        ("GET", "/v1/policies/shop/web", ""),
        ("GET", "/v1/policies/networkpolicy/shop/web", ""),
        ("GET", "/v1/policies/web", ""),
        ("GET", "/v1/manifest?policy=shop/web", ""),
        ("GET", "/v1/explain?from=10.9.9.9&to=shop/web&port=80", ""),
        ("GET", "/v1/monitor?last=5&stop=true", ""),
        ("GET", "/v1/flows?since=1h&verdict=Denied", ""),
        (
            "POST",
            "/v1/preview",
            r#"{"manifests":"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, spec: {podSelector: {}}}"}"#,
        ),
        ("GET", "/v1/ipam", ""),
        ("GET", "/v1/ipam/check", ""),
        ("GET", "/v1/names", ""),
        ("GET", "/v1/names/a.example.com", ""),
        ("GET", "/v1/bpf/endpoints", ""),
        ("GET", "/v1/bpf/flows", ""),
        ("GET", "/v1/bpf/policy", ""),
        ("GET", "/v1/bpf/check", ""),
        ("GET", "/v1/config", ""),
        (
            "POST",
            "/v1/cni",
            r#"{"container":"c1","network":"n","interface":"eth0","netns":"c1","namespace":"shop","name":"c1"}"#,
        ),
        (
            "POST",
            "/v1/cni/check",
            r#"{"attachment":{"container":"c1","network":"n","interface":"eth0"},"netns":"c1","addresses":[]}"#,
        ),
        ("POST", "/v1/cni/gc", r#"{"network":"n","valid":[]}"#),
        (
            "DELETE",
            "/v1/cni",
            r#"{"container":"c1","network":"n","interface":"eth0"}"#,
        ),
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("GET", "/metrics", ""),
        ("GET", "/v1/openapi.json", ""),
        (
            "DELETE",
            "/v1/workloads",
            r#"{"namespace":"shop","name":"web"}"#,
        ),
    ];
    for (method, path, body) in calls {
        let (status, answer) = site.ask(root(), method, path, body).await;
        assert_eq!(status, StatusCode::OK, "{method} {path}: {answer}");
        let bare = path.split('?').next().unwrap();
        let fits = |pattern: &str| {
            let parts = pattern.split('/').zip(bare.split('/'));
            pattern.split('/').count() == bare.split('/').count()
                && parts.into_iter().all(|(p, b)| p == b || p.starts_with('{'))
        };
        let operation = operations()
            .into_iter()
            .find(|of| of.method == method && fits(of.path))
            .unwrap();
        let kind = match operation.output {
            OperationOutput::Lines(_) => "application~1x-ndjson",
            OperationOutput::Text(_) => "text~1plain",
            _ => "application~1json",
        };
        let pointer = format!(
            "/paths/{}/{}/responses/200/content/{kind}/schema",
            operation.path.replace('/', "~1"),
            method.to_lowercase()
        );
        let schema = document
            .pointer(&pointer)
            .unwrap_or_else(|| panic!("{pointer}"));
        match operation.output {
            OperationOutput::Object => {}
            OperationOutput::Text(_) => assert!(answer.is_string(), "{method} {path}"),
            OperationOutput::Json(_) => {
                assert_eq!(answer["apiVersion"], API_VERSION, "{method} {path}");
                assert_eq!(misspelled_keys(&answer), [""; 0], "{method} {path}");
                assert_eq!(
                    check(&document, schema, &answer),
                    [""; 0],
                    "{method} {path}: {answer:#}"
                );
            }
            // There are no packets without a kernel; unit tests check the format of the lines.
            OperationOutput::Lines(_) => assert_eq!(answer, Value::String(String::new())),
        }
        seen.insert(operation.id);
    }
    let all: BTreeSet<_> = operations().into_iter().map(|of| of.id).collect();
    assert_eq!(seen, all, "every operation is called");
    let listed = document["paths"].as_object().unwrap().values();
    let listed: usize = listed.map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(listed, all.len(), "the document lists every operation");
}

#[tokio::test]
async fn refusals_have_one_shape() {
    let site = Site::new();
    let document = document();
    let schema = &document["components"]["schemas"]["ApiError"];
    for (method, path, body, status, code) in [
        ("GET", "/v1/nothing", "", 404, "NotFound"),
        ("GET", "/v1/endpoints/shop/none", "", 404, "NotFound"),
        ("GET", "/v1/manifest", "", 400, "BadRequest"),
        ("GET", "/v1/manifest?policy=shop/none", "", 404, "NotFound"),
        ("PUT", "/v1/status", "", 405, "MethodNotAllowed"),
        ("GET", "/v1/explain?fromm=x", "", 400, "BadRequest"),
        (
            "GET",
            "/v1/explain?from=x&to=y&port=99999",
            "",
            422,
            "Invalid",
        ),
        ("POST", "/v1/workloads", "{", 400, "BadRequest"),
        (
            "POST",
            "/v1/workloads",
            r#"{"namespace":"A","name":"x","netns":"x"}"#,
            422,
            "Invalid",
        ),
    ] {
        let (got, answer) = site.ask(root(), method, path, body).await;
        assert_eq!(
            (got.as_u16(), &answer["code"]),
            (status, &Value::from(code)),
            "{path}: {answer}"
        );
        assert_eq!(check(&document, schema, &answer), [""; 0], "{answer}");
    }
}
