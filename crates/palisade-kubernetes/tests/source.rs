//! The source against a server in memory: what it has in force is what the server has, however the server fails.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests: their helpers fail, wait and write files"
)]

use palisade_generators::case_seeds;
use palisade_kubernetes::{Credentials, KubernetesSource, SourceStopHandle};
use palisade_model::{ObjectKey, State, Update};
use palisade_source::{
    Diagnostic, EffectiveReport, ElementBudget, SnapshotStore, Source, SourceSet,
};
use palisade_testkit::{ApiFault, FakeApiServer};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PODS: &str = "/api/v1/pods";
const NAMESPACES: &str = "/api/v1/namespaces";
const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";

/// A source that is followed, and what it has in force.
struct Follower {
    seen: Arc<(Mutex<Seen>, Condvar)>,
    stop: SourceStopHandle,
    thread: Option<JoinHandle<()>>,
    dir: Option<tempfile::TempDir>,
}

#[derive(Clone, Default)]
struct Seen {
    state: State,
    in_sync: bool,
    report: EffectiveReport,
    /// The number of batches with updates.
    batches: usize,
    /// The names of the policies that were deleted.
    deleted: Vec<String>,
}

impl Follower {
    fn start(server: &FakeApiServer) -> Self {
        Follower::start_in(tempfile::tempdir().unwrap(), server)
    }

    /// The same with the files of another.
    fn start_in(dir: tempfile::TempDir, server: &FakeApiServer) -> Self {
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, server.kubeconfig()).unwrap();
        let snapshot = SnapshotStore::new(dir.path(), "kubernetes", "here");
        let mut source = KubernetesSource::new(Credentials::Kubeconfig(path), Some(snapshot))
            .with_absent_interval(Duration::from_millis(100));
        let stop = source.stop_handle();
        let names = ["kubernetes".into()];
        let mut sources = SourceSet::open(names, dir.path(), ElementBudget::default()).unwrap();
        let seen: Arc<(Mutex<Seen>, Condvar)> = Arc::default();
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let mut apply = |delta, detected_at| {
                sources.apply(0, delta, detected_at, &mut |batch| {
                    let mut seen = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.batches += usize::from(!batch.updates.is_empty());
                    for update in batch.updates {
                        if let Update::Delete(ObjectKey::Policy(id)) = &update {
                            seen.deleted.push(id.object.name.to_string());
                        }
                        seen.state.apply(update);
                    }
                    (seen.in_sync, seen.report) = (batch.in_sync, batch.report);
                    shared.1.notify_all();
                    ControlFlow::Continue(())
                })
            };
            source.run(&mut apply).unwrap();
        });
        Follower {
            seen,
            stop,
            thread: Some(thread),
            dir: Some(dir),
        }
    }

    /// Ends it; returns its files.
    fn end(mut self) -> tempfile::TempDir {
        self.dir.take().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.as_ref().unwrap().path().join(name)
    }

    /// Waits until the condition holds.
    #[track_caller]
    fn wait(&self, what: &str, is_reached: impl Fn(&Seen) -> bool) -> Seen {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_reached(&seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "{what}: {:?}, {:#?}",
                names(&seen.state),
                seen.report
            );
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
        seen.clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// The names of the endpoints and policies.
fn names(state: &State) -> Vec<String> {
    let pods = state.endpoints.keys().map(ToString::to_string);
    let policies = state.policies.keys().map(|id| id.object.to_string());
    pods.chain(policies).collect()
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name}}})
}

fn pod(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}

fn policy(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"podSelector": {"matchLabels": {"app": app}}, "policyTypes": ["Ingress"]},
    })
}

fn shop() -> FakeApiServer {
    let server = FakeApiServer::start().unwrap();
    server.put(NAMESPACES, namespace("shop"));
    server.put(PODS, pod("web", "10.0.0.1"));
    server.put(POLICIES, policy("deny", "web"));
    server
}

