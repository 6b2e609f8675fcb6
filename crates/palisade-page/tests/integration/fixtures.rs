//! The answers of an agent, with names that are markup, and an agent that gives them and notes what it was asked.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header::CONTENT_TYPE};
use axum::response::Response;
use palisade_api::{
    EndpointList, Explanation, MonitorLine, PolicyDetail, PolicyList, RecordedFlowList, Status,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Names that would be markup if a page took them for it.
pub(crate) const IMAGE: &str = "<img src=x onerror=alert(1)>";
pub(crate) const SCRIPT: &str = "\"><script>alert(2)</script>";

/// A value of the API, as the API writes it: what is no such value fails here.
fn api<T: DeserializeOwned + Serialize>(value: Value) -> Value {
    let typed: T = serde_json::from_value(value).unwrap();
    serde_json::to_value(&typed).unwrap()
}

pub(crate) fn status() -> Value {
    api::<Status>(json!({
        "apiVersion": "palisade.io/v1", "health": "Ready", "reasons": [], "version": "0.1.0",
        "pid": 7, "started": "2026-11-21T07:00:00Z", "revision": 42, "realised": 42,
        "endpoints": 3, "policies": 2, "identities": 5,
        "source": {"kind": "directory", "location": "/etc/palisade", "inSync": true, "files": 2,
            "objects": 5, "problems": []},
        "dataplane": {"name": "nftables", "generation": 1, "repairs": [], "repaired": 0, "drops": []},
        "node": {"name": "worker-1", "pools": []},
        "bootstrap": [], "retainedObjects": [], "conflicts": [],
    }))
}

fn rule(namespace: &str, name: &str, line: &str, index: u32, action: &str) -> Value {
    json!({"kind": "NetworkPolicy", "namespace": namespace, "name": name, "line": line,
        "index": index, "action": action})
}

fn policy_ref() -> Value {
    json!({"kind": "NetworkPolicy", "namespace": "shop", "name": "db", "line": "shop/db.yaml:1"})
}

pub(crate) fn monitor_lines() -> Vec<Value> {
    let end = |address: &str, port: u16, name: &str| {
        json!({"address": address, "port": port, "namespace": "shop", "name": name,
            "controller": {"kind": "Deployment", "name": "web"}})
    };
    let lines = [
        json!({"type": "Packet", "apiVersion": "palisade.io/v1", "time": "2026-11-21T07:32:05.000001Z",
            "verdict": "Denied", "reason": "DefaultDeny", "direction": "Ingress",
            "endpoint": "shop/db-0", "source": end("10.0.0.9", 40_001, IMAGE),
            "destination": {"address": "10.0.0.1", "port": 5432, "namespace": "shop", "name": "db-0"},
            "protocol": "TCP", "reply": false, "policies": [policy_ref()], "length": 60}),
        json!({"type": "Flow", "apiVersion": "palisade.io/v1", "state": "Began",
            "began": "2026-11-21T07:32:06.000001Z", "source": end("10.0.0.2", 40_002, "web-1"),
            "destination": {"address": "10.0.0.1", "port": 5432, "namespace": "shop", "name": "db-0",
                "service": {"namespace": "shop", "name": "db"}},
            "protocol": "TCP",
            "egress": {"reason": "Profile"},
            "ingress": {"reason": "Rule", "rule": rule("shop", "db", "shop/db.yaml:12", 0, "Allow")}}),
        json!({"type": "Lost", "apiVersion": "palisade.io/v1", "time": "2026-11-21T07:32:07.000001Z",
            "cause": "Rate", "count": 1234, "reason": "Rule",
            "rule": rule("shop", SCRIPT, "shop/x.yaml:3", 1, "Deny")}),
        json!({"type": "Packet", "apiVersion": "palisade.io/v1", "time": "2026-11-21T07:32:08.000001Z",
            "verdict": "Denied", "reason": "Rule", "direction": "Egress", "endpoint": "shop/web-1",
            "source": end("10.0.0.2", 40_003, "web-1"),
            "destination": {"address": "192.0.2.7", "port": 443, "names": ["api.example.org"]},
            "protocol": "TCP", "reply": false,
            "rule": rule("shop", SCRIPT, "shop/x.yaml:3", 1, "Deny"), "length": 60}),
    ];
    lines.into_iter().map(api::<MonitorLine>).collect()
}

fn controller(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "controller": {"kind": "Deployment", "name": name},
        "labels": {"app": name}})
}

