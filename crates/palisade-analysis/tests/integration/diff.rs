//! Tests of `diff`: opened and closed connections, appeared and vanished workloads.

use crate::build::*;
use crate::connections::shown;
use palisade_analysis::diff;
use palisade_model::Action::Allow;
use palisade_model::*;

#[track_caller]
fn differs(old: &State, new: &State, opened: &[&str], closed: &[&str]) {
    let diff = diff(old, new);
    let all = |list: &[palisade_analysis::Connection]| list.iter().map(shown).collect::<Vec<_>>();
    assert_eq!(
        (all(&diff.opened), all(&diff.closed)),
        (all_of(opened), all_of(closed))
    );
}

fn all_of(list: &[&str]) -> Vec<String> {
    list.iter().map(|line| (*line).to_owned()).collect()
}

fn web(ports: &[u16], nets: &[&str]) -> State {
    let rules = ports.iter().map(|port| on(Allow, tcp(*port)));
    let nets = nets.iter().map(|n| from(Allow, Peer::net(net(n), vec![])));
    two(vec![policy("n/p", "app=b", rules.chain(nets).collect())])
}

#[test]
fn ports_opened_and_closed() {
    differs(
        &web(&[80, 81], &[]),
        &web(&[81, 82], &[]),
        &expected("TCP 82")
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        &expected("TCP 80")
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
}

/// Rows to pod `b` from pod `a` and from the outside (without the two pods' addresses).
fn expected(set: &str) -> Vec<String> {
    let diff = diff(&two(vec![policy("n/p", "app=b", vec![])]), &two(vec![]));
    let into_b = diff
        .opened
        .iter()
        .filter(|c| c.dst.to_string() == "n/b (Pod)");
    into_b
        .map(|c| format!("{} > {}: {set}", c.src, c.dst))
        .collect()
}

#[test]
fn networks_opened() {
    differs(
        &web(&[80], &["198.51.100.0/25"]),
        &web(&[80], &["198.51.100.0/24"]),
        &[
            "outside 198.51.100.128/25 > n/b (Pod): TCP 0-79,81-65535; UDP; SCTP; ICMP; ICMPv6; every other protocol",
        ],
        &[],
    );
}

#[test]
fn workloads_come_and_go() {
    let old = two(vec![
        policy("n/p", "", vec![]),
        egress(policy("n/e", "", vec![])),
    ]);
    let mut new = old.clone();
    new.apply(Update::Delete(ObjectKey::Endpoint(id("Pod", "n/a"))));
    let mut c = pod("m/c", "10.0.0.3", "");
    c.profiles = vec![];
    new.apply(Update::Upsert(Object::Endpoint(c)));
    let diff = diff(&old, &new);
    assert_eq!((diff.opened.len(), diff.closed.len()), (0, 0));
    let names = |list: &[palisade_api::WorkloadRef]| {
        list.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names(&diff.appeared), ["m/c (Pod)"]);
    assert_eq!(names(&diff.vanished), ["n/a (Pod)"]);
    assert!(!diff.is_empty());
}

/// New pods of an existing owner are the same workload.
#[test]
fn replaced_pods_change_nothing() {
    let state = |pods: &[(&str, &str)]| {
        let make = |(name, address): &(&str, &str)| {
            let mut pod = pod(name, address, "app=w");
            pod.metadata.owner = Some(Owner {
                kind: "StatefulSet".into(),
                name: "w".into(),
            });
            Object::Endpoint(pod)
        };
        state(pods.iter().map(make).collect())
    };
    let old = state(&[("n/w-0", "10.0.0.1"), ("n/w-1", "10.0.0.2")]);
    let new = state(&[
        ("n/w-1", "10.0.0.9"),
        ("n/w-2", "10.0.0.8"),
        ("n/w-3", "10.0.0.7"),
    ]);
    assert!(diff(&old, &new).is_empty());
}
