//! Verdicts: tiers, policies, rules, profiles, and the endpoint whose policies apply.

use crate::build::*;
use Action::{Allow, Deny, Log, Pass};
use palisade_model::*;
use palisade_model::{EndpointKind, HostTrafficAction};
use palisade_oracle::{
    DecisionReason, DirectionJudgement, OracleOptions, PreparedState, judge, verdict,
};

const AB: &str = "10.0.0.1>10.0.0.2 TCP:80";

#[test]
fn without_policy_pods_may_do_everything_and_outsiders_are_not_judged() {
    says(
        &two(vec![]),
        &[
            (AB, "++"),
            ("192.0.2.1>10.0.0.2 47", "++"),
            ("192.0.2.1>192.0.2.2 TCP:80", "++"),
            ("n/a>n/b SCTP:1", "++"),
            ("n/gone>n/b SCTP:1", "++"),
        ],
    );
}

#[test]
fn a_flow_needs_both_ends() {
    let no_ingress = policy("n/b", "app=b", vec![]);
    let no_egress = egress(policy("n/a", "app=a", vec![]));
    says(
        &two(vec![no_ingress.clone()]),
        &[(AB, "+-"), ("10.0.0.2>10.0.0.1 TCP:80", "++")],
    );
    says(
        &two(vec![no_egress.clone()]),
        &[(AB, "-+"), ("10.0.0.2>10.0.0.1 TCP:80", "++")],
    );
    says(
        &two(vec![no_ingress, no_egress]),
        &[(AB, "--"), ("192.0.2.1>10.0.0.2 TCP:80", "+-")],
    );
}

/// The default of a tier applies only if one of its policies applies; else the tier has no effect.
#[test]
fn tiers() {
    let deny = || policy("n/deny", "", vec![rule(Deny)]);
    let allow = || policy("n/allow", "", vec![rule(Allow)]);
    let pass = || policy("n/pass", "", vec![rule(Pass), rule(Deny)]);
    let empty = || policy("n/empty", "", vec![]);
    let renamed = |name: &str, mut policy: Policy| {
        policy.id.object = id("NetworkPolicy", name);
        policy
    };
    let cases = [
        ("no match in default denies", vec![empty()], "+-"),
        ("unless no policy asks for it", vec![open(empty())], "++"),
        (
            "one that asks is enough",
            vec![open(empty()), empty()],
            "+-",
        ),
        (
            "kube-admin passes on",
            vec![in_tier("kube-admin", empty())],
            "++",
        ),
        (
            "kube-baseline passes on",
            vec![in_tier("kube-baseline", empty())],
            "++",
        ),
        (
            "admin before default",
            vec![in_tier("kube-admin", deny()), allow()],
            "+-",
        ),
        (
            "admin allow is final",
            vec![in_tier("kube-admin", allow()), deny()],
            "++",
        ),
        (
            "default before baseline",
            vec![in_tier("kube-baseline", deny()), allow()],
            "++",
        ),
        (
            "baseline after default",
            vec![in_tier("kube-baseline", deny()), open(empty())],
            "+-",
        ),
        (
            "default deny ends before baseline",
            vec![in_tier("kube-baseline", allow()), empty()],
            "+-",
        ),
        (
            "pass skips the rest of the tier",
            vec![in_tier("kube-admin", pass()), in_tier("kube-admin", deny())],
            "++",
        ),
        (
            "pass goes to the next tier",
            vec![in_tier("kube-admin", pass()), allow()],
            "++",
        ),
        ("pass of the last tier goes to profiles", vec![pass()], "++"),
        (
            "a missing tier applies, last, and denies",
            vec![in_tier("gone", empty()), open(empty())],
            "+-",
        ),
        (
            "an allow before a missing tier",
            vec![in_tier("gone", deny()), in_tier("kube-baseline", allow())],
            "++",
        ),
        (
            "missing tiers by name",
            vec![in_tier("zz", deny()), in_tier("aa", allow())],
            "++",
        ),
        (
            "other direction does not count",
            vec![egress(empty())],
            "-+",
        ),
        (
            "other subjects do not count",
            vec![policy("n/x", "app=x", vec![])],
            "++",
        ),
    ];
    for (what, policies, expected) in cases {
        println!("{what}");
        let numbered = policies.into_iter().enumerate();
        let numbered = numbered.map(|(i, policy)| renamed(&format!("n/{i}"), policy));
        says(&two(numbered.collect()), &[(AB, expected)]);
    }
}