pub(crate) fn recorded_flows() -> Value {
    let allowed = |rule: Value| json!({"reason": "Rule", "rule": rule});
    let db = rule("shop", "db", "shop/db.yaml:12", 0, "Allow");
    let flow = |source: Value,
                destination: Value,
                port: u16,
                verdict: &str,
                sides: Value,
                last: &str,
                count: u64| {
        let mut flow = json!({"source": source, "destination": destination, "protocol": "TCP",
            "port": port, "verdict": verdict, "first": "2026-11-21T06:00:00Z", "last": last,
            "count": count});
        for side in ["egress", "ingress"] {
            if let Some(decision) = sides.get(side) {
                flow[side] = decision.clone();
            }
        }
        flow
    };
    let mut flows = vec![
        flow(
            controller("shop", "web"),
            controller("shop", "db"),
            5432,
            "Allowed",
            json!({"ingress": allowed(db)}),
            "2026-11-21T07:32:05Z",
            1_024,
        ),
        flow(
            json!({"namespace": "shop", "name": IMAGE}),
            controller("shop", "db"),
            5432,
            "Denied",
            json!({"ingress": {"reason": "DefaultDeny", "policies": [policy_ref()]}}),
            "2026-11-21T07:31:00Z",
            17,
        ),
        flow(
            json!({"node": "worker-2", "address": "10.1.0.2"}),
            controller("shop", "web"),
            8080,
            "Allowed",
            json!({"ingress": {"reason": "Profile"}}),
            "2026-11-21T07:30:00Z",
            300,
        ),
        flow(
            controller("shop", "web"),
            json!({"address": "192.0.2.7", "names": ["api.example.org"]}),
            443,
            "Denied",
            json!({"egress": allowed(rule("shop", SCRIPT, "shop/x.yaml:3", 1, "Deny"))}),
            "2026-11-21T07:29:00Z",
            5,
        ),
        flow(
            json!({"address": "198.51.100.4"}),
            controller("shop", "web"),
            8080,
            "Allowed",
            json!({"ingress": {"reason": "Profile"}}),
            "2026-11-21T07:28:00Z",
            90_210,
        ),
        flow(
            controller("tools", "prometheus"),
            controller("shop", "web"),
            9090,
            "Allowed",
            json!({"ingress": {"reason": "Profile"}}),
            "2026-11-21T07:27:00Z",
            240,
        ),
    ];
    flows[0]["traffic"] = json!({"packetsSent": 9, "bytesSent": 123_456, "packetsReceived": 8,
        "bytesReceived": 7_890});
    api::<RecordedFlowList>(json!({"apiVersion": "palisade.io/v1", "node": "worker-1",
        "since": "2026-11-14T00:00:00Z", "flows": flows, "lost": 3, "truncated": false}))
}

/// Recorded flows of so many workloads, each with one before it and some at random places.
pub(crate) fn many_flows(workloads: usize) -> RecordedFlowList {
    let end = |index: usize| {
        let index = index % workloads;
        controller(&format!("team-{}", index % 12), &format!("app-{index:04}"))
    };
    let flows: Vec<Value> = (0..workloads)
        .flat_map(|index| [(index, index * 7 + 1), (index, index * index + 3)])
        .map(|(from, to)| {
            json!({"source": end(from), "destination": end(to), "protocol": "TCP", "port": 8080,
                "verdict": if from % 9 == 0 { "Denied" } else { "Allowed" },
                "first": "2026-11-21T06:00:00Z", "last": "2026-11-21T07:00:00Z", "count": 1 + from % 50})
        })
        .collect();
    serde_json::from_value(json!({"apiVersion": "palisade.io/v1", "node": "worker-1",
        "since": "2026-11-14T00:00:00Z", "flows": flows, "lost": 0, "truncated": false}))
    .unwrap()
}

