//! The permissions of members of the API's group, tested through the API.

use super::site::{GROUP, Host, Site, reader, root};
use palisade_generators::line;
use palisade_model::{Endpoint, Object, Update};
use palisade_network::network_driver::{AddressUse, NetnsFacts};
use palisade_node::rate_limit::RateLimit;
use palisade_sys::credentials::SocketCredentials;
use serde_json::{Value, json};

const RATE: RateLimit = RateLimit {
    per_second: 1_000,
    burst: 1_000,
};

fn member(uid: u32) -> SocketCredentials {
    SocketCredentials {
        uid,
        groups: vec![GROUP],
        ..reader()
    }
}

fn pod(name: &str, addresses: &[&str]) -> Update {
    Update::Upsert(Object::Endpoint(Endpoint {
        profiles: Vec::new(),
        created: 1,
        ..line::endpoint(&format!("shop/{name} {}", addresses.join(" ")))
    }))
}

/// A site whose source has three Pods, one of which runs on another node.
fn site(host: &Host, said: &[(&str, &str)]) -> Site {
    let site = Site::on(RATE, host, said);
    site.says(vec![
        pod("web", &[]),
        pod("db", &[]),
        pod("far", &["10.9.9.9"]),
    ]);
    site
}

fn add(name: &str, more: Value) -> String {
    let mut body = json!({"namespace": "shop", "name": name, "netns": name});
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body.to_string()
}

fn named(name: &str) -> String {
    json!({"namespace": "shop", "name": name}).to_string()
}

impl Site {
    async fn post(&self, peer: SocketCredentials, body: &str) -> (u16, Value) {
        let (status, answer) = self.ask(peer, "POST", "/v1/workloads", body).await;
        (status.as_u16(), answer)
    }

    async fn delete(&self, peer: SocketCredentials, name: &str) -> (u16, Value) {
        let body = named(name);
        let (status, answer) = self.ask(peer, "DELETE", "/v1/workloads", &body).await;
        (status.as_u16(), answer)
    }

    async fn attached(&self) -> usize {
        let (_, list) = self.ask(root(), "GET", "/v1/endpoints", "").await;
        list["endpoints"].as_array().unwrap().len()
    }
}

#[tokio::test]
async fn a_member_gets_what_the_pod_of_that_name_gets() {
    let host = Host::default();
    let site = site(&host, &[("ipam-reserved", "10.245.0.200-10.245.0.209")]);
    for (address, used) in [
        ("10.245.0.20", AddressUse::Host),
        ("10.245.0.21", AddressUse::Gateway),
        ("fd50:616c:6973::20", AddressUse::Broadcast),
    ] {
        let mut state = host.0.lock().unwrap();
        state.used.insert(address.parse().unwrap(), used);
    }
    let address = |a: &str| json!({ "addresses": [a] });
    for (what, more) in [
        ("labels", json!({"labels": {"app": "admin"}})),
        ("no labels", json!({"labels": {}})),
        ("ports", json!({"ports": ["http=22"]})),
        ("no pool", address("192.0.2.7")),
        ("no pool, IPv6", address("2001:db8::7")),
        ("a pool's first", address("10.245.0.0")),
        ("a pool's second", address("10.245.0.1")),
        ("a pool's last", address("10.245.0.255")),
        ("a pool's first, IPv6", address("fd50:616c:6973::")),
        ("reserved", address("10.245.0.205")),
        ("the host's", address("10.245.0.20")),
        ("a gateway's", address("10.245.0.21")),
        ("a broadcast address", address("fd50:616c:6973::20")),
        (
            "init's namespace by a path",
            json!({"netns": "/proc/self/root/proc/1/ns/net"}),
        ),
        ("a file of somebody's", json!({"netns": "/home/ann/netns"})),
    ] {
        let (status, answer) = site.post(member(1000), &add("web", more)).await;
        assert_eq!(status, 403, "{what}: {answer}");
        assert!(answer["hint"].is_string(), "{what}: {answer}");
    }
    let (status, answer) = site.post(member(1000), &add("far", json!({}))).await;
    assert_eq!(status, 403, "a Pod that runs elsewhere: {answer}");
    assert_eq!(site.attached().await, 0);

    let (status, answer) = site
        .post(member(1000), &add("web", address("10.245.0.50")))
        .await;
    assert_eq!(
        (status, &answer["addresses"]),
        (200, &json!(["10.245.0.50"]))
    );
    assert_eq!(answer["closed"], Value::Null);
    // A workload without a known Pod stays closed until the Pod is known.
    let (status, answer) = site.post(member(1000), &add("new", json!({}))).await;
    assert_eq!(
        (status, &answer["closed"]),
        (200, &json!("its Pod is not known yet"))
    );
    // Addresses that the host uses are never allocated.
    let mut given = Vec::new();
    for _ in 0..30 {
        let (_, answer) = site.post(root(), &add("db", json!({}))).await;
        given.extend(answer["addresses"].as_array().unwrap().clone());
        assert_eq!(site.delete(root(), "db").await.0, 200);
    }
    for used in ["10.245.0.20", "10.245.0.21", "fd50:616c:6973::20"] {
        assert!(!given.contains(&json!(used)), "{used}: {given:?}");
    }
    assert!(given.contains(&json!("10.245.0.22")) && given.contains(&json!("fd50:616c:6973::1f")));
}