#[test]
fn pass_skips_later_policies_of_its_tier_only() {
    let pass = in_tier("kube-admin", at(1.0, policy("n/1", "", vec![rule(Pass)])));
    let deny = in_tier("kube-admin", at(2.0, policy("n/2", "", vec![rule(Deny)])));
    says(&two(vec![pass, deny.clone()]), &[(AB, "++")]);
    let later = in_tier("kube-admin", at(3.0, policy("n/3", "", vec![rule(Pass)])));
    says(&two(vec![later, deny]), &[(AB, "+-")]);
}

#[test]
fn tiers_stand_by_order_then_name_and_objects_replace_built_in_ones() {
    let build = |tiers: Vec<Object>, policies: Vec<Policy>| {
        let mut state = two(policies);
        for tier in tiers {
            state.apply(Update::Upsert(tier));
        }
        state
    };
    let deny = |tier: &str| in_tier(tier, policy(&format!("n/{tier}"), "", vec![rule(Deny)]));
    let allow = |tier: &str| in_tier(tier, policy(&format!("n/{tier}"), "", vec![rule(Allow)]));
    let by_order = vec![
        tier("t1", Order::from_number(20.0), TierDefault::Deny),
        tier("t2", Order::from_number(10.0), TierDefault::Deny),
    ];
    says(
        &build(by_order, vec![deny("t1"), allow("t2")]),
        &[(AB, "++")],
    );
    let same = vec![
        tier("t1", Order::from_number(10.0), TierDefault::Deny),
        tier("t2", Order::from_number(10.0), TierDefault::Deny),
    ];
    says(&build(same, vec![deny("t1"), allow("t2")]), &[(AB, "+-")]);
    let last = vec![tier("aa", Order::Last, TierDefault::Deny)];
    says(
        &build(last, vec![deny("aa"), allow("kube-baseline")]),
        &[(AB, "++")],
    );
    let exists = vec![tier("zz", Order::Last, TierDefault::Deny)];
    says(&build(exists, vec![allow("zz"), deny("aa")]), &[(AB, "++")]);
    let replaced = vec![tier("default", Order::from_number(1.0), TierDefault::Pass)];
    let empty = policy("n/empty", "", vec![]);
    says(
        &build(replaced, vec![empty, deny("kube-baseline")]),
        &[(AB, "+-")],
    );
}

#[test]
fn policies_stand_by_order_rank_and_name() {
    let allow = |name: &str| policy(name, "", vec![rule(Allow)]);
    let deny = |name: &str| policy(name, "", vec![rule(Deny)]);
    let ranked = |rank: u8, mut policy: Policy| {
        policy.precedence.rank = rank;
        policy
    };
    let unordered = |mut policy: Policy| {
        policy.precedence.order = Order::Last;
        policy
    };
    let cases = [
        (vec![at(1.0, allow("n/z")), at(2.0, deny("n/a"))], "++"),
        (vec![at(-1.0, deny("n/z")), at(0.0, allow("n/a"))], "+-"),
        (vec![ranked(0, deny("n/z")), allow("n/a")], "+-"),
        (vec![allow("n/a"), deny("n/z")], "++"),
        (vec![allow("n/z"), deny("n/a")], "+-"),
        (vec![unordered(deny("n/a")), allow("n/z")], "++"),
        (vec![allow("m/z"), deny("n/a")], "+-"),
        (vec![allow("m/a"), deny("n/a")], "++"),
    ];
    for (policies, expected) in cases {
        says(&two(policies), &[(AB, expected)]);
    }
}

#[test]
fn the_first_matching_rule_decides_and_log_goes_on() {
    let cases = [
        (vec![rule(Allow), rule(Deny)], "++"),
        (vec![rule(Deny), rule(Allow)], "+-"),
        (vec![rule(Log), rule(Allow)], "++"),
        (vec![rule(Log)], "+-"),
        (vec![on(Deny, tcp(81)), rule(Allow)], "++"),
        (vec![on(Allow, tcp(80)), rule(Deny)], "++"),
    ];
    for (rules, expected) in cases {
        says(&two(vec![policy("n/p", "app=b", rules)]), &[(AB, expected)]);
    }
}