fn summary(name: &str, line: &str, rules: usize) -> Value {
    json!({"tier": "default", "order": 1000.0, "kind": "NetworkPolicy", "namespace": "shop",
        "name": name, "line": line, "subject": "app == 'db'", "endpoints": 1, "rules": rules,
        "revision": 40, "since": "2026-11-20T10:00:00Z"})
}

pub(crate) fn policies() -> Value {
    let mut odd = summary(SCRIPT, "shop/x.yaml:1", 2);
    odd["status"] = json!({"state": "LastValid", "errors": [
        {"field": "spec.egress[0]", "reason": IMAGE, "at": "shop/x.yaml:9:3"}]});
    api::<PolicyList>(json!({"apiVersion": "palisade.io/v1",
        "policies": [summary("db", "shop/db.yaml:1", 2), odd]}))
}

pub(crate) fn policy() -> Value {
    let counter = |index: Option<u32>, action: &str, line: &str, packets: u64| {
        let mut counter = json!({"direction": "Ingress", "action": action,
            "count": {"packets": packets, "bytes": packets * 60}});
        if let Some(index) = index {
            counter["index"] = json!(index);
            counter["line"] = json!(line);
        }
        counter
    };
    let mut detail = summary("db", "shop/db.yaml:1", 2);
    detail["apiVersion"] = json!("palisade.io/v1");
    detail["selects"] = json!(["shop/db-0"]);
    detail["ruleCounters"] = json!([
        counter(Some(0), "Allow", "shop/db.yaml:12", 12_345),
        counter(Some(1), "Allow", "shop/db.yaml:20", 0),
        counter(None, "DefaultDeny", "", 17),
    ]);
    api::<PolicyDetail>(detail)
}

pub(crate) fn endpoints() -> Value {
    let pod = |name: &str, app: &str, address: &str| {
        json!({"namespace": "shop", "name": name, "state": "Ready", "interface": "pal1",
            "addresses": [address], "labels": {"app": app, "pod-template-hash": "x"},
            "ingressIsolated": true, "egressIsolated": false, "revision": 42})
    };
    api::<EndpointList>(json!({"apiVersion": "palisade.io/v1",
        "endpoints": [pod("db-0", "db", "10.0.0.1"), pod("web-1", "web", "10.0.0.2")]}))
}

pub(crate) fn explanation() -> Value {
    let end = |name: &str, address: &str| json!({"endpoint": {"kind": "Pod", "namespace": "shop", "name": name}, "address": address});
    let rule = |index: u32, line: &str| {
        json!({"policy": policy_ref(), "direction": "Ingress", "index": index, "line": line,
            "action": "Allow"})
    };
    let mut decided = rule(0, "shop/db.yaml:12");
    decided["type"] = json!("Rule");
    let mut matched = rule(0, "shop/db.yaml:12");
    matched["step"] = json!("Rule");
    matched["matched"] = json!(true);
    api::<Explanation>(json!({"apiVersion": "palisade.io/v1", "verdict": "Allow",
        "from": end(IMAGE, "10.0.0.2"), "to": end("db-0", "10.0.0.1"), "family": "IPv4",
        "protocol": "TCP", "port": 5432, "sourcePort": 49152,
        "egress": {"verdict": "Allow", "decidedBy": {"type": "AllowAllProfile"}, "steps": []},
        "ingress": {"subject": {"kind": "Pod", "namespace": "shop", "name": "db-0"},
            "verdict": "Allow", "decidedBy": decided, "steps": [
                {"step": "Tier", "tier": "default", "default": "Deny", "missing": false, "counts": true},
                {"step": "Policy", "policy": policy_ref(), "judges": true},
                matched]},
        "notes": [format!("shop/db is reached by its Service, and {SCRIPT} is no pod")]}))
}

