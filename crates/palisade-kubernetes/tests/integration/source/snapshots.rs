//! A source that starts without its server has what it had.

use super::running_source::{PODS, POLICIES, RunningSource, Seen, names, pod, policy, shop};
use palisade_effective::Diagnostic;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Waits until the reason is that the server does not answer.
fn wait_for_snapshot(follower: &RunningSource) -> Seen {
    follower.wait("the snapshot", |seen| {
        seen.in_sync && seen.report.sources[0].stale.is_some()
    })
}

#[test]
fn a_source_that_starts_without_its_server_has_what_it_had() {
    let server = shop();
    let follower = RunningSource::start(&server);
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
    let follower = RunningSource::start_in(follower.end(), &server);
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
    let follower = RunningSource::start_in(follower.end(), &server);
    assert_eq!(wait_for_snapshot(&follower).state, seen.state);
}

#[test]
fn a_snapshot_that_was_not_marked_as_complete_is_none() {
    let server = shop();
    let follower = RunningSource::start(&server);
    follower.wait("the first list", |seen| seen.in_sync);
    let dir = follower.end();
    std::fs::remove_file(dir.path().join("snapshot/kubernetes/mark.json")).unwrap();
    server.set_down(true);
    let follower = RunningSource::start_in(dir, &server);
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
    let follower = RunningSource::start(&server);
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
    let follower = RunningSource::start_in(dir, &server);
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
    let follower = RunningSource::start_in(follower.end(), &server);
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
    let follower = RunningSource::start(&server);
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
    let follower = RunningSource::start_in(dir, &server);
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
