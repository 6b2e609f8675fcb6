//! Connections to the addresses of names, known or not.

use crate::build::*;
use crate::connections::shown;
use palisade_analysis::{ConnectionFilter, connections, diff, grouped_connections};
use palisade_api::{ExplainQuery, VerdictWord};
use palisade_model::Action::{Allow, Deny};
use palisade_model::*;
use palisade_oracle::OracleOptions;

fn named(pattern: &str) -> Peer {
    let key = LabelKey::reserved(reserved::DOMAIN);
    let pattern = DomainPattern::glob(pattern).unwrap();
    Peer::from_selector(match pattern.only_name() {
        Some(name) => Selector::equals(key, Str::from(name)),
        None => Selector::Domain(key, pattern),
    })
}

/// Allows TCP to a port of the addresses of a name.
fn to_name(pattern: &str, port: u16) -> Rule {
    Rule {
        peers: vec![named(pattern)],
        ..on(Allow, tcp(port))
    }
}

/// Pods `a`, whose egress these rules are, and `b`, which sends nothing.
fn world(rules: Vec<Rule>, known: &[(&str, &[&str])]) -> State {
    let mut objects = vec![
        Object::Endpoint(pod("n/a", "10.0.0.1", "app=a")),
        Object::Endpoint(pod("n/b", "10.0.0.2", "app=b")),
        Object::Policy(egress(policy("n/p", "app=a", rules))),
        Object::Policy(egress(policy("n/closed", "app=b", vec![]))),
        // Nothing comes from the outside.
        Object::Policy(policy("n/in", "", vec![])),
    ];
    for (name, nets) in known {
        let name: DomainName = name.parse().unwrap();
        objects.push(Object::NetworkSet(NetworkSet {
            id: name.network_set_id(),
            kind: NetworkSetKind::DomainName,
            labels: Labels::default(),
            nets: nets.iter().map(|net| net.parse().unwrap()).collect(),
        }));
    }
    state(objects)
}

fn grouped(state: &State) -> Vec<String> {
    let rows = grouped_connections(state, &ConnectionFilter::default()).unwrap();
    rows.iter().map(shown).collect()
}

fn pairs(state: &State) -> Vec<String> {
    connections(state).iter().map(shown).collect()
}

#[test]
fn a_name_without_addresses_is_an_end() {
    let state = world(
        vec![
            to_name("api.example.com", 443),
            to_name("*.example.org", 80),
        ],
        &[],
    );
    let rows = [
        "n/a (Pod) > addresses of *.example.org: TCP 80",
        "n/a (Pod) > addresses of api.example.com: TCP 443",
    ];
    assert_eq!(pairs(&state), rows);
    assert_eq!(grouped(&state), rows);
}

#[test]
fn names_of_one_treatment_are_one_end_and_a_pattern_stands_for_its_names() {
    let rules = |ports: [u16; 3]| {
        let patterns = ["api.example.com", "*.example.com", "b.example.org"];
        let rules = patterns.iter().zip(ports);
        rules
            .map(|(pattern, port)| to_name(pattern, port))
            .collect()
    };
    let alike = world(rules([443; 3]), &[]);
    let row = "n/a (Pod) > addresses of *.example.com, b.example.org: TCP 443";
    assert_eq!(grouped(&alike), [row]);
    let different = world(rules([80, 443, 443]), &[]);
    let rows = [
        "n/a (Pod) > addresses of *.example.com, b.example.org: TCP 443",
        "n/a (Pod) > addresses of api.example.com: TCP 80,443",
    ];
    assert_eq!(grouped(&different), rows);
}

#[test]
fn known_addresses_are_counted_and_listed() {
    let known: [(&str, &[&str]); 2] = [
        ("api.example.com", &["192.0.2.7/32", "2001:db8::7/128"]),
        ("other.example.net", &["192.0.2.9/32"]),
    ];
    let state = world(vec![to_name("*.example.com", 443)], &known);
    let rows = [
        "n/a (Pod) > outside 192.0.2.7/32: TCP 443",
        "n/a (Pod) > addresses of *.example.com (2 known): TCP 443",
    ];
    assert_eq!(pairs(&state), rows);
}