pub(crate) fn preview() -> Value {
    let flow = |source: Value, recorded: &str, count: u64| {
        json!({"source": source, "destination": controller("shop", "db"), "protocol": "TCP",
            "port": 5432, "recorded": recorded, "count": count,
            "first": "2026-11-20T06:00:00Z", "last": "2026-11-21T07:32:05Z"})
    };
    let with = |mut flow: Value, key: &str, value: Value| {
        flow[key] = value;
        flow
    };
    let isolated = json!([{"direction": "Ingress",
        "decidedBy": {"type": "TierDefault", "tier": "default", "isolating": [policy_ref()]}}]);
    json!({"apiVersion": "palisade.io/v1",
        "record": {"since": "2026-11-20T00:00:00Z", "until": "2026-11-21T07:32:05Z",
            "nodes": ["worker-1"], "nodesMissing": ["worker-2"], "lost": 3, "truncated": [],
            "entries": 9, "flows": 4},
        "judged": 3,
        "cut": [with(
            with(flow(controller("shop", "web"), "Allowed", 1_024), "deniedBy", isolated.clone()),
            "pairs",
            json!({"concerned": 1, "total": 3}),
        )],
        "opened": [with(flow(json!({"namespace": "shop", "name": IMAGE}), "Denied", 17), "deniedBy", isolated)],
        "alreadyDenied": [],
        "unjudged": [with(flow(json!({"address": "198.51.100.4"}), "Allowed", 2), "reason", json!(SCRIPT))],
        "notes": ["Services are not judged"]})
}

/// What an agent answers, and what it was asked.
#[derive(Clone)]
pub(crate) struct FakeAgent(Arc<Mutex<FakeState>>);

struct FakeState {
    requests: Vec<String>,
    bodies: Vec<String>,
    followers: Vec<mpsc::UnboundedSender<Bytes>>,
    lines: Vec<Value>,
    flows: Value,
    has_preview: bool,
    is_plain: bool,
}

impl FakeAgent {
    pub(crate) fn new() -> Self {
        FakeAgent(Arc::new(Mutex::new(FakeState {
            requests: Vec::new(),
            bodies: Vec::new(),
            followers: Vec::new(),
            lines: monitor_lines(),
            flows: recorded_flows(),
            has_preview: true,
            is_plain: false,
        })))
    }

    pub(crate) fn without_preview(self) -> Self {
        self.0.lock().unwrap().has_preview = false;
        self
    }

    /// The same with names that people give: for pictures.
    pub(crate) fn plain(self) -> Self {
        let plain = |value: &Value| {
            let text = value.to_string().replace(IMAGE, "report");
            let script = json!(SCRIPT).to_string();
            let text = text.replace(&script[1..script.len() - 1], "web-egress");
            serde_json::from_str(&text).unwrap()
        };
        let mut state = self.0.lock().unwrap();
        state.lines = state.lines.iter().map(plain).collect();
        state.flows = plain(&state.flows);
        state.is_plain = true;
        drop(state);
        self
    }

    pub(crate) fn with_flows(self, list: &RecordedFlowList) -> Self {
        self.0.lock().unwrap().flows = serde_json::to_value(list).unwrap();
        self
    }

