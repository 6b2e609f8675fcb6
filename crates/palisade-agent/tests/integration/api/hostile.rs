//! Hostile text is escaped in all API output: JSON, lines and metrics, whether it came from manifests,
//! from a request or from a packet's names.

use super::site::{Site, reader, root};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use palisade_agent::core::CoreEvent;
use palisade_effective::EffectiveReport;
use palisade_model::Update;
use palisade_source::UpdateBatch;
use palisade_sys::credentials::SocketCredentials;
use serde_json::{Value, json};

/// Colours, a window title, C1 controls, line ends and bidirectional controls.
const HOSTILE: &str =
    "\u{1b}[31m\u{1b}]0;t\u{7}\u{7f}\u{9b}2J\u{85}\r\n\tforged\u{202e}\u{2066}\u{2028}";

fn assert_harmless(what: &str, text: &str) {
    let harms = |c: &char| {
        c.is_control() && *c != '\n'
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert_eq!(text.chars().find(harms), None, "{what}: {text:?}");
    let forged = text
        .lines()
        .find(|line| line.trim_start().starts_with("forged"));
    assert_eq!(forged, None, "{what}: {text:?}");
}

/// The batch of a directory with hostile objects and hostile file names.
fn batch() -> UpdateBatch {
    let h = HOSTILE;
    let policy = |name: &str, spec: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
               "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
    };
    let objects = [
        json!({"apiVersion": "v1", "kind": h, "metadata": {"name": h}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": h, "namespace": h}}),
        policy(h, json!({"podSelector": {}})),
        policy(
            "bad",
            json!({"podSelector": {"matchLabels": {h: h}}, "policyTypes": [h]}),
        ),
        policy("sound", json!({"podSelector": {}})),
        // Passes all validation.
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop",
               "ownerReferences": [{"kind": h, "name": h, "controller": true}]},
               "spec": {"nodeName": h, "serviceAccountName": h},
               "status": {"podIP": "10.1.0.9", "phase": h}}),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (number, object) in objects.iter().enumerate() {
        let file = dir.path().join(format!("{number}{h}.json"));
        palisade_sys::atomic_file::write_atomically(&file, object.to_string().as_bytes()).unwrap();
    }
    let loaded = palisade_source::load(&[dir.path().to_owned()]);
    assert!(loaded.has_errors());
    UpdateBatch {
        detected_at: None,
        host_network: Vec::new(),
        updates: loaded.state.objects().map(Update::Upsert).collect(),
        in_sync: true,
        report: EffectiveReport {
            problems: loaded.diagnostics,
            ignored: loaded.ignored,
            ..EffectiveReport::default()
        },
    }
}

async fn ask(site: &Site, peer: SocketCredentials, method: &str, path: &str, body: &str) -> String {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .extension(peer)
        .body(axum::body::Body::from(body.to_owned()))
        .unwrap();
    let router = TowerToHyperService::new(site.router.clone());
    let response = router.call(request).await.unwrap();
    for (name, value) in response.headers() {
        assert_harmless(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn no_answer_carries_what_a_terminal_acts_upon() {
    let site = Site::new();
    site.core.send(CoreEvent::Source(batch()));
    let quoted = json!(HOSTILE).to_string();
    let encoded = "%1b%5b31m%c2%9b2J%0d%0aforged%e2%80%ae";
    let add =
        format!(r#"{{"namespace":"shop","name":"web","netns":"web","labels":{{"app":{quoted}}}}}"#);
    let named = format!(r#"{{"namespace":{quoted},"name":{quoted},"netns":{quoted}}}"#);
    let cni = format!(
        r#"{{"container":{quoted},"network":{quoted},"interface":{quoted},"netns":{quoted},"namespace":{quoted},"name":{quoted}}}"#
    );
    let field = format!(r#"{{{quoted}:1}}"#);
    let path = |text: &str| text.replace("{}", encoded);
    let mut told = 0;
    for (method, path, body) in [
        ("GET", path("/v1/status"), ""),
        ("GET", path("/v1/policies"), ""),
        ("GET", path("/v1/policies/shop/sound"), ""),
        ("GET", path("/v1/policies/{}/{}"), ""),
        ("GET", path("/v1/policies/{}"), ""),
        ("GET", path("/v1/policies/{}/{}/{}"), ""),
        ("GET", path("/v1/policies/netpol/{}/{}"), ""),
        ("GET", path("/v1/endpoints"), ""),
        ("GET", path("/v1/endpoints/{}/{}"), ""),
        ("GET", path("/v1/identities"), ""),
        ("GET", path("/v1/explain?from={}&to=shop/web&port={}"), ""),
        (
            "GET",
            path("/v1/explain?from=10.9.9.9&to=shop/web&port=80"),
            "",
        ),
        ("GET", path("/v1/explain?{}={}"), ""),
        ("GET", path("/v1/monitor?last=5&stop=true&endpoint={}"), ""),
        ("GET", path("/v1/monitor?last={}"), ""),
        ("GET", path("/metrics"), ""),
        ("GET", path("/{}"), ""),
        ("POST", path("/v1/workloads"), &*add),
        ("POST", path("/v1/workloads"), &*named),
        ("POST", path("/v1/workloads"), &*field),
        ("POST", path("/v1/workloads"), HOSTILE),
        ("DELETE", path("/v1/workloads"), &*named),
        ("POST", path("/v1/cni"), &*cni),
        ("POST", path("/v1/cni"), &*field),
        ("DELETE", path("/v1/cni"), &*cni),
    ] {
        for peer in [root(), reader()] {
            let what = format!("{method} {path} {body:?}");
            let answer = ask(&site, peer, method, &path, body).await;
            assert_harmless(&what, &answer);
            // The original name is still recognisable: in JSON by the escapes, in messages by its text.
            told += usize::from(answer.contains("forged"));
        }
    }
    assert!(
        told >= 12,
        "the hostile text is told in {told} answers only"
    );
}
