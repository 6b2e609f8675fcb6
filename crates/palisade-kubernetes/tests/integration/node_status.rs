//! The writer against a server in memory: what it writes, how often, and what a refusal costs.

use palisade_api::{NodeCondition, NodePolicyReport};
use palisade_kubernetes::{Credentials, NodeStatusWriter, STATUS_PATH, StatusIntervals};
use palisade_testkit::{ApiFault, FakeApiServer};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NODES: &str = "/api/v1/nodes";
const INTERVAL: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(3_600);

/// A writer that runs, and what it is given and tells.
struct Scene {
    server: FakeApiServer,
    report: Arc<Mutex<NodePolicyReport>>,
    results: Arc<Mutex<Vec<Option<String>>>>,
    dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let server = FakeApiServer::start().unwrap();
        server.set_writable(STATUS_PATH, true);
        server.put(NODES, json!({"metadata": {"name": "n0", "uid": "u0"}}));
        server.put(NODES, json!({"metadata": {"name": "n1", "uid": "u1"}}));
        Scene {
            server,
            report: Arc::new(Mutex::new(report("True", "t1"))),
            results: Arc::default(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn start(&self, heartbeat: Duration, refused: Duration) {
        let path = self.dir.path().join("kubeconfig");
        std::fs::write(&path, self.server.kubeconfig()).unwrap();
        let intervals = StatusIntervals {
            interval: INTERVAL,
            policies: INTERVAL * 2,
            heartbeat,
            refused,
        };
        let credentials = Credentials::Kubeconfig(path);
        let writer = NodeStatusWriter::new(credentials, "n1".to_owned(), intervals);
        let (report, results) = (Arc::clone(&self.report), Arc::clone(&self.results));
        let present = async move || Some(report.lock().unwrap().clone());
        let take = move |result| results.lock().unwrap().push(result);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        std::thread::spawn(move || runtime.unwrap().block_on(writer.run(present, take)));
    }

    fn wait(&self, what: &str, is_reached: impl Fn(&Scene) -> bool) {
        let began = Instant::now();
        while !is_reached(self) {
            let results = self.results();
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{what}: {results:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn results(&self) -> Vec<Option<String>> {
        self.results.lock().unwrap().clone()
    }

    fn status(&self) -> Value {
        let object = self.server.object(STATUS_PATH, "n1");
        object
            .map(|object| object["status"].clone())
            .unwrap_or_default()
    }
}

fn report(ready: &str, at: &str) -> NodePolicyReport {
    NodePolicyReport {
        agent_version: "1".to_owned(),
        driver: "nftables".to_owned(),
        updated: at.to_owned(),
        conditions: vec![NodeCondition {
            kind: "Ready".to_owned(),
            status: ready.to_owned(),
            reason: "Reason".to_owned(),
            message: String::new(),
            last_transition_time: at.to_owned(),
        }],
        ..NodePolicyReport::default()
    }
}

#[test]
fn what_changes_is_written_and_figures_wait_for_the_heartbeat() {
    let scene = Scene::new();
    scene.start(LONG, LONG);
    scene.wait("the first write", |scene| !scene.results().is_empty());
    let writes = scene.server.take_writes();
    assert_eq!(writes.len(), 1);
    let (target, object) = &writes[0];
    assert_eq!(
        *target,
        format!("{STATUS_PATH}/n1?fieldManager=palisade-agent&force=true")
    );
    assert_eq!(object["kind"], "NodePolicyStatus");
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}]);
    assert_eq!(object["metadata"]["ownerReferences"], owner);
    assert_eq!(
        object["status"],
        serde_json::to_value(report("True", "t1")).unwrap()
    );
    for revision in 0..20 {
        scene.report.lock().unwrap().revision = revision;
        std::thread::sleep(INTERVAL / 2);
    }
    assert_eq!(scene.server.take_writes().len(), 0);
    scene.report.lock().unwrap().policies = 4;
    scene.wait("the policies", |scene| scene.results().len() == 2);
    assert_eq!(scene.status()["policies"], 4);
    *scene.report.lock().unwrap() = NodePolicyReport {
        revision: 99,
        ..report("False", "t2")
    };
    scene.wait("the change", |scene| scene.results().len() == 3);
    assert_eq!(scene.status()["revision"], 99);
    assert_eq!(scene.status()["conditions"][0]["lastTransitionTime"], "t2");
}

#[test]
fn figures_are_written_by_the_heartbeat_and_transitions_keep_their_time() {
    let scene = Scene::new();
    let object = json!({"metadata": {"name": "n1"}, "status": report("True", "earlier")});
    scene.server.put(STATUS_PATH, object);
    scene.start(INTERVAL * 3, LONG);
    scene.wait("two heartbeats", |scene| scene.results().len() == 3);
    assert_eq!(scene.results(), [None, None, None]);
    assert_eq!(scene.status()["updated"], "t1");
    // Of the agent before this one.
    assert_eq!(
        scene.status()["conditions"][0]["lastTransitionTime"],
        "earlier"
    );
}

#[test]
fn a_refusal_is_reported_and_not_repeated_soon() {
    for (code, is_writable) in [(403, true), (404, false)] {
        let scene = Scene::new();
        scene.server.set_writable(STATUS_PATH, is_writable);
        if is_writable {
            scene.server.add_fault(ApiFault::Write(code));
        }
        scene.start(LONG, LONG);
        scene.wait("the refusal", |scene| !scene.results().is_empty());
        std::thread::sleep(INTERVAL * 10);
        let results = scene.results();
        assert_eq!(results.len(), 1, "{results:?}");
        let error = results[0].clone().unwrap();
        assert!(error.contains(&format!("answered {code}")), "{error}");
    }
}

#[test]
fn an_overloaded_server_is_asked_again_when_it_says() {
    let scene = Scene::new();
    scene.server.add_fault(ApiFault::Write(429));
    let began = Instant::now();
    scene.start(LONG, LONG);
    scene.wait("a write", |scene| scene.results().contains(&None));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let results = scene.results();
    let error = results[0].as_deref().unwrap_or_default();
    assert!(error.contains("answered 429"), "{results:?}");
    assert_eq!(results.len(), 2, "{results:?}");
    assert_eq!(scene.server.take_writes().len(), 2);
}

#[test]
fn a_server_that_is_gone_is_found_again() {
    let scene = Scene::new();
    scene.server.set_down(true);
    scene.start(LONG, LONG);
    scene.wait("failures", |scene| scene.results().len() >= 2);
    assert!(scene.results().iter().all(Option::is_some));
    scene.server.set_down(false);
    scene.wait("a write", |scene| scene.results().contains(&None));
    assert_eq!(scene.status()["agentVersion"], "1");
}