#[tokio::test]
async fn a_member_touches_nobody_elses() {
    let host = Host::default();
    let site = site(&host, &[("api-group-workloads", "1")]);
    assert_eq!(site.post(root(), &add("web", json!({}))).await.0, 200);
    assert_eq!(site.post(member(1001), &add("db", json!({}))).await.0, 200);
    for name in ["web", "db"] {
        assert_eq!(site.delete(member(1000), name).await.0, 403, "{name}");
        let (status, _) = site.post(member(1000), &add(name, json!({}))).await;
        assert_eq!(status, 409, "{name}: as if it were the caller's own");
    }
    assert_eq!(site.attached().await, 2);
    // The limit holds for each user; the caller's own workload may be added again, and removed.
    assert_eq!(site.post(member(1001), &add("db", json!({}))).await.0, 200);
    assert_eq!(
        site.post(member(1001), &add("more", json!({}))).await.0,
        403
    );
    assert_eq!(site.delete(member(1001), "db").await.0, 200);
    assert_eq!(
        site.post(member(1001), &add("more", json!({}))).await.0,
        200
    );
    assert_eq!(site.delete(root(), "more").await.0, 200);
    assert_eq!(site.delete(member(1000), "nothing").await.0, 200);
}

#[tokio::test]
async fn operations_of_runtimes_are_roots() {
    let site = site(&Host::default(), &[]);
    let cni = json!({
        "container": "c1", "network": "pods", "interface": "eth0", "netns": "/run/netns/web",
        "namespace": "shop", "name": "web", "pod": true,
    });
    let attachment = json!({"container": "c1", "network": "pods", "interface": "eth0"});
    let check = json!({"attachment": attachment, "netns": "/run/netns/web", "addresses": []});
    let gc = json!({"network": "pods", "valid": []});
    assert_eq!(site.post(member(1000), &add("web", json!({}))).await.0, 200);
    for (method, path, body) in [
        ("POST", "/v1/cni", &cni),
        ("POST", "/v1/cni/check", &check),
        ("POST", "/v1/cni/gc", &gc),
        ("DELETE", "/v1/cni", &attachment),
    ] {
        let answer = site
            .ask(member(1000), method, path, &body.to_string())
            .await;
        assert_eq!(answer.0.as_u16(), 403, "{method} {path}: {}", answer.1);
    }
    // A pod of root replaces what a member attached under its name or in its namespace.
    let (status, answer) = site.ask(root(), "POST", "/v1/cni", &cni.to_string()).await;
    assert_eq!(status.as_u16(), 200, "{answer}");
    assert_eq!(site.attached().await, 1);
    assert_eq!(site.delete(member(1000), "web").await.0, 403);
}

#[tokio::test]
async fn a_member_attaches_namespaces_that_are_nobody_elses() {
    let host = Host::default();
    let by_owner = site(&host, &[("api-group-netns", "own")]);
    let tenancy = |owner, named, used| {
        host.0.lock().unwrap().tenancy = NetnsFacts { owner, named, used };
    };
    let own = json!({"netns": "/proc/17/ns/net"});
    for (owner, named, used, expected) in [
        (Some(0), true, false, 403),
        (Some(0), false, false, 403),
        (Some(1001), false, false, 403),
        (None, false, false, 403),
        (Some(1000), false, true, 200),
    ] {
        tenancy(owner, named, used);
        let (status, answer) = by_owner.post(member(1000), &add("web", own.clone())).await;
        assert_eq!(status, expected, "{owner:?} {named} {used}: {answer}");
    }
    let by_name = site(&host, &[]);
    for (used, expected) in [(true, 403), (false, 200)] {
        tenancy(Some(0), true, used);
        let (status, answer) = by_name.post(member(1000), &add("web", json!({}))).await;
        assert_eq!(status, expected, "{answer}");
    }
}

#[tokio::test]
async fn root_can_give_the_group_more_or_less() {
    let more = site(&Host::default(), &[("api-group-labels", "any")]);
    let labels = json!({"labels": {"app": "admin"}, "ports": ["http=22"]});
    let (status, answer) = more.post(member(1000), &add("other", labels)).await;
    assert_eq!((status, &answer["closed"]), (200, &Value::Null), "{answer}");
    let less = site(
        &Host::default(),
        &[("api-group-namespaces", "team-a,team-b")],
    );
    assert_eq!(less.post(member(1000), &add("web", json!({}))).await.0, 403);
    let inside = json!({"namespace": "team-b"});
    assert_eq!(less.post(member(1000), &add("web", inside)).await.0, 200);
}

#[tokio::test]
async fn requests_that_ask_for_too_much_are_refused_whoever_asks() {
    let site = site(&Host::default(), &[]);
    let addresses: Vec<String> = (2..40).map(|n| format!("10.7.0.{n}")).collect();
    for (what, more) in [
        ("families", json!({"families": [4, 4]})),
        ("no family", json!({"families": [5]})),
        ("addresses", json!({"addresses": addresses})),
        ("a pattern for a name", json!({"interface": "eth%d"})),
        ("a control character", json!({"interface": "e\u{1b}"})),
        ("a folder", json!({"interface": ".."})),
        ("a zero byte", json!({"netns": "a\u{0}b"})),
    ] {
        let (status, answer) = site.post(root(), &add("web", more)).await;
        assert_eq!(status, 422, "{what}: {answer}");
    }
}