#[test]
fn profiles() {
    let profile = |name: &str, ingress: Vec<Rule>| {
        Object::Profile(Profile {
            name: name.into(),
            ingress,
            egress: vec![rule(Allow)],
            labels_to_apply: Default::default(),
        })
    };
    let state = |profiles: &[&str]| {
        let mut b = pod("n/b", "10.0.0.2", "");
        b.profiles = profiles.iter().map(|name| (*name).into()).collect();
        state(vec![
            Object::Endpoint(b),
            profile("allow", vec![rule(Allow)]),
            profile("deny", vec![rule(Deny)]),
            profile("pass", vec![rule(Pass), rule(Allow)]),
            profile("log", vec![rule(Log)]),
            profile("empty", vec![]),
            // The built-in profile cannot be replaced.
            profile(Profile::ALLOW_ALL, vec![rule(Deny)]),
        ])
    };
    let cases: &[(&[&str], &str)] = &[
        (&[], "+-"),
        (&["allow"], "++"),
        (&["deny", "allow"], "+-"),
        (&["pass", "allow"], "+-"),
        (&["log"], "+-"),
        (&["log", "allow"], "++"),
        (&["empty", "allow"], "++"),
        (&["empty"], "+-"),
        (&["gone", "allow"], "+-"),
        (&["allow", "gone"], "++"),
        (&["empty", "gone", "allow"], "+-"),
        (&[Profile::ALLOW_ALL], "++"),
        (&["empty", Profile::ALLOW_ALL], "++"),
    ];
    for (profiles, expected) in cases {
        println!("{profiles:?}");
        says(&state(profiles), &[("192.0.2.1>10.0.0.2 TCP:80", expected)]);
    }
    says(&state(&["deny"]), &[("10.0.0.2>192.0.2.1 TCP:80", "++")]);
}

#[test]
fn the_hosts_own_packets_reach_its_endpoints() {
    let mut state = two(vec![
        policy("n/p", "", vec![]),
        egress(policy("n/e", "", vec![])),
    ]);
    if let Some(b) = state.endpoints.get_mut(&id("Pod", "n/b")) {
        b.interface = Some("pal1".into());
    }
    let mut question = ask("192.0.2.9>10.0.0.2 TCP:80");
    let judged = OracleOptions {
        host_to_endpoint: HostTrafficAction::Policy,
        ..OracleOptions::default()
    };
    assert_eq!(
        verdict(&state, &question, &OracleOptions::default()),
        (true, false)
    );
    question.origin = FlowOrigin::HostStack;
    assert_eq!(
        verdict(&state, &question, &OracleOptions::default()),
        (true, true)
    );
    assert_eq!(verdict(&state, &question, &judged), (true, false));
    let mut elsewhere = ask("192.0.2.9>10.0.0.1 TCP:80");
    elsewhere.origin = FlowOrigin::HostStack;
    assert_eq!(
        verdict(&state, &elsewhere, &OracleOptions::default()),
        (true, false)
    );
    let mut sent = ask("10.0.0.2>192.0.2.9 TCP:80");
    sent.origin = FlowOrigin::HostStack;
    assert_eq!(
        verdict(&state, &sent, &OracleOptions::default()),
        (false, true)
    );
}

#[test]
fn a_tunnel_of_an_endpoint_is_denied_although_rules_allow_it() {
    let nothing_said = two(vec![]);
    for (what, expected) in [
        ("UDP:4789", "-+"),
        ("UDP:8472", "-+"),
        ("UDP:6081", "-+"),
        ("4", "-+"),
        ("41", "-+"),
        ("47", "-+"),
        ("UDP:4790", "++"),
        ("UDP:53<4789", "++"),
        ("TCP:4789", "++"),
        ("SCTP:4789", "++"),
        ("50", "++"),
    ] {
        let between = format!("10.0.0.1>10.0.0.2 {what}");
        says(&nothing_said, &[(&between, expected)]);
        // An end that is not an endpoint may send anything.
        says(
            &nothing_said,
            &[(&format!("192.0.2.1>10.0.0.2 {what}"), "++")],
        );
        // Hairpin traffic is allowed: no other endpoint decapsulates it.
        says(
            &nothing_said,
            &[(&format!("10.0.0.1>10.0.0.1 {what}"), "++")],
        );
    }
    let vxlan_only = OracleOptions {
        allowed_encapsulation: [Encapsulation::Vxlan].into_iter().collect(),
        ..OracleOptions::default()
    };
    let asked = |what: &str| ask(&format!("10.0.0.1>10.0.0.2 {what}"));
    for (what, allowed) in [("UDP:4789", true), ("UDP:8472", true), ("UDP:6081", false)] {
        assert_eq!(verdict(&nothing_said, &asked(what), &vxlan_only).0, allowed);
    }
    // Where rules deny, the reason is the rule, not the encapsulation.
    let isolated = two(vec![egress(policy("n/e", "app=a", vec![]))]);
    for (state, decided_by_rules) in [(&nothing_said, false), (&isolated, true)] {
        let answer = judge(state, &asked("47"), &OracleOptions::default());
        let by = DecisionReason::Encapsulated {
            encapsulation: Encapsulation::Gre,
        };
        assert_eq!(answer.egress.decided_by != by, decided_by_rules);
    }
}