#[test]
fn a_server_that_asks_for_a_delay_is_not_asked_before() {
    let server = FakeApiServer::start().unwrap();
    // With Retry-After: 1; the first delay without it is at most a fifth of that.
    server.add_fault(ApiFault::Status(429));
    let began = Instant::now();
    let follower = Follower::start(&server);
    follower.wait("in sync", |seen| seen.in_sync);
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn objects_of_the_server_are_in_force_and_follow_it() {
    for has_streaming_lists in [true, false] {
        let server = shop();
        server.set_streaming_lists(has_streaming_lists);
        let follower = Follower::start(&server);
        let seen = follower.wait("the first list", |seen| seen.in_sync);
        assert_eq!(
            names(&seen.state),
            ["Pod shop/web", "NetworkPolicy shop/deny"]
        );
        assert_eq!(seen.report.problems, []);
        server.put(POLICIES, policy("more", "web"));
        server.put(PODS, pod("db", "10.0.0.2"));
        follower.wait("two more", |seen| names(&seen.state).len() == 4);
        server.delete(POLICIES, "shop/deny");
        server.delete(PODS, "shop/web");
        let seen = follower.wait("two fewer", |seen| names(&seen.state).len() == 2);
        assert_eq!(
            names(&seen.state),
            ["Pod shop/db", "NetworkPolicy shop/more"]
        );
        let requests = server.take_requests();
        let pages = requests.iter().any(|target| target.contains("limit="));
        assert_eq!(pages, !has_streaming_lists, "{requests:#?}");
        assert!(!requests.iter().any(|target| target.contains("secrets")));
    }
}

/// An API server whose etcd cannot report the progress of a watch answers every streaming list with 500.
#[test]
fn a_server_that_fails_on_streaming_lists_is_asked_for_pages() {
    let server = shop();
    server.refuse_streaming_lists(500);
    let follower = Follower::start(&server);
    let seen = follower.wait("the first list", |seen| seen.in_sync);
    assert_eq!(names(&seen.state).len(), 2);
    assert!(seen.report.sources[0].stale.is_none());
    server.delete(PODS, "shop/web");
    follower.wait("one fewer", |seen| names(&seen.state).len() == 1);
}

#[test]
fn fields_that_policy_does_not_need_change_nothing() {
    let server = shop();
    let follower = Follower::start(&server);
    let before = follower.wait("the first list", |seen| seen.in_sync).batches;
    for n in 0..50 {
        let mut changed = pod("web", "10.0.0.1");
        changed["status"]["conditions"] = json!([{"type": "Ready", "lastProbeTime": n}]);
        changed["metadata"]["annotations"] = json!({"n": n.to_string()});
        changed["metadata"]["generation"] = n.into();
        server.put(PODS, changed);
        let mut changed = policy("deny", "web");
        changed["metadata"]["managedFields"] = json!([{"manager": "m", "time": n}]);
        changed["metadata"]["generation"] = n.into();
        server.put(POLICIES, changed);
    }
    server.put(POLICIES, policy("last", "web"));
    let seen = follower.wait("the last policy", |seen| names(&seen.state).len() == 3);
    assert_eq!(seen.batches, before + 1);
}

#[test]
fn a_list_of_many_pages_is_read_whole() {
    let server = shop();
    server.set_streaming_lists(false);
    for n in 0..1_700_u32 {
        let address = format!("10.1.{}.{}", n / 250, n % 250 + 1);
        server.put(PODS, pod(&format!("p{n}"), &address));
    }
    let follower = Follower::start(&server);
    let seen = follower.wait("the first list", |seen| seen.in_sync);
    assert_eq!(seen.state.endpoints.len(), 1_701);
    let requests = server.take_requests();
    let pages = requests.iter().filter(|target| target.starts_with(PODS));
    assert_eq!(pages.filter(|target| target.contains("limit=")).count(), 4);
}

#[test]
fn what_was_deleted_while_nobody_followed_goes_after_a_complete_list() {
    let server = shop();
    let follower = Follower::start(&server);
    follower.wait("the first list", |seen| seen.in_sync);
    server.set_down(true);
    let seen = follower.wait("a report", |seen| {
        let stale = seen.report.sources[0].stale.as_ref();
        stale.is_some_and(|stale| stale.reason.contains("networkpolicies.networking.k8s.io"))
    });
    assert!(seen.in_sync);
    assert_eq!(
        names(&seen.state).len(),
        2,
        "nothing is deleted by an absence"
    );
    server.delete(POLICIES, "shop/deny");
    server.put(POLICIES, policy("new", "web"));
    server.compact();
    server.set_down(false);
    let is_followed = |seen: &Seen| seen.report.sources[0].stale.is_none();
    let seen = follower.wait("the new list", |seen| {
        is_followed(seen) && names(&seen.state).contains(&"NetworkPolicy shop/new".to_owned())
    });
    assert_eq!(
        names(&seen.state),
        ["Pod shop/web", "NetworkPolicy shop/new"]
    );
}

#[test]
fn a_malformed_object_fails_alone_and_by_name() {
    let server = shop();
    let mut bad = policy("bad", "web");
    bad["spec"]["podSelector"] = json!("everything");
    server.put(POLICIES, bad);
    server.put(
        POLICIES,
        json!({"metadata": {"namespace": "shop", "name": {"a": 1}}}),
    );
    server.put(POLICIES, json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "shop", "name": "odd"}}));
    server.put(POLICIES, json!({"metadata": 5}));
    let follower = Follower::start(&server);
    let seen = follower.wait("the first list", |seen| seen.in_sync);
    let problems = seen.report.problems.iter();
    let problems: Vec<String> = problems
        .map(|d| {
            format!(
                "{}: {}",
                d.problem.object.clone().unwrap_or_default(),
                d.problem
            )
        })
        .collect();
    let expected = [
        "networkpolicies.networking.k8s.io: spec.podSelector: ",
        "metadata.name: expected text",
        "the object is Pod shop/odd",
        "metadata: expected an object",
    ];
    for part in expected {
        let found = problems.iter().filter(|problem| problem.contains(part));
        assert_eq!(found.count(), 1, "{part}: {problems:#?}");
    }
    assert_eq!(
        names(&seen.state),
        ["Pod shop/web", "NetworkPolicy shop/deny"]
    );
    // An object that was valid and becomes unreadable stays as it was.
    let mut broken = policy("deny", "web");
    broken["metadata"]["namespace"] = json!("shop");
    broken["spec"]["policyTypes"] = json!(["Sideways"]);
    server.put(POLICIES, broken);
    let seen = follower.wait("what is retained", |seen| !seen.report.retained.is_empty());
    assert_eq!(seen.report.retained[0].object, "NetworkPolicy shop/deny");
    server.put(POLICIES, policy("deny", "web"));
    follower.wait("nothing is retained", |seen| {
        seen.report.retained.is_empty()
    });
}

