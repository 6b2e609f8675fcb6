//! The source against a server in memory: what it has in force is what the server has, however the server fails.

mod policy_api;
mod running_source;
mod snapshots;

use palisade_generators::case_seeds;
use palisade_kubernetes::{ApiServer, Credentials};
use palisade_model::State;
use palisade_remote::RemoteSource;
use palisade_source::Source;
use palisade_testkit::{ApiFault, FakeApiServer};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use running_source::{PODS, POLICIES, RunningSource, Seen, names, pod, policy, shop};
use serde_json::json;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

#[test]
fn a_server_that_asks_for_a_delay_is_not_asked_before() {
    let server = FakeApiServer::start().unwrap();
    // With Retry-After: 1; the first delay without it is at most a fifth of that.
    server.add_fault(ApiFault::Status(429));
    let began = Instant::now();
    let follower = RunningSource::start(&server);
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
        let follower = RunningSource::start(&server);
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

/// An object of a server has no file and no line: a policy is named by its resource and resource version, a rule by
/// its path.
#[test]
fn a_policy_says_its_version_and_each_rule_its_path() {
    let server = shop();
    let mut web = policy("web", "web");
    web["spec"]["ingress"] = json!([{"from": [{"podSelector": {}}]}, {"ports": [{"port": 80}]}]);
    server.put(POLICIES, web.clone());
    let sources_of = |seen: &Seen| {
        let policy = seen.state.policies.values().next_back().unwrap();
        let rules = policy.ingress.iter().flat_map(|list| &list.rules);
        let rules = rules.map(|rule| policy.rule_source(&rule.origin).unwrap());
        let line = policy.line.as_ref().unwrap().to_string();
        [line].into_iter().chain(rules).collect::<Vec<String>>()
    };
    let follower = RunningSource::start(&server);
    let first = sources_of(&follower.wait("the first list", |seen| seen.in_sync));
    let resource = "networkpolicies.networking.k8s.io, resource version ";
    let version = first[0].strip_prefix(resource).unwrap().to_owned();
    assert!(version.parse::<u64>().is_ok(), "{version}");
    let expected = |version: &str| {
        [
            format!("{resource}{version}"),
            format!("{resource}{version}: spec.ingress[0]"),
            format!("{resource}{version}: spec.ingress[1]"),
        ]
    };
    assert_eq!(first, expected(&version));
    // The version is that of the content in force.
    web["spec"]["ingress"][1]["ports"][0]["port"] = json!(81);
    server.put(POLICIES, web);
    let seen = follower.wait("the next version", |seen| sources_of(seen) != first);
    let next = sources_of(&seen);
    let version = next[0].strip_prefix(resource).unwrap().to_owned();
    assert_eq!(next, expected(&version));
}

/// An API server whose etcd cannot report the progress of a watch answers every streaming list with 500.
#[test]
fn a_server_that_fails_on_streaming_lists_is_asked_for_pages() {
    let server = shop();
    server.refuse_streaming_lists(500);
    let follower = RunningSource::start(&server);
    let seen = follower.wait("the first list", |seen| seen.in_sync);
    assert_eq!(names(&seen.state).len(), 2);
    assert!(seen.report.sources[0].stale.is_none());
    server.delete(PODS, "shop/web");
    follower.wait("one fewer", |seen| names(&seen.state).len() == 1);
}

#[test]
fn fields_that_policy_does_not_need_change_nothing() {
    let server = shop();
    let follower = RunningSource::start(&server);
    let before = follower.wait("the first list", |seen| seen.in_sync).updates;
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
    assert_eq!(seen.updates, before + 1);
}

#[test]
fn a_list_of_many_pages_is_read_whole() {
    let server = shop();
    server.set_streaming_lists(false);
    for n in 0..1_700_u32 {
        let address = format!("10.1.{}.{}", n / 250, n % 250 + 1);
        server.put(PODS, pod(&format!("p{n}"), &address));
    }
    let follower = RunningSource::start(&server);
    let seen = follower.wait("the first list", |seen| seen.in_sync);
    assert_eq!(seen.state.endpoints.len(), 1_701);
    let requests = server.take_requests();
    let pages = requests.iter().filter(|target| target.starts_with(PODS));
    assert_eq!(pages.filter(|target| target.contains("limit=")).count(), 4);
}

#[test]
fn what_was_deleted_while_nobody_followed_goes_after_a_complete_list() {
    let server = shop();
    let follower = RunningSource::start(&server);
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
    let follower = RunningSource::start(&server);
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
    let follower = RunningSource::start(&server);
    let is_stale = |seen: &Seen| {
        seen.report
            .sources
            .iter()
            .any(|source| source.stale.is_some())
    };
    let seen = follower.wait("a report", is_stale);
    assert!(!seen.in_sync && seen.state.policies.is_empty());
}

/// A state without the places of policies: a version that was replaced by an equal one keeps its resource version.
fn without_lines(state: &State) -> State {
    let mut state = state.clone();
    for policy in state.policies.values_mut() {
        policy.line = None;
        for side in [&mut policy.ingress, &mut policy.egress] {
            for rule in side.iter_mut().flat_map(|side| &mut side.rules) {
                rule.origin.line = None;
            }
        }
    }
    state
}

/// Random changes and faults: the policy that is never changed is never deleted, and in the end the source has
/// what a fresh one has.
#[test]
fn whatever_fails_the_source_has_what_the_server_has() {
    for seed in case_seeds(0, 8) {
        let mut random = SmallRng::seed_from_u64(seed);
        let server = shop();
        server.set_streaming_lists(random.random());
        let follower = RunningSource::start(&server);
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
        let fresh = RunningSource::start(&server);
        let expected = without_lines(&fresh.wait("a fresh start", |seen| seen.in_sync).state);
        let wanted = format!("seed {seed}: a fresh start has {expected:#?}");
        let seen = follower.wait(&wanted, |seen| {
            let state = without_lines(&seen.state);
            seen.in_sync && state == expected && seen.report.sources[0].stale.is_none()
        });
        assert!(!seen.deleted.contains(&"deny".to_owned()), "seed {seed}");
    }
}

#[test]
fn a_missing_kubeconfig_is_reported_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = shop();
    let path = dir.path().join("later");
    let mut source = RemoteSource::new(ApiServer::new(Credentials::Kubeconfig(path.clone())), None);
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
    let follower = RunningSource::start(&server);
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