#[test]
fn a_pod_is_not_cut_off_from_itself() {
    let p = policy(
        "n/p",
        "app=b",
        vec![from(Allow, Peer::from_selector(sel("app=a")))],
    );
    let state = two(vec![p]);
    let asked = "10.0.0.2>10.0.0.2 TCP:80";
    says(&state, &[(asked, "++")]);
    let like_any = OracleOptions {
        hairpin: HairpinAction::Policy,
        ..OracleOptions::default()
    };
    assert_eq!(verdict(&state, &ask(asked), &like_any), (true, false));
    let mut host = ask(asked);
    host.origin = FlowOrigin::HostStack;
    let judged = OracleOptions {
        host_to_endpoint: HostTrafficAction::Policy,
        ..OracleOptions::default()
    };
    assert_eq!(verdict(&state, &host, &judged), (true, false));
}

/// Local first, then the newest, then the greatest id; never templates or endpoints without the address.
#[test]
fn of_several_claimants_one_holds_the_address() {
    let build = |change: &dyn Fn(&mut Endpoint, &mut Endpoint)| {
        let (mut x, mut y) = (
            pod("n/x", "10.0.0.9", "who=x"),
            pod("n/y", "10.0.0.9", "who=y"),
        );
        change(&mut x, &mut y);
        let refuse_x = policy(
            "n/p",
            "app=a",
            vec![from(Deny, Peer::from_selector(sel("who=x"))), rule(Allow)],
        );
        let mut state = two(vec![refuse_x]);
        state.apply(Update::Upsert(Object::Endpoint(x)));
        state.apply(Update::Upsert(Object::Endpoint(y)));
        state
    };
    let asked = "10.0.0.9>10.0.0.1 TCP:80";
    says(&build(&|_, _| {}), &[(asked, "++")]);
    says(&build(&|x, _| x.created = 1), &[(asked, "+-")]);
    says(
        &build(&|x, y| (x.created, y.created) = (1, 2)),
        &[(asked, "++")],
    );
    says(
        &build(&|x, y| (x.interface, y.created) = (Some("pal0".into()), 2)),
        &[(asked, "+-")],
    );
    let template = EndpointKind::Template {
        host_network: false,
    };
    says(&build(&|_, y| y.kind = template), &[(asked, "+-")]);
    says(&build(&|_, y| y.addresses.clear()), &[(asked, "+-")]);
}

#[test]
fn the_policies_that_select_an_endpoint_decide_alone() {
    let to_b = |name: &str, port| policy(name, "app=b", vec![on(Allow, tcp(port))]);
    let policies = vec![
        in_tier(
            "first",
            at(
                1.0,
                open(policy("n/pass", "app=b", vec![on(Pass, tcp(80))])),
            ),
        ),
        in_tier(
            "first",
            at(2.0, policy("n/deny", "app=a", vec![rule(Deny)])),
        ),
        in_tier(
            "other",
            at(1.0, policy("n/other", "app=a", vec![rule(Allow)])),
        ),
        to_b("n/b-80", 80),
        to_b("n/b-81", 81),
        egress(policy("n/out", "app=a", vec![on(Allow, tcp(80))])),
        policy("n/c", "app=c", vec![]),
    ];
    let mut state = two(policies);
    for (name, order) in [("first", 1.0), ("other", 2.0)] {
        let order = Order::from_number(order);
        state.apply(Update::Upsert(tier(name, order, TierDefault::Deny)));
    }
    let prepared = PreparedState::new(&state);
    let options = OracleOptions::default();
    let mut allowed = 0;
    for text in [
        AB,
        "10.0.0.1>10.0.0.2 TCP:81",
        "10.0.0.1>10.0.0.2 TCP:82",
        "10.0.0.2>10.0.0.1 TCP:80",
        "192.0.2.1>10.0.0.2 TCP:81",
        "fd00::1>fd00::2 UDP:80",
    ] {
        let question = ask(text);
        for (end, direction) in [
            (&question.source, Direction::Egress),
            (&question.destination, Direction::Ingress),
        ] {
            let Some(endpoint) = prepared.endpoint_at(end) else {
                continue;
            };
            let whole = prepared.judge_end(&question, direction, &options);
            let alone = prepared.of_endpoint(endpoint);
            let judged = alone.judge_end(&question, direction, &options);
            let outcome = |judged: &DirectionJudgement| (judged.verdict, judged.decided_by.clone());
            assert_eq!(outcome(&judged), outcome(&whole), "{text} {direction}");
            let allows = alone.allows(&question, direction, &options);
            assert_eq!(allows, whole.verdict.is_allow(), "{text} {direction}");
            allowed += usize::from(allows);
        }
    }
    assert!((3..9).contains(&allowed), "{allowed}");
}