#[test]
fn a_server_whose_lists_are_always_expired_is_reported() {
    let server = shop();
    for _ in 0..100 {
        server.add_fault(ApiFault::Status(410));
    }
    let follower = Follower::start(&server);
    let is_stale = |seen: &Seen| {
        seen.report
            .sources
            .iter()
            .any(|source| source.stale.is_some())
    };
    let seen = follower.wait("a report", is_stale);
    assert!(!seen.in_sync && seen.state.policies.is_empty());
}

/// Random changes and faults: the policy that is never changed is never deleted, and in the end the source has
/// what a fresh one has.
#[test]
fn whatever_fails_the_source_has_what_the_server_has() {
    for seed in case_seeds(0, 8) {
        let mut random = SmallRng::seed_from_u64(seed);
        let server = shop();
        server.set_streaming_lists(random.random());
        let follower = Follower::start(&server);
        let mut faults = 0;
        while faults < 30 {
            match random.random_range(0..12) {
                0 => server.add_fault(ApiFault::Status(
                    [410, 429, 500, 503][random.random_range(0..4)],
                )),
                1 => server.add_fault(ApiFault::CutObject),
                2 => server.add_fault(ApiFault::WatchError([410, 500][random.random_range(0..2)])),
                3 => server.add_fault(ApiFault::Garbage),
                4 => server.cut_connections(),
                5 => {
                    server.set_down(true);
                    std::thread::sleep(Duration::from_millis(random.random_range(0..30)));
                    server.set_down(false);
                }
                6 => {
                    server.set_paused(true);
                    std::thread::sleep(Duration::from_millis(random.random_range(0..30)));
                    server.set_paused(false);
                }
                7 => {
                    server.compact();
                    server.cut_connections();
                }
                n => {
                    let name = format!("p{}", random.random_range(0..6));
                    match (n, random.random()) {
                        (8 | 9, true) => server.put(PODS, pod(&name, &format!("10.0.1.{faults}"))),
                        (8 | 9, false) => drop(server.delete(PODS, &format!("shop/{name}"))),
                        (_, true) => server.put(POLICIES, policy(&name, &format!("p{faults}"))),
                        (_, false) => drop(server.delete(POLICIES, &format!("shop/{name}"))),
                    }
                    continue;
                }
            }
            faults += 1;
            std::thread::sleep(Duration::from_millis(random.random_range(0..20)));
        }
        // Faults that wait happen at the next requests.
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.waiting_faults() > 0 {
            assert!(Instant::now() < deadline, "seed {seed}: faults wait");
            server.cut_connections();
            std::thread::sleep(Duration::from_millis(20));
        }
        server.put(POLICIES, policy("end", "web"));
        let fresh = Follower::start(&server);
        let expected = fresh.wait("a fresh start", |seen| seen.in_sync).state;
        let seen = follower.wait(&format!("seed {seed}"), |seen| {
            seen.in_sync && seen.state == expected && seen.report.sources[0].stale.is_none()
        });
        assert!(!seen.deleted.contains(&"deny".to_owned()), "seed {seed}");
    }
}

