//! Every field of a rule, and what each of them means together with the others.

use super::*;

/// A rule that allows what these fields say.
fn allowing(fields: Value) -> Value {
    with(fields, json!({ "action": "Allow" }))
}

/// Egress policies of the pod's namespace and of the cluster with one rule.
fn sends(rule: Value) -> [Value; 2] {
    let spec = json!({ "egress": [allowing(rule)] });
    [local("p", spec.clone()), global("p", spec)]
}

/// Which of the addresses the pod may send to, by a policy of its namespace and by one of the cluster.
fn reached(destination: Value, to: &[&'static str]) -> [Vec<&'static str>; 2] {
    sends(json!({ "destination": destination })).map(|policy| {
        let all = to.iter().copied();
        all.filter(|to| may_send(std::slice::from_ref(&policy), to))
            .collect()
    })
}

/// Every kind of peer: of the namespace, of another, sets, a host, and what nobody knows.
const ALL: [&str; 6] = [DB, GUEST, FAR, "192.0.2.20", "192.0.2.9", NOWHERE];
const NEAR: &str = "192.0.2.20";
const HOST: &str = "192.0.2.9";

#[test]
fn a_selector_selects_known_peers_and_at_home_those_of_the_namespace() {
    let none: Vec<&str> = Vec::new();
    let rows = [
        ("all()", vec![DB, NEAR], vec![DB, GUEST, FAR, NEAR, HOST]),
        ("app == 'db'", vec![DB], vec![DB]),
        ("app == 'guest'", none.clone(), vec![GUEST]),
        ("set == 'far'", none.clone(), vec![FAR, NEAR, HOST]),
        ("set == 'near'", vec![NEAR], vec![NEAR]),
        ("role == 'host'", none.clone(), vec![HOST]),
        ("!has(app)", vec![NEAR], vec![FAR, NEAR, HOST]),
        ("app != 'db'", vec![NEAR], vec![GUEST, FAR, NEAR, HOST]),
        ("global()", none.clone(), none),
    ];
    for (selector, local, global) in rows {
        let found = reached(json!({ "selector": selector }), &ALL);
        assert_eq!(found, [local, global], "{selector}");
    }
}

#[test]
fn of_several_holders_one_must_match_whole() {
    // 192.0.2.20 is in the set of the namespace and in that of the cluster; the host is in the latter too.
    let found = reached(
        json!({ "selector": "set == 'far' && role == 'host'" }),
        &ALL,
    );
    assert_eq!(found, [vec![], Vec::<&str>::new()]);
    let found = reached(
        json!({ "namespaceSelector": "global()", "selector": "set == 'near'" }),
        &ALL,
    );
    assert_eq!(found, [vec![], Vec::<&str>::new()]);
}

#[test]
fn not_selector_matches_outsiders_but_at_home_only_those_of_the_namespace() {
    let found = reached(json!({ "notSelector": "app == 'db'" }), &ALL);
    assert_eq!(found, [vec![NEAR], vec![GUEST, FAR, NEAR, HOST, NOWHERE]]);
    let found = reached(json!({ "notSelector": "set == 'far'" }), &ALL);
    assert_eq!(
        found,
        [vec![DB], vec![DB, GUEST, NOWHERE]],
        "of all holders"
    );
    let both = json!({ "selector": "has(app)", "notSelector": "app == 'guest'" });
    assert_eq!(reached(both, &ALL), [vec![DB], vec![DB]]);
}

#[test]
fn a_namespace_selector_selects_what_is_in_namespaces() {
    let rows = [
        ("all()", vec![DB, GUEST, NEAR]),
        ("global()", vec![FAR, NEAR, HOST]),
        ("team == 'a'", vec![DB, NEAR]),
        ("projectcalico.org/name == 'other'", vec![GUEST]),
        ("kubernetes.io/metadata.name == 'other'", vec![GUEST]),
        ("!has(team)", vec![GUEST, FAR, NEAR, HOST]),
        ("team != 'a'", vec![GUEST, FAR, NEAR, HOST]),
    ];
    for (selector, wanted) in rows {
        let found = reached(json!({ "namespaceSelector": selector }), &ALL);
        assert_eq!(found, [wanted.clone(), wanted], "{selector}");
    }
    let both = json!({ "namespaceSelector": "all()", "selector": "app == 'guest'" });
    assert_eq!(reached(both, &ALL), [vec![GUEST], vec![GUEST]]);
    let not = json!({ "namespaceSelector": "all()", "notSelector": "app == 'guest'" });
    assert_eq!(reached(not, &ALL), [vec![DB, NEAR], vec![DB, NEAR]]);
}

#[test]
fn service_accounts_select_by_name_and_label() {
    let rows = [
        (json!({ "names": ["robot"] }), vec![DB], vec![DB]),
        (json!({ "names": ["default"] }), vec![], vec![GUEST]),
        (
            json!({ "names": ["default", "robot"] }),
            vec![DB],
            vec![DB, GUEST],
        ),
        (json!({ "selector": "level == 'high'" }), vec![DB], vec![DB]),
        (
            json!({ "selector": "projectcalico.org/name == 'robot'" }),
            vec![DB],
            vec![DB],
        ),
        (
            json!({ "names": ["default"], "selector": "level == 'high'" }),
            vec![],
            vec![],
        ),
        (
            json!({ "selector": "!has(level)" }),
            vec![NEAR],
            vec![GUEST, FAR, NEAR, HOST],
        ),
    ];
    for (accounts, local, global) in rows {
        let found = reached(json!({ "serviceAccounts": accounts }), &ALL);
        assert_eq!(found, [local, global], "{accounts}");
    }
}

#[test]
fn subjects_are_selected_by_label_namespace_and_account() {
    let denies = |more: Value| {
        let spec = with(egress(&["Deny"]), more);
        let by = |policy: Value| !may_send(&[policy], NOWHERE);
        (by(local("p", spec.clone())), by(global("p", spec)))
    };
    assert_eq!(denies(json!({})), (true, true));
    assert_eq!(denies(json!({ "selector": "app == 'web'" })), (true, true));
    assert_eq!(denies(json!({ "selector": "app == 'db'" })), (false, false));
    assert_eq!(
        denies(json!({ "serviceAccountSelector": "has(level)" })),
        (false, false)
    );
    assert_eq!(
        denies(json!({ "serviceAccountSelector": "projectcalico.org/name == 'default'" })),
        (true, true)
    );
    assert!(denies(json!({ "namespaceSelector": "team == 'a'" })).1);
    assert!(!denies(json!({ "namespaceSelector": "team == 'b'" })).1);
    assert!(denies(json!({ "selector": "projectcalico.org/namespace == 'shop'" })).1);
    let elsewhere = calico("NetworkPolicy", Some("other"), "p", egress(&["Deny"]));
    assert!(may_send(&[elsewhere], NOWHERE));
}

#[test]
fn nets_and_not_nets() {
    let rows = [
        (json!({ "nets": ["10.0.0.0/30"] }), vec![DB, GUEST]),
        (
            json!({ "nets": ["10.0.0.2/32", "192.0.2.0/24"] }),
            vec![DB, FAR, NEAR, HOST],
        ),
        (
            json!({ "notNets": ["10.0.0.0/8"] }),
            vec![FAR, NEAR, HOST, NOWHERE],
        ),
        (
            json!({ "nets": ["192.0.2.0/24"], "notNets": ["192.0.2.0/28"] }),
            vec![NEAR],
        ),
        (json!({ "nets": ["fd00::/16"] }), vec![]),
        (json!({ "notNets": ["fd00::/16"] }), vec![]),
        (
            json!({ "notNets": ["::/0", "10.0.0.2/32"] }),
            vec![GUEST, FAR, NEAR, HOST, NOWHERE],
        ),
        (json!({ "notNets": ["0.0.0.0/0"] }), vec![]),
        (
            json!({ "selector": "all()", "nets": ["10.0.0.0/8"] }),
            vec![DB],
        ),
    ];
    for (entity, wanted) in rows {
        let [local, _] = reached(entity.clone(), &ALL);
        assert_eq!(local, wanted, "{entity}");
    }
}

#[test]
fn nets_of_one_family_leave_the_other_out() {
    let v6 = |destination: Value| {
        let policies = [local(
            "p",
            json!({ "egress": [allowing(json!({ "destination": destination }))] }),
        )];
        verdicts(&cluster(&policies), &flow("fd00::1", "fd00::2", 6, 80)).0
    };
    assert!(v6(json!({ "nets": ["10.0.0.0/8", "fd00::/64"] })));
    assert!(!v6(json!({ "nets": ["10.0.0.0/8"] })));
    assert!(!v6(json!({ "notNets": ["10.0.0.0/8"] })));
    assert!(v6(json!({ "notNets": ["10.0.0.0/8", "fd01::/64"] })));
    assert!(!v6(json!({ "notNets": ["10.0.0.0/8", "::/0"] })));
}

/// Whether one rule of egress matches a flow of the pod.
fn matches(rule: Value, flow: &NaiveFlow) -> bool {
    let [policy, _] = sends(rule);
    verdicts(&cluster(&[policy]), flow).0
}

#[test]
fn ports_are_numbers_ranges_and_names() {
    let to = |port: u16, protocol: u8| flow(WEB, DB, protocol, port);
    let rule = |protocol: &str, ports: Value| json!({ "protocol": protocol, "destination": { "ports": ports } });
    assert!(matches(rule("TCP", json!([80])), &to(80, 6)));
    assert!(!matches(rule("TCP", json!([80])), &to(80, 17)));
    assert!(!matches(rule("TCP", json!([81, "90:92"])), &to(93, 6)));
    assert!(matches(rule("TCP", json!([81, "90:92"])), &to(92, 6)));
    assert!(matches(rule("TCP", json!(["web"])), &to(80, 6)));
    assert!(!matches(rule("TCP", json!(["web"])), &to(81, 6)));
    assert!(matches(rule("udp", json!(["web"])), &to(81, 17)));
    assert!(!matches(rule("TCP", json!(["gone"])), &to(80, 6)));
    assert!(matches(rule("TCP", json!(["gone", 80])), &to(80, 6)));
    assert!(matches(
        json!({ "protocol": 132, "destination": { "ports": [5] } }),
        &to(5, 132)
    ));
}

#[test]
fn ports_that_are_left_out() {
    let rule = |not: Value| json!({ "protocol": "TCP", "destination": { "notPorts": not } });
    let to = |port: u16| flow(WEB, DB, 6, port);
    assert!(matches(rule(json!([80])), &to(81)));
    assert!(!matches(rule(json!([80])), &to(80)));
    assert!(!matches(rule(json!(["web"])), &to(80)));
    assert!(
        matches(rule(json!(["gone"])), &to(80)),
        "no such name: nothing is left out"
    );
    let both =
        json!({ "protocol": "TCP", "destination": { "ports": ["1:100"], "notPorts": [80] } });
    assert!(matches(both.clone(), &to(79)) && !matches(both, &to(80)));
}

#[test]
fn ports_of_the_source_are_those_that_are_sent_from() {
    let rule = |ports: Value| json!({ "protocol": "TCP", "source": { "ports": ports } });
    assert!(matches(rule(json!([4000])), &flow(WEB, DB, 6, 80)));
    assert!(!matches(rule(json!([80])), &flow(WEB, DB, 6, 80)));
    let mut from_web = flow(WEB, DB, 6, 9);
    from_web.ports = Some((80, 9));
    assert!(
        matches(rule(json!(["web"])), &from_web),
        "the name at the sender"
    );
    let not = json!({ "protocol": "TCP", "source": { "notPorts": [4000] } });
    assert!(!matches(not, &flow(WEB, DB, 6, 80)));
}

#[test]
fn both_ends_are_asked_in_both_directions() {
    let own = |selector: &str| json!({ "source": { "selector": selector } });
    assert!(matches(own("app == 'web'"), &flow(WEB, DB, 6, 80)));
    assert!(!matches(own("app == 'db'"), &flow(WEB, DB, 6, 80)));
    let ingress = |rule: Value| may_have(&[local("p", json!({ "ingress": [allowing(rule)] }))], DB);
    assert!(ingress(
        json!({ "destination": { "nets": ["10.0.0.1/32"] } })
    ));
    assert!(!ingress(
        json!({ "destination": { "nets": ["10.0.0.2/32"] } })
    ));
    assert!(ingress(
        json!({ "source": { "selector": "app == 'db'" }, "destination": { "selector": "app == 'web'" } })
    ));
    assert!(!ingress(
        json!({ "source": { "selector": "app == 'web'" } })
    ));
}

#[test]
fn services_are_addresses_and_ports_of_what_is_behind_them() {
    let to = |fields: Value| json!({ "destination": { "services": fields } });
    let s = json!({ "name": "s" });
    assert!(
        matches(to(s.clone()), &flow(WEB, DB, 6, 80)),
        "whether ready or not"
    );
    assert!(matches(to(s.clone()), &flow(WEB, "203.0.113.1", 17, 53)));
    assert!(!matches(to(s.clone()), &flow(WEB, DB, 6, 81)));
    assert!(!matches(to(s.clone()), &flow(WEB, DB, 17, 80)));
    assert!(!matches(to(s.clone()), &flow(WEB, GUEST, 6, 80)));
    assert!(!matches(
        to(json!({ "name": "s", "namespace": "other" })),
        &flow(WEB, DB, 6, 80)
    ));
    assert!(!matches(to(json!({ "name": "t" })), &flow(WEB, DB, 6, 80)));
    let global = global(
        "p",
        json!({ "egress": [allowing(to(json!({ "name": "s", "namespace": "shop" })))] }),
    );
    assert!(may_send(&[global], DB));
    let from = json!({ "ingress": [allowing(json!({ "source": { "services": s } }))] });
    let policies = cluster(&[local("p", from)]);
    assert!(
        verdicts(&policies, &flow(DB, WEB, 6, 9)).1,
        "any port of the sender"
    );
    assert!(verdicts(&policies, &flow(DB, WEB, 1, 0)).1);
    assert!(!verdicts(&policies, &flow(GUEST, WEB, 6, 80)).1);
}

#[test]
fn protocols_and_what_is_not_one() {
    let is = |field: &str, value: Value, protocol: u8| {
        matches(json!({ field: value }), &flow(WEB, DB, protocol, 80))
    };
    assert!(is("protocol", json!("tcp"), 6) && is("protocol", json!("Tcp"), 6));
    assert!(is("protocol", json!(50), 50) && !is("protocol", json!(50), 51));
    assert!(is("protocol", json!("UDPLite"), 136));
    assert!(is("protocol", json!("ICMP"), 1) && !is("protocol", json!("ICMPv6"), 1));
    assert!(is("notProtocol", json!("TCP"), 17) && !is("notProtocol", json!("TCP"), 6));
}

#[test]
fn messages_by_type_and_code() {
    let message = |kind: u8, code: u8| NaiveFlow {
        icmp: Some((kind, code)),
        ..flow(WEB, DB, 1, 0)
    };
    let rule = |field: &str, of: Value| json!({ "protocol": "ICMP", field: of });
    assert!(matches(rule("icmp", json!({ "type": 3 })), &message(3, 4)));
    assert!(!matches(
        rule("icmp", json!({ "type": 3, "code": 0 })),
        &message(3, 4)
    ));
    assert!(!matches(rule("icmp", json!({ "type": 8 })), &message(3, 4)));
    assert!(!matches(
        rule("notICMP", json!({ "type": 3 })),
        &message(3, 4)
    ));
    assert!(matches(
        rule("notICMP", json!({ "type": 3, "code": 0 })),
        &message(3, 4)
    ));
    assert!(!matches(
        rule("notICMP", json!({ "type": 3 })),
        &flow(WEB, DB, 6, 80)
    ));
}

#[test]
fn the_family_of_a_rule() {
    let v6 = flow("fd00::1", "fd00::2", 6, 80);
    assert!(matches(json!({ "ipVersion": 6 }), &v6) && !matches(json!({ "ipVersion": 4 }), &v6));
    assert!(matches(json!({ "ipVersion": 4 }), &flow(WEB, DB, 6, 80)));
}

#[test]
fn rules_about_the_content_of_http_match_nothing() {
    let rule = allowing(json!({ "protocol": "TCP", "http": { "methods": ["GET"] } }));
    assert!(!may_have(&[local("p", json!({ "ingress": [rule] }))], DB));
}
