//! What holds for each server: what is allowed is answered and opens, what is not is refused and opens nothing.

use super::{KINDS, NamedShop, addresses_of, dnsmasq, lookup, servers};
use crate::agent::ip;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use palisade_testkit::lab::Lab;
use palisade_testkit::need_root;
use palisade_testkit::runtimes::RuntimePrograms;
use std::path::Path;

fn names_with(server: &Path) {
    let name = server.file_name().unwrap().to_str().unwrap();
    let named = NamedShop::open(&format!("names-{}", &name[..3]), server);
    let web = named.shop.pods[0];
    named.assert_served(web, &servers(), name);
    // What was not asked for, and the other family of what was.
    for denied in [addresses_of(100)[0], addresses_of(0)[1]] {
        assert!(named.is_denied(denied), "{name}: {denied}");
    }
    let detail = named.shop.agent.json(&["names", "get", "n0.example.com"]);
    assert_eq!(detail["addresses"][0]["workload"], "shop/web", "{detail:#}");
    let source = detail["selectedBy"][0]["source"].as_str().unwrap();
    assert!(source.contains("names.yaml:"), "{detail:#}");
    // Another workload, which no policy selects, is not redirected; its answers teach nothing.
    let (api, at) = (named.shop.pods[1], servers()[0]);
    let answer = lookup(&named.shop.lab, api, at, "other.test", RecordType::A);
    assert_eq!(answer.map(|(code, _)| code), Some(ResponseCode::NoError));
    assert!(named.held("other.test").is_empty());
}

#[test]
fn names_of_dnsmasq_are_enforced() {
    if !need_root() {
        return;
    }
    names_with(Path::new("dnsmasq"));
}

#[test]
fn names_of_unbound_are_enforced() {
    if !need_root() {
        return;
    }
    names_with(Path::new("unbound"));
}

#[test]
fn names_of_bind_are_enforced() {
    if !need_root() {
        return;
    }
    names_with(Path::new("named"));
}

#[test]
fn names_of_coredns_are_enforced() {
    if !need_root() {
        return;
    }
    if let Some(program) = RuntimePrograms::coredns() {
        names_with(&program);
    }
}

#[test]
fn a_pod_with_the_address_of_one_before_it_loses_no_first_packet() {
    if !need_root() {
        return;
    }
    let named = NamedShop::open("names-reused", &dnsmasq());
    let agent = &named.shop.agent;
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {app: web}}\nspec: {nodeName: here}\n";
    for (round, family) in [0, 1, 0, 1].into_iter().enumerate() {
        agent.apply("pod.yaml", pod);
        let answer = named.lookup("n7.example.com", servers()[family], KINDS[family]);
        let expected = addresses_of(7)[family];
        assert_eq!(answer, Some((ResponseCode::NoError, vec![expected])));
        assert!(named.connects(expected), "round {round}");
        // What it learnt goes with it. The next one has the address that the proxy knows, and asks for the same.
        agent.delete("pod.yaml");
        assert!(named.held("n7.example.com").is_empty());
        assert!(named.is_denied(expected), "round {round}");
    }
}

#[test]
fn cleanup_removes_what_names_need() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-clean", &dnsmasq());
    let lab = &named.shop.lab;
    let rules = |lab: &Lab| ip(lab, lab.host(), &["rule"]) + &ip(lab, lab.host(), &["-6", "rule"]);
    assert_eq!(rules(lab).matches("20053").count(), 4, "{}", rules(lab));
    // Another program removes a part of it.
    let [v4, _] = servers();
    for args in [
        &["rule", "del", "pref", "91"][..],
        &[
            "route", "del", "local", "default", "dev", "lo", "table", "20053",
        ],
    ] {
        let before = named.shop.agent.status()["dataplane"]["repairs"].clone();
        ip(lab, lab.host(), args);
        named.shop.agent.wait("the repair", |status| {
            status["dataplane"]["repairs"] != before
        });
        let answer = named.lookup("n0.example.com", v4, RecordType::A);
        assert_eq!(
            answer.map(|(code, _)| code),
            Some(ResponseCode::NoError),
            "{args:?}"
        );
    }
    named.shop.agent.terminate();
    named.proxy = None;
    let output = named.shop.agent.beside(lab, "cleanup", &["--yes"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(rules(lab).matches("20053").count(), 0, "{}", rules(lab));
    let routes = ip(lab, lab.host(), &["route", "show", "table", "all"]);
    assert!(!routes.contains("20053"), "{routes}");
}