#[test]
fn a_missing_kubeconfig_is_reported_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = shop();
    let path = dir.path().join("later");
    let mut source = KubernetesSource::new(Credentials::Kubeconfig(path.clone()), None);
    let mut stale = Vec::new();
    source
        .run(&mut |delta, _| {
            match &delta.stale {
                Some(reason) => {
                    stale.push(reason.clone());
                    std::fs::write(&path, server.kubeconfig()).unwrap();
                }
                None if delta.in_sync => return ControlFlow::Break(()),
                None => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(stale[0].contains("reading the credentials"), "{stale:?}");
}

#[test]
fn credentials_that_are_rotated_are_read_again() {
    let server = shop();
    server.set_token("first");
    let follower = Follower::start(&server);
    follower.wait("the first list", |seen| seen.in_sync);
    server.set_token("second");
    server.put(POLICIES, policy("new", "web"));
    let is_stale = |seen: &Seen| seen.report.sources[0].stale.clone();
    let seen = follower.wait("a report", |seen| is_stale(seen).is_some());
    assert!(is_stale(&seen).unwrap().reason.contains("401"));
    std::fs::write(follower.path("kubeconfig"), server.kubeconfig()).unwrap();
    follower.wait("the new policy", |seen| {
        names(&seen.state).len() == 3 && is_stale(seen).is_none()
    });
}

/// Waits until the reason is that the server does not answer.
fn wait_for_snapshot(follower: &Follower) -> Seen {
    follower.wait("the snapshot", |seen| {
        seen.in_sync && seen.report.sources[0].stale.is_some()
    })
}

#[test]
fn a_source_that_starts_without_its_server_has_what_it_had() {
    let server = shop();
    let follower = Follower::start(&server);
    follower.wait("the first list", |seen| seen.in_sync);
    server.put(PODS, pod("db", "10.0.0.2"));
    server.put(PODS, pod("gone", "10.0.0.3"));
    server.put(POLICIES, policy("more", "web"));
    // Never valid: it isolates.
    let mut invalid = policy("invalid", "db");
    invalid["spec"]["ingress"] = json!(5);
    server.put(POLICIES, invalid);
    // Not even an object with a name.
    server.put(
        POLICIES,
        json!({"metadata": {"name": "", "namespace": "shop"}}),
    );
    follower.wait("six objects", |seen| names(&seen.state).len() == 6);
    server.delete(PODS, "shop/gone");
    let before = follower.wait("the last change", |seen| names(&seen.state).len() == 5);
    let problems = before.report.problems.clone();
    assert_eq!(problems.len(), 2, "{problems:#?}");
    server.set_down(true);
    let follower = Follower::start_in(follower.end(), &server);
    let after = wait_for_snapshot(&follower);
    assert_eq!(after.state, before.state);
    // Without the place in the text: only a part of it is stored.
    let reasons = |problems: &[Diagnostic]| {
        let problems = problems.iter().map(|found| found.problem.clone());
        let reasons = problems.map(|problem| (problem.object, problem.field, problem.reason));
        reasons.collect::<Vec<_>>()
    };
    assert_eq!(reasons(&after.report.problems), reasons(&problems));
    let stale = after.report.sources[0].stale.clone().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    assert!(now.unwrap().as_secs() - stale.since < 60, "{stale:?}");
    // One is gone and one is changed when it is back: nothing else changes.
    server.delete(POLICIES, "shop/more");
    server.put(PODS, pod("db", "10.0.0.9"));
    server.compact();
    server.set_down(false);
    let seen = follower.wait("the list", |seen| seen.report.sources[0].stale.is_none());
    assert_eq!(names(&seen.state).len(), 4);
    assert_eq!(seen.deleted, ["more"]);
    assert!(seen.batches - after.batches <= 2, "{}", seen.batches);
    // What was learned from the list is in the next snapshot.
    server.set_down(true);
    let follower = Follower::start_in(follower.end(), &server);
    assert_eq!(wait_for_snapshot(&follower).state, seen.state);
}

#[test]
fn a_snapshot_that_was_not_marked_as_complete_is_none() {
    let server = shop();
    let follower = Follower::start(&server);
    follower.wait("the first list", |seen| seen.in_sync);
    let dir = follower.end();
    std::fs::remove_file(dir.path().join("snapshot/kubernetes/mark.json")).unwrap();
    server.set_down(true);
    let follower = Follower::start_in(dir, &server);
    let seen = follower.wait("a report", |seen| {
        seen.report
            .sources
            .first()
            .is_some_and(|source| source.stale.is_some())
    });
    assert!(!seen.in_sync && seen.state.endpoints.is_empty());
}

#[test]
fn a_damaged_snapshot_is_reported_and_the_server_is_waited_for() {
    let server = shop();
    let follower = Follower::start(&server);
    follower.wait("the first list", |seen| seen.in_sync);
    let dir = follower.end();
    let folder = dir.path().join("snapshot/kubernetes");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let file = files
        .into_iter()
        .find(|path| path.extension() == Some("log".as_ref()))
        .unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    server.set_down(true);
    let follower = Follower::start_in(dir, &server);
    let is_reported = |seen: &Seen| {
        let problems = seen.report.problems.iter();
        let reasons: Vec<_> = problems.map(|found| &*found.problem.reason).collect();
        reasons
            .iter()
            .any(|reason| reason.contains("cannot be used") && reason.contains("damaged"))
    };
    let seen = follower.wait("a report", is_reported);
    assert!(!seen.in_sync && seen.state.policies.is_empty());
    server.set_down(false);
    let seen = follower.wait("the server", |seen| {
        seen.in_sync && seen.report.problems.is_empty()
    });
    server.set_down(true);
    let follower = Follower::start_in(follower.end(), &server);
    assert_eq!(wait_for_snapshot(&follower).state, seen.state);
}

/// With `PALISADE_SNAPSHOT_PODS=150000` it measures a large cluster.
#[test]
fn a_snapshot_of_many_pods_is_small() {
    let pods = std::env::var("PALISADE_SNAPSHOT_PODS").ok();
    let pods: usize = pods.map_or(2_000, |text| text.parse().unwrap());
    let server = shop();
    for n in 0..pods {
        let address = format!("10.{}.{}.{}", n / 62_500, n / 250 % 250, n % 250 + 1);
        let mut pod = pod(&format!("deployment-6f7b8c9d5-{n:06}"), &address);
        pod["metadata"]["uid"] = json!(format!("8d0a4c0e-0000-4000-8000-{n:012}"));
        pod["metadata"]["managedFields"] = json!([{"fields": "x".repeat(2_000)}]);
        pod["metadata"]["labels"] = json!({"app": "a", "pod-template-hash": "6f7b8c9d5"});
        server.put(PODS, pod);
    }
    let follower = Follower::start(&server);
    let before = follower.wait("the list", |seen| {
        seen.in_sync && seen.report.objects == pods + 3
    });
    let size = |path: PathBuf| -> u64 {
        let files = std::fs::read_dir(path).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    let bytes = size(follower.path("snapshot/kubernetes"));
    server.set_down(true);
    let dir = follower.end();
    let began = Instant::now();
    let follower = Follower::start_in(dir, &server);
    let after = wait_for_snapshot(&follower);
    let took = began.elapsed();
    println!("{pods} pods: {bytes} bytes, restored in {took:?}");
    assert_eq!(after.state.endpoints.len(), before.state.endpoints.len());
    assert!(bytes < pods as u64 * 700, "{bytes}");
    // A change costs an entry, not the number of pods.
    server.set_down(false);
    follower.wait("the server", |seen| seen.report.sources[0].stale.is_none());
    let before = size(follower.path("snapshot/kubernetes"));
    server.put(POLICIES, policy("last", "web"));
    follower.wait("a policy", |seen| seen.state.policies.len() == 2);
    let grown = size(follower.path("snapshot/kubernetes")) - before;
    assert!(grown < 1_000, "{grown}");
}

const ADMIN_POLICIES: &str = "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies";

fn admin_policy(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "priority": 10,
            "subject": {"namespaces": {}},
            "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}],
        },
    })
}

