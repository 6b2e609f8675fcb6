//! Writers of events and conditions against a server in memory: one of them writes, each once, whatever fails.

use palisade_kubernetes::{
    Credentials, FeedbackIntervals, LEASE_NAME, PolicyCondition, PolicyFeedbackWriter,
    PolicyFindings, PolicyProblem,
};
use palisade_testkit::{ApiFault, FakeApiServer};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";
const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const EVENTS: &str = "/api/v1/events";
const ADMIN_POLICIES: &str = "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies";
const INTERVAL: Duration = Duration::from_millis(20);

/// What the agents of a cluster find; `None` ends them.
type Findings = Arc<Mutex<Option<PolicyFindings>>>;

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
    fn start(&self, identity: &str, findings: &Findings) {
        let intervals = FeedbackIntervals {
            look: INTERVAL,
            follow: INTERVAL,
            refused: Duration::from_secs(3_600),
        };
        let credentials = Credentials::Kubeconfig(self.dir.path().join("kubeconfig"));
        let wall = || "2026-01-01T00:00:00.000000Z".to_owned();
        let writer = PolicyFeedbackWriter::new(credentials, identity.to_owned(), intervals, wall);
        let findings = Arc::clone(findings);
        let present = async move || findings.lock().unwrap().clone();
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

    /// A server with AdminNetworkPolicies of these names.
    fn with_admin_policies(names: &[&str]) -> Self {
        let cluster = Cluster::new();
        let status = format!("{ADMIN_POLICIES}/status");
        cluster.server.set_writable(&status, true);
        cluster.server.set_installed(ADMIN_POLICIES, true);
        for name in names {
            cluster.put_admin_policy(name, &json!([]));
        }
        cluster
    }

    fn put_admin_policy(&self, name: &str, conditions: &Value) {
        let metadata = json!({"name": name, "uid": format!("uid-{name}")});
        let status = json!({"conditions": conditions});
        let object = json!({"metadata": metadata, "status": status});
        self.server.put(ADMIN_POLICIES, object);
    }

    /// The conditions of a policy: type, status and message.
    fn conditions(&self, name: &str) -> Vec<[String; 3]> {
        let policy = self.server.object(ADMIN_POLICIES, name).unwrap();
        let conditions = policy["status"]["conditions"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        conditions
            .map(|c| ["type", "status", "message"].map(|key| text(&c[key])))
            .collect()
    }

    /// The policies whose conditions were written since the last call, in order.
    fn take_condition_writes(&self) -> Vec<String> {
        let writes = self.server.take_writes().into_iter();
        let written = writes.filter(|(target, _)| target.contains("/status"));
        let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        written.map(|(_, object)| name(object)).collect()
    }

    fn has_event(&self, message: &str) -> bool {
        let events = self.server.objects(EVENTS);
        events.iter().any(|event| event["message"] == message)
    }
}

fn problem(name: &str, message: &str) -> PolicyProblem {
    PolicyProblem {
        resource: "networkpolicies.networking.k8s.io".to_owned(),
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
        message: message.to_owned(),
    }
}

fn problems(all: &[PolicyProblem]) -> Findings {
    let problems = all.to_vec();
    let conditions = Vec::new();
    Arc::new(Mutex::new(Some(PolicyFindings {
        problems,
        conditions,
    })))
}

/// Changes what is found.
fn set(findings: &Findings, change: impl FnOnce(&mut PolicyFindings)) {
    change(findings.lock().unwrap().as_mut().unwrap());
}

fn condition(name: &str, is_accepted: bool, message: &str) -> PolicyCondition {
    PolicyCondition {
        resource: "adminnetworkpolicies.policy.networking.k8s.io".to_owned(),
        namespace: None,
        name: name.to_owned(),
        is_accepted,
        reason: "Reason".to_owned(),
        message: message.to_owned(),
    }
}

fn conditions(all: &[PolicyCondition]) -> Findings {
    let found = problems(&[]);
    set(&found, |found| found.conditions = all.to_vec());
    found
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
    set(&found, |found| {
        found.problems = vec![problem("a", "spec.x: wrong"), problem("b", "new")];
    });
    cluster.wait("another", || cluster.has_event("new"));
    assert_eq!(cluster.holder(), Some(holder));
    // Without problems it is given up.
    set(&found, |found| found.problems.clear());
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

#[test]
fn conditions_are_written_once_and_again_when_they_change() {
    let cluster = Cluster::with_admin_policies(&["a", "b", "c"]);
    let other = json!({"type": "Other", "status": "True", "reason": "R", "message": "of others"});
    let old = json!({"type": "Accepted", "status": "True", "reason": "Reason", "message": "old",
        "lastTransitionTime": "2020-01-01T00:00:00Z"});
    cluster.put_admin_policy("b", &json!([other, old]));
    let same = json!({"type": "Accepted", "status": "False", "reason": "Reason", "message": "same",
        "lastTransitionTime": "2020-01-01T00:00:00Z"});
    cluster.put_admin_policy("c", &json!([same]));
    let found = conditions(&[
        condition("a", true, "fine"),
        condition("b", true, "new"),
        condition("c", false, "same"),
        condition("gone", true, "fine"),
    ]);
    cluster.start("one", &found);
    cluster.start("two", &found);
    let is = |kind: &str, status: &str, message: &str| [kind, status, message].map(str::to_owned);
    let all = [
        is("Other", "True", "of others"),
        is("Accepted", "True", "new"),
    ];
    cluster.wait("the conditions", || cluster.conditions("b") == all);
    std::thread::sleep(INTERVAL * 20);
    assert_eq!(cluster.conditions("a"), [is("Accepted", "True", "fine")]);
    // That of `c` was there, and `gone` is refused once.
    let written = cluster.take_condition_writes();
    assert_eq!(written, ["a", "b", "gone"]);
    let times = |name: &str| {
        let policy = cluster.server.object(ADMIN_POLICIES, name).unwrap();
        let last = policy["status"]["conditions"].as_array().unwrap().last();
        last.unwrap()["lastTransitionTime"].clone()
    };
    assert_eq!(times("a"), "2026-01-01T00:00:00.000000Z");
    assert_eq!(times("b"), "2020-01-01T00:00:00Z");
    set(&found, |found| {
        found.conditions[1] = condition("b", false, "spec.x: wrong")
    });
    let all = [
        is("Other", "True", "of others"),
        is("Accepted", "False", "spec.x: wrong"),
    ];
    cluster.wait("the change", || cluster.conditions("b") == all);
    assert_eq!(times("b"), "2026-01-01T00:00:00.000000Z");
    // Without policies the lease is given up.
    set(&found, |found| found.conditions.clear());
    cluster.wait("the release", || cluster.holder().as_deref() == Some(""));
}

#[test]
fn a_refused_status_delays_no_other_and_an_absent_api_none() {
    let cluster = Cluster::with_admin_policies(&["a", "b"]);
    cluster.server.add_fault(ApiFault::Write(500));
    let mut wanted = vec![condition("a", true, "fine"), condition("b", true, "fine")];
    let mut baseline = condition("default", true, "fine");
    baseline.resource = "baselineadminnetworkpolicies.policy.networking.k8s.io".to_owned();
    wanted.insert(0, baseline);
    let found = conditions(&wanted);
    set(&found, |found| found.problems = vec![problem("a", "wrong")]);
    cluster.start("one", &found);
    cluster.wait("the conditions", || {
        cluster.conditions("a").len() + cluster.conditions("b").len() == 2
    });
    cluster.wait("the event", || cluster.has_event("wrong"));
}

#[test]
fn what_is_written_at_once_is_bounded() {
    let names: Vec<String> = (0..50).map(|n| format!("p{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cluster = Cluster::with_admin_policies(&names);
    let wanted: Vec<PolicyCondition> = names.iter().map(|n| condition(n, true, "fine")).collect();
    cluster.start("one", &conditions(&wanted));
    cluster.wait("all", || {
        names
            .iter()
            .all(|name| !cluster.conditions(name).is_empty())
    });
    let writes = cluster.server.take_writes().into_iter();
    let turns = writes.map(|(target, _)| target.contains("/status"));
    let turns: Vec<bool> = turns.collect();
    let longest = turns
        .split(|is_condition| !is_condition)
        .map(<[bool]>::len)
        .max();
    assert_eq!(longest, Some(20), "{turns:?}");
}
