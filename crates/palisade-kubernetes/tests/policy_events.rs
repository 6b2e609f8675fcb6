//! Writers of events against a server in memory: one of them writes, each problem once, whatever fails.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests: their helpers fail, wait and write files"
)]

use palisade_kubernetes::{
    Credentials, EventIntervals, LEASE_NAME, PolicyEventWriter, PolicyProblem,
};
use palisade_testkit::{ApiFault, FakeApiServer};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";
const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const EVENTS: &str = "/api/v1/events";
const INTERVAL: Duration = Duration::from_millis(20);

/// What the agents of a cluster find; `None` ends them.
type Problems = Arc<Mutex<Option<Vec<PolicyProblem>>>>;

struct Cluster {
    server: FakeApiServer,
    dir: tempfile::TempDir,
}

impl Cluster {
    fn new() -> Self {
        let server = FakeApiServer::start().unwrap();
        server.set_writable(LEASES, true);
        server.set_writable(EVENTS, true);
        for name in ["a", "b"] {
            let metadata = json!({"name": name, "namespace": "shop", "uid": format!("uid-{name}")});
            server.put(POLICIES, json!({"metadata": metadata}));
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        Cluster { server, dir }
    }

    /// Starts the writer of an agent.
    fn start(&self, identity: &str, problems: &Problems) {
        let intervals = EventIntervals {
            look: INTERVAL,
            follow: INTERVAL,
            refused: Duration::from_secs(3_600),
        };
        let credentials = Credentials::Kubeconfig(self.dir.path().join("kubeconfig"));
        let wall = || "2026-01-01T00:00:00.000000Z".to_owned();
        let writer = PolicyEventWriter::new(credentials, identity.to_owned(), intervals, wall);
        let problems = Arc::clone(problems);
        let present = async move || problems.lock().unwrap().clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        std::thread::spawn(move || runtime.unwrap().block_on(writer.run(present)));
    }

    fn holder(&self) -> Option<String> {
        let lease = self
            .server
            .object(LEASES, &format!("default/{LEASE_NAME}"))?;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// The events that were created, in order.
    fn take_events(&self) -> Vec<Value> {
        let writes = self.server.take_writes().into_iter();
        let events = writes.filter(|(target, _)| target.ends_with("/events"));
        events.map(|(_, event)| event).collect()
    }

    fn wait(&self, what: &str, is_reached: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_reached() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn has_event(&self, message: &str) -> bool {
        let events = self.server.objects(EVENTS);
        events.iter().any(|event| event["message"] == message)
    }
}

fn problem(name: &str, message: &str) -> PolicyProblem {
    PolicyProblem {
        kind: "NetworkPolicy".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        message: message.to_owned(),
    }
}

fn problems(all: &[PolicyProblem]) -> Problems {
    Arc::new(Mutex::new(Some(all.to_vec())))
}

#[test]
fn of_two_agents_one_writes_each_problem_once() {
    let cluster = Cluster::new();
    let found = problems(&[
        problem("a", "spec.x: wrong"),
        problem("gone", "spec.y: wrong"),
    ]);
    cluster.start("one", &found);
    cluster.start("two", &found);
    cluster.wait("the event", || cluster.has_event("spec.x: wrong"));
    std::thread::sleep(INTERVAL * 20);
    let events = cluster.take_events();
    assert_eq!(events.len(), 1, "{events:#?}");
    let event = &events[0];
    assert_eq!(
        event["involvedObject"],
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "namespace": "shop",
            "name": "a", "uid": "uid-a",
            "resourceVersion": event["involvedObject"]["resourceVersion"],
        })
    );
    assert_eq!(
        (&event["type"], &event["reason"]),
        (&json!("Warning"), &json!("PolicyNotAccepted"))
    );
    let holder = cluster.holder().unwrap();
    *found.lock().unwrap() = Some(vec![problem("a", "spec.x: wrong"), problem("b", "new")]);
    cluster.wait("another", || cluster.has_event("new"));
    assert_eq!(cluster.holder(), Some(holder));
    // Without problems it is given up.
    *found.lock().unwrap() = Some(Vec::new());
    cluster.wait("the release", || cluster.holder().as_deref() == Some(""));
}

#[test]
fn without_a_problem_nothing_is_asked() {
    let cluster = Cluster::new();
    let found = problems(&[]);
    cluster.start("one", &found);
    std::thread::sleep(INTERVAL * 20);
    assert_eq!(cluster.server.take_requests(), [""; 0]);
}

#[test]
fn another_takes_over_when_the_holder_dies() {
    let cluster = Cluster::new();
    let (first, second) = (
        problems(&[problem("a", "first")]),
        problems(&[problem("b", "second")]),
    );
    cluster.start("one", &first);
    cluster.wait("the holder", || cluster.holder().as_deref() == Some("one"));
    cluster.start("two", &second);
    let died = Instant::now();
    *first.lock().unwrap() = None;
    cluster.wait("the next", || cluster.holder().as_deref() == Some("two"));
    assert!(
        died.elapsed() >= Duration::from_secs(10),
        "{:?}",
        died.elapsed()
    );
    cluster.wait("its event", || cluster.has_event("second"));
}

#[test]
fn conflicts_and_overload_delay_and_refusals_end_it() {
    let cluster = Cluster::new();
    for code in [409, 429, 500, 409] {
        cluster.server.add_fault(ApiFault::Write(code));
    }
    let found = problems(&[problem("a", "wrong")]);
    cluster.start("one", &found);
    cluster.wait("the event", || cluster.has_event("wrong"));
    assert_eq!(cluster.server.waiting_faults(), 0);
    let cluster = Cluster::new();
    cluster.server.add_fault(ApiFault::Write(403));
    cluster.start("one", &found);
    cluster.wait("the refusal", || cluster.server.waiting_faults() == 0);
    std::thread::sleep(INTERVAL * 20);
    assert_eq!(cluster.server.take_writes().len(), 1);
}