/// Whether an object of this name is in force.
fn is_in_force(seen: &Seen, name: &str) -> bool {
    names(&seen.state).iter().any(|other| other.ends_with(name))
}

#[test]
fn a_policy_api_may_come_later_and_go() {
    let server = shop();
    let follower = Follower::start(&server);
    let absent = |seen: &Seen| seen.report.sources[0].absent().len();
    let seen = follower.wait("in sync without the API", |seen| {
        seen.in_sync && absent(seen) == 3
    });
    assert_eq!(seen.report.sources[0].stale, None);

    server.put(ADMIN_POLICIES, admin_policy("admin"));
    server.set_installed(ADMIN_POLICIES, true);
    follower.wait("the API has come", |seen| {
        absent(seen) == 2 && is_in_force(seen, "admin")
    });

    server.set_installed(ADMIN_POLICIES, false);
    server.cut_connections();
    let seen = follower.wait("the API has gone", |seen| absent(seen) == 3);
    assert!(is_in_force(&seen, "admin"));
    let reason = &seen.report.sources[0].stale.as_ref().unwrap().reason;
    assert_eq!(
        reason,
        "adminnetworkpolicies.policy.networking.k8s.io: the API server does not have this API any more; its \
         object stays in force"
    );
    assert!(
        names(&seen.state)
            .iter()
            .any(|name| name.ends_with("shop/deny"))
    );

    // Back again without the object: a complete list says that it is gone.
    server.set_installed(ADMIN_POLICIES, true);
    let seen = follower.wait("the API is back", |seen| absent(seen) == 2);
    assert!(!is_in_force(&seen, "admin"));
    assert_eq!(seen.report.sources[0].stale, None);
}