    /// The requests so far, with their queries.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().requests.clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.0.lock().unwrap().bodies.clone()
    }

    /// The number of streams that are open.
    pub(crate) fn followers(&self) -> usize {
        let mut state = self.0.lock().unwrap();
        state.followers.retain(|follower| !follower.is_closed());
        state.followers.len()
    }

    /// Sends a line to all streams.
    pub(crate) fn send(&self, line: &Value) {
        let text = Bytes::from(format!("{line}\n"));
        for follower in &self.0.lock().unwrap().followers {
            let _ = follower.send(text.clone());
        }
    }

    /// Ends all streams.
    pub(crate) fn cut(&self) {
        self.0.lock().unwrap().followers.clear();
    }

    pub(crate) fn router(&self) -> Router {
        let agent = self.clone();
        Router::new().fallback(move |request: Request<Body>| {
            let agent = agent.clone();
            async move { agent.answer(request).await }
        })
    }

    async fn answer(&self, request: Request<Body>) -> Response {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 2 << 20).await.unwrap();
        let mut state = self.0.lock().unwrap();
        state
            .requests
            .push(format!("{} {}", parts.method, parts.uri));
        if !body.is_empty() {
            let body = String::from_utf8_lossy(&body).into_owned();
            state.bodies.push(body);
        }
        let answer = match parts.uri.path() {
            "/v1/status" => status(),
            "/v1/flows" => filtered(&state.flows, parts.uri.query().unwrap_or_default()),
            "/v1/policies" => policies(),
            "/v1/policies/NetworkPolicy/shop/db" => policy(),
            "/v1/endpoints" => endpoints(),
            "/v1/manifest" if state.is_plain => {
                let mut manifest = manifest();
                let text = manifest["text"].as_str().unwrap();
                manifest["text"] = json!(text.replace(SCRIPT, "Who may reach the database."));
                manifest["inForce"] = json!(true);
                manifest
            }
            "/v1/manifest" => manifest(),
            "/v1/explain" if state.is_plain => {
                let mut answer = explanation();
                answer["from"]["endpoint"]["name"] = json!("web-1");
                answer["notes"] = json!([]);
                answer
            }
            "/v1/explain" => explanation(),
            "/v1/preview" if state.has_preview => preview(),
            "/v1/monitor" => {
                let (sender, receiver) = mpsc::unbounded_channel();
                if parts.uri.query().unwrap_or_default().contains("last=200") {
                    for line in &state.lines {
                        sender.send(Bytes::from(format!("{line}\n"))).unwrap();
                    }
                }
                state.followers.push(sender);
                let response = Response::builder().header(CONTENT_TYPE, "application/x-ndjson");
                return response.body(Body::from_stream(Lines(receiver))).unwrap();
            }
            _ => {
                let error =
                    json!({"apiVersion": "palisade.io/v1", "error": "there is no such path"});
                let response = Response::builder().status(StatusCode::NOT_FOUND);
                return response.body(Body::from(error.to_string())).unwrap();
            }
        };
        let response = Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .header("set-cookie", "agent=1");
        response.body(Body::from(answer.to_string())).unwrap()
    }
}

/// The text of the policy, as the API reports it.
pub(crate) fn manifest() -> Value {
    json!({
        "apiVersion": "palisade.io/v1",
        "kind": "NetworkPolicy", "namespace": "shop", "name": "db", "line": "shop/db.yaml:5",
        "text": format!("apiVersion: networking.k8s.io/v1\n# {SCRIPT}\nkind: NetworkPolicy\nspec:\n  podSelector: {{}}\n  egress: []\n  ingress:\n  - from:\n    - podSelector: {{}}\n  - {{}}\n"),
        "firstLine": 5, "inForce": false,
        "rules": [
            {"direction": "Ingress", "index": 0, "first": 12, "last": 13},
            {"direction": "Ingress", "index": 1, "first": 14, "last": 14},
        ],
    })
}

/// The flows with the verdict that a query has.
fn filtered(flows: &Value, query: &str) -> Value {
    let mut flows = flows.clone();
    for verdict in ["Denied", "Allowed"] {
        if query.contains(&format!("verdict={verdict}")) {
            let list = flows["flows"].as_array_mut().unwrap();
            list.retain(|flow| flow["verdict"] == verdict);
        }
    }
    flows
}

struct Lines(mpsc::UnboundedReceiver<Bytes>);

impl futures_core::Stream for Lines {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}