#[test]
fn a_name_is_listed_only_where_more_is_allowed_to_it_than_to_any_address() {
    let everywhere = on(Allow, tcp(443));
    let state = world(
        vec![everywhere.clone(), to_name("api.example.com", 443)],
        &[],
    );
    assert!(grouped(&state).iter().all(|row| !row.contains("example")));
    // The addresses that stand for names are in no row of the outside.
    let state = world(vec![everywhere, to_name("api.example.com", 80)], &[]);
    let rows = grouped(&state);
    assert!(
        rows.contains(&"n/a (Pod) > outside 0.0.0.0/0: TCP 443".to_owned()),
        "{rows:?}"
    );
    assert!(
        rows.contains(&"n/a (Pod) > addresses of api.example.com: TCP 80,443".to_owned()),
        "{rows:?}"
    );
    // A network that is closed does not close the name in general.
    let closed = Rule {
        peers: vec![Peer::net(net("192.0.2.0/24"), vec![])],
        ..rule(Deny)
    };
    let state = world(vec![closed, to_name("api.example.com", 80)], &[]);
    assert_eq!(
        grouped(&state),
        ["n/a (Pod) > addresses of api.example.com: TCP 80"]
    );
}

#[test]
fn a_name_of_one_family_says_so() {
    let closed = Rule {
        peers: vec![Peer::net(net("::/0"), vec![])],
        ..rule(Deny)
    };
    let mut state = world(vec![closed, to_name("api.example.com", 80)], &[]);
    let a = state.endpoints.values_mut().next().unwrap();
    a.addresses.push("fd00::1".parse().unwrap());
    let row = "n/a (Pod) > addresses of api.example.com IPv4: TCP 80";
    assert_eq!(grouped(&state), [row]);
    assert_eq!(pairs(&state), [row]);
}

#[test]
fn a_change_of_a_name_is_a_difference() {
    let old = world(vec![to_name("api.example.com", 443)], &[]);
    let new = world(
        vec![
            to_name("api.example.net", 443),
            to_name("api.example.com", 80),
        ],
        &[],
    );
    let found = diff(&old, &new);
    let shown = |rows: &[palisade_analysis::Connection]| -> Vec<String> {
        rows.iter().map(shown).collect()
    };
    assert_eq!(
        (shown(&found.opened), shown(&found.closed)),
        (
            vec![
                "n/a (Pod) > addresses of api.example.com: TCP 80".to_owned(),
                "n/a (Pod) > addresses of api.example.net: TCP 443".to_owned(),
            ],
            vec!["n/a (Pod) > addresses of api.example.com: TCP 443".to_owned()],
        )
    );
    assert!(diff(&old, &old).is_empty());
}

#[test]
fn a_name_is_a_destination_to_explain() {
    let known: [(&str, &[&str]); 1] = [("b.example.com", &["192.0.2.7/32", "192.0.2.8/32"])];
    let state = world(vec![to_name("*.example.com", 443)], &known);
    let ask = |to: &str, port: &str| {
        let query = ExplainQuery {
            from: "n/a".to_owned(),
            to: to.to_owned(),
            port: Some(port.to_owned()),
            ..ExplainQuery::default()
        };
        let options = OracleOptions::default();
        palisade_analysis::explain(&state, &query, &options, &FailsafePorts::NONE)
    };
    for (to, port, verdict, note) in [
        (
            "name:B.example.com.",
            "443",
            VerdictWord::Allow,
            "b.example.com: 2 known addresses",
        ),
        ("name:b.example.com", "80", VerdictWord::Deny, "2 known"),
        (
            "name:a.example.com",
            "443",
            VerdictWord::Allow,
            "no address of a.example.com is known",
        ),
        (
            "name:a.example.net",
            "443",
            VerdictWord::Deny,
            "no address of a.example.net is known",
        ),
    ] {
        let explanation = ask(to, port).unwrap();
        assert_eq!(explanation.case.verdict, verdict, "{to} {port}");
        assert!(
            explanation.notes.iter().any(|text| text.contains(note)),
            "{to}: {explanation:?}"
        );
    }
    let error = ask("name:a..example", "443").unwrap_err().to_string();
    assert!(
        error.starts_with("\"a..example\" is no domain name: "),
        "{error}"
    );
    assert!(ask("name:", "443").is_err());
}
