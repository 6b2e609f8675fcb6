//! Tests of the findings of `lint`: a small world as text, and every finding with its line.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the texts are literals of the tests"
)]

use crate::build::*;
use palisade_analysis::{LintLimit, UnnamedPorts, lint};
use palisade_generators::line;
use palisade_model::*;

/// A world, one object a line; the rules of a policy are indented below it.
///
/// `pod NAME ADDRESS… LABEL=VALUE…`, `ns NAME LABEL=VALUE,…`, `node NAME ADDRESS LABEL=VALUE,…`,
/// `policy NAME [SUBJECT] [@TIER] [#ORDER] [!] [?]`: with `!` it has no default deny, with `?` it observes DNS. A rule
/// begins with `>` if it is of egress, and `> nothing` is a list of egress without rules. Without a rule a policy is of
/// ingress. `ask NAME RULE` allows DNS queries for the name.
fn world(text: &str) -> State {
    let mut objects: Vec<Object> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let place = SourceLine::new("w", u32::try_from(at).unwrap());
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match word {
            "" => {}
            "pod" => objects.push(Object::Endpoint(line::endpoint(rest))),
            "ns" => {
                let (name, own) = rest.split_once(' ').unwrap_or((rest, ""));
                let mut namespace = Namespace::from_name(name.into());
                namespace.labels.extend(labels(own));
                objects.push(Object::Namespace(namespace));
            }
            "node" => {
                let words: Vec<&str> = rest.split(' ').collect();
                objects.push(Object::Node(Node {
                    name: words[0].into(),
                    labels: labels(words[2]),
                    addresses: vec![ip(words[1])],
                    internal_addresses: Vec::new(),
                    pod_networks: Vec::new(),
                    audit: false,
                }));
            }
            "policy" => objects.push(Object::Policy(parse_policy(rest, place))),
            _ => {
                let Some(Object::Policy(policy)) = objects.last_mut() else {
                    panic!("{line}: no policy before it")
                };
                add_rule(policy, line.trim(), place);
            }
        }
    }
    state(objects)
}

fn parse_policy(text: &str, place: SourceLine) -> Policy {
    let mut words = text.split(' ');
    let name = words.next().unwrap();
    let mut subject = String::new();
    let (mut tier, mut order) = (tier_name::DEFAULT, 1000.0);
    let (mut is_open, mut observes_dns) = (false, false);
    for word in words {
        match (&word[..1], &word[1..]) {
            ("@", rest) => tier = rest,
            ("#", rest) => order = rest.parse().unwrap(),
            ("!", _) => is_open = true,
            ("?", _) => observes_dns = true,
            _ => subject = word.to_owned(),
        }
    }
    let mut policy = at(order, in_tier(tier, policy(name, &subject, vec![])));
    if let Some(namespace) = policy.id.object.namespace.clone() {
        let key = LabelKey::reserved(reserved::NAMESPACE);
        policy.subject = Selector::and([Selector::equals(key, namespace), policy.subject]);
    }
    policy.line = Some(place);
    policy.observes_dns = observes_dns;
    if is_open { open(policy) } else { policy }
}

fn add_rule(policy: &mut Policy, text: &str, place: SourceLine) {
    let default_deny = policy
        .ingress
        .as_ref()
        .is_some_and(|list| list.default_deny)
        || policy.egress.as_ref().is_some_and(|list| list.default_deny);
    if text.starts_with('>')
        && policy
            .ingress
            .as_ref()
            .is_some_and(|list| list.rules.is_empty())
    {
        policy.egress = policy.ingress.take();
    }
    let (list, text) = match text.strip_prefix("> ") {
        Some(rest) => (&mut policy.egress, rest),
        None => (&mut policy.ingress, text),
    };
    let list = list.get_or_insert(DirectionRules {
        default_deny,
        rules: Vec::new(),
    });
    if text == "nothing" {
        return;
    }
    let (text, asked) = match text.strip_prefix("ask ").map(|rest| rest.split_once(' ')) {
        Some(Some((name, rest))) => (rest, Some(DomainPattern::glob(name).unwrap())),
        _ => (text, None),
    };
    let mut rule = line::rule(text);
    rule.dns_names = asked.map(|pattern| [pattern].into());
    rule.origin.index = u32::try_from(list.rules.len()).unwrap();
    rule.origin.line = Some(place);
    list.rules.push(rule);
}

/// The findings of a world, as `LINE CODE [DIRECTION RULE]: MESSAGE / SUGGESTION`, and what was not checked.
fn findings(text: &str, limit: LintLimit) -> Vec<String> {
    let state = world(text);
    let report = lint(&state, &UnnamedPorts::new(), limit);
    assert_eq!(report.policies, state.policies.len());
    let shown = report.findings.iter().map(|finding| {
        let rule = finding.direction.zip(finding.rule);
        let rule = rule.map_or(String::new(), |(d, n)| format!(" {d} {n}"));
        assert!(finding.related.len() <= 8);
        format!(
            "{} {}{rule}: {} / {}",
            finding.line.as_deref().unwrap_or("-"),
            finding.code,
            finding.message,
            finding.suggestion
        )
    });
    let unchecked = report
        .unchecked
        .iter()
        .map(|text| format!("unchecked: {text}"));
    shown.chain(unchecked).collect()
}

#[track_caller]
fn finds(text: &str, expected: &[&str]) {
    assert_eq!(findings(text, LintLimit::default()), expected, "{text}");
}

const PODS: &str = "
    ns shop team=sales
    ns other team=tools
    pod shop/web 10.0.0.1 app=web
    pod shop/db 10.0.0.2 app=db
    pod other/guest 10.1.0.1 app=guest";

fn finds_with_pods(text: &str, expected: &[&str]) {
    finds(&format!("{PODS}{text}"), expected);
}

#[test]
fn nothing_is_found_in_nothing() {
    finds("", &[]);
    finds("pod shop/web 10.0.0.1 app=web", &[]);
}

#[test]
fn subjects_that_select_nothing() {
    finds_with_pods(
        "
    policy shop/value app=wbe
    policy shop/key ap=web
    policy shop/far app=something-else
    policy shop/unlike zone=1
    policy elsewhere-at-all/x app=web
    policy shop/fine app=web
    ",
        &[
            "w:6 subject-selects-nothing: it selects nothing: no endpoint in namespace shop is labelled \
             app = \"wbe\" / did you mean app = \"web\"?",
            "w:7 subject-selects-nothing: it selects nothing: no endpoint in namespace shop is labelled \
             ap = \"web\" / did you mean app = \"web\"?",
            "w:8 subject-selects-nothing: it selects nothing: no endpoint in namespace shop is labelled \
             app = \"something-else\" / correct the selector, or remove the policy if what it selected is gone; \
             here there is app = \"db\" or \"web\"",
            "w:9 subject-selects-nothing: it selects nothing: no endpoint in namespace shop is labelled \
             zone = \"1\" / correct the selector, or remove the policy if what it selected is gone",
            "w:10 subject-selects-nothing: it selects nothing: no namespace is named \"elsewhere-at-all\" / correct the \
             selector, or remove the policy if what it selected is gone",
        ],
    );
}

#[test]
fn tiers_and_profiles_that_do_not_exist() {
    finds_with_pods(
        "
    policy shop/p @kube-admn app=web
      allow from app=db
    policy shop/q @far-from-all app=db
      allow from app=guest
    ",
        &[
            "w:6 tier-missing: its tier \"kube-admn\" does not exist, so it is evaluated after all tiers that do, and \
             what it selects and does not allow is denied there / did you mean \"kube-admin\"?",
            "w:8 tier-missing: its tier \"far-from-all\" does not exist, so it is evaluated after all tiers that do, \
             and what it selects and does not allow is denied there / create the tier, or correct the name",
        ],
    );
    // Also where there is no pod.
    finds(
        "\npolicy shop/p @gone app=web",
        &[
            "w:1 tier-missing: its tier \"gone\" does not exist, so it is evaluated after all tiers that do, and what \
             it selects and does not allow is denied there / create the tier, or correct the name",
            "unchecked: there is no pod or workload, so it is not known what policies select",
        ],
    );
    let mut state = world(PODS);
    for (endpoint, profile) in state.endpoints.values_mut().zip(["kns.shpo", "far", "far"]) {
        endpoint.profiles = vec![profile.into()];
    }
    let profile = Profile {
        name: "kns.shop".into(),
        labels_to_apply: Labels::default(),
        ingress: Vec::new(),
        egress: Vec::new(),
    };
    state.profiles.insert(profile.name.clone(), profile);
    let report = lint(&state, &UnnamedPorts::new(), LintLimit::default());
    let shown = report.findings.iter().map(|of| {
        let (code, object) = (of.code, of.policy.path_name());
        format!("{code} {object}: {} / {}", of.message, of.suggestion)
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "profile-missing pod/shop/db: its profile \"far\" does not exist, so what no policy decides is denied (also \
             at 1 other endpoint) / create the profile, or the namespace or service account of which it is made",
            "profile-missing pod/other/guest: its profile \"kns.shpo\" does not exist, so what no policy decides is \
             denied / did you mean \"kns.shop\"?",
        ]
    );
}

#[test]
fn namespaces_without_pods_and_tests_that_no_pod_meets_together() {
    finds(
        "
    ns shop
    ns empty
    pod shop/web 10.0.0.1 app=web tier=front
    pod shop/db 10.0.0.2 app=db tier=back
    policy empty/p app=web
    policy shop/q app=web
      allow from ns:kubernetes.io/metadata.name=empty
      allow from ns:team
      allow from is:kind=node
    policy shop/pß größe=groß
    ",
        &[
            "w:5 subject-selects-nothing: it selects nothing: there is no endpoint in namespace empty / correct the \
             selector, or remove the policy if what it selected is gone",
            "w:7 peer-selects-nothing ingress 0: its peer matches nothing: there is no endpoint, network set or \
             node in namespace empty / correct the selector, or remove the peer if what it matched is gone",
            "w:8 peer-selects-nothing ingress 1: its peer matches nothing: no namespace is labelled team / correct \
             the selector, or remove the peer if what it matched is gone",
            "w:9 peer-selects-nothing ingress 2: its peer matches nothing: there is no node / correct the selector, \
             or remove the peer if what it matched is gone",
            "w:10 subject-selects-nothing: it selects nothing: no endpoint in namespace shop is labelled \
             größe = \"groß\" / correct the selector, or remove the policy if what it selected is gone",
        ],
    );
    let mut together = world(&format!("{PODS}\n    policy shop/p app=web"));
    let both = Selector::and([sel("app=web"), sel("app=db")]);
    for policy in together.policies.values_mut() {
        policy.subject = both.clone();
    }
    let report = lint(&together, &UnnamedPorts::new(), LintLimit::default());
    assert_eq!(
        report.findings[0].message,
        "it selects nothing: no endpoint is labelled app = \"db\" and labelled app = \"web\""
    );
}

#[test]
fn peers_that_match_nothing() {
    finds_with_pods(
        "
    node n1 10.9.0.1 zone=a
    policy shop/p app=db
      allow from app=wbe app=web
      allow from ns:team=slaes
      allow from 198.51.100.0/24
      allow from zone=b
    ",
        &[
            "w:8 peer-selects-nothing ingress 0: peer 0 of the rule matches nothing: no endpoint, network set or \
             node is labelled app = \"wbe\" / did you mean app = \"web\"?",
            "w:9 peer-selects-nothing ingress 1: its peer matches nothing: no namespace is labelled \
             team = \"slaes\" / did you mean team = \"sales\"?",
            "w:11 peer-selects-nothing ingress 3: its peer matches nothing: no endpoint, network set or node is \
             labelled zone = \"b\" / correct the selector, or remove the peer if what it matched is gone; here there \
             is zone = \"a\"",
        ],
    );
}

#[test]
fn rules_that_no_flow_reaches() {
    // The second rule is decided by two earlier ones together, and by no earlier one alone.
    finds_with_pods(
        "
    policy shop/p @kube-admin #1 !
      deny on TCP/0-100
      allow on TCP/101-65535
      deny from app=web on TCP
      allow from app=web on TCP/80 UDP/80
    policy shop/q app=db
      allow from app=web on TCP/80
      allow from app=guest
    ",
        &[
            "w:9 rule-never-reached ingress 2: no flow reaches it: ingress rule 0 (w:7) and ingress rule 1 (w:8) \
             always decide first / remove it, or evaluate it before the rules that decide instead",
            "w:12 rule-never-reached ingress 0: no flow reaches it: ingress rule 0 of NetworkPolicy shop/p (w:7) \
             always decides first / remove it, or evaluate it before the rules that decide instead",
        ],
    );
}

/// A rule that decides DNS queries by name leaves other queries to later rules, but is never reached behind one that
/// decides all of them.
#[test]
fn a_rule_by_the_names_of_queries_decides_nothing_else() {
    finds_with_pods(
        "
    policy shop/p app=web
      > ask a.example allow on UDP/53
      > ask b.example allow on UDP/53
      > deny to app=db on UDP/53
      > allow on UDP/53
      > ask c.example allow on UDP/53
    policy shop/q app=web @kube-baseline
      > ask d.example allow on UDP/53
    ",
        &[
            "w:11 rule-never-reached egress 4: no flow reaches it: egress rule 2 (w:9) and egress rule 3 (w:10) \
             always decide first / remove it, or evaluate it before the rules that decide instead",
            "w:13 rule-never-reached egress 0: no flow reaches it: egress rule 2 of NetworkPolicy shop/p (w:9) and \
             egress rule 3 of NetworkPolicy shop/p (w:10) always decide first / remove it, or evaluate it before the \
             rules that decide instead",
        ],
    );
}

const NO_DNS: &str = "names-without-dns egress 0: what the policy selects cannot learn its names: nothing allows it to \
                      send DNS (port 53) / allow UDP and TCP to port 53 of the DNS servers";
const NOT_READ: &str = "names-never-learned egress 0: its names have addresses only if other workloads ask for them: \
                        nobody reads the DNS answers that what the policy selects gets / add a rule for DNS queries \
                        by name for what the policy selects";

#[test]
fn names_that_nobody_may_ask_for() {
    let named = "
    policy shop/named app=web
      > allow to is:domain=a.example";
    let cases = [
        ("", Some(NO_DNS)),
        ("> allow on TCP/443", Some(NO_DNS)),
        ("> allow on UDP/53", Some(NOT_READ)),
        ("> ask a.example allow on UDP/53", None),
        // Of another port, since a server may be translated.
        ("> ask *.example allow on TCP/5353", None),
        (
            "> ask b.example allow on UDP/53",
            Some(
                "name-never-asked egress 0: it allows a.example, and no rule allows what the policy selects to ask for \
                 it / allow DNS queries for it, or correct the name",
            ),
        ),
        ("> ask b.example allow on UDP/53\n > allow on UDP/53", None),
    ];
    for (rules, expected) in cases {
        let expected = expected.map(|text| format!("w:7 {text}"));
        let expected: Vec<&str> = expected.iter().map(|text| &**text).collect();
        finds_with_pods(&format!("{named}\n {rules}"), &expected);
    }
    // One workload of those that it selects may ask.
    let of_all = "
    policy shop/named
      > allow to is:domain=a.example
    policy shop/dns app=db
      > ask a.example allow on UDP/53";
    finds_with_pods(of_all, &[]);
}

#[test]
fn names_of_a_policy_that_observes_dns() {
    let named = |dns: &str| {
        format!(
            "
    policy shop/named app=web ?
      > allow to is:domain=a.example
      > allow on {dns}"
        )
    };
    finds_with_pods(&named("UDP/53"), &[]);
    finds_with_pods(&named("TCP/1-100"), &[]);
    finds_with_pods(&named("UDP/443"), &[&format!("w:7 {NO_DNS}")]);
}

#[test]
fn a_pass_is_no_decision_of_later_tiers_but_of_its_own() {
    finds_with_pods(
        "
    policy a @kube-admin #1 !
      pass from app=web
      deny from app=web on TCP/80
    policy b @kube-admin #2 !
      deny from app=web
    policy shop/q app=db
      allow from app=web
    policy other/q
      allow from app=web
    ",
        &[
            "w:8 rule-never-reached ingress 1: no flow reaches it: ingress rule 0 (w:7) always decides first / \
             remove it, or evaluate it before the rules that decide instead",
            "w:9 policy-changes-nothing: it changes nothing: without it every connection here is the same / remove \
             it, or correct what it was meant to change; keep it if it is meant for pods or policies to come",
            "w:10 rule-never-reached ingress 0: no flow reaches it: ingress rule 0 of NetworkPolicy a (w:7) always \
             decides first / remove it, or evaluate it before the rules that decide instead",
        ],
    );
}

/// What is passed, and allowed later, is decided by the later rule.
#[test]
fn the_rule_that_decides_is_named() {
    let changes_nothing = [6, 10].map(|line| format!("w:{line} {CHANGES_NOTHING}"));
    let [a, baseline] = changes_nothing.each_ref().map(|text| &**text);
    finds_with_pods(
        "
    policy a @kube-admin !
      pass from app=web
    policy shop/q app=db
      allow from app=web
    policy baseline @kube-baseline app=db !
      deny from app=web
    policy other/q
    policy shop/web app=web
    ",
        &[
            a,
            baseline,
            "w:11 rule-never-reached ingress 0: no flow reaches it: ingress rule 0 of NetworkPolicy shop/q (w:9) \
             always decides first / remove it, or evaluate it before the rules that decide instead",
        ],
    );
}

#[test]
fn rules_that_add_nothing() {
    finds_with_pods(
        "
    policy shop/p app=db
      allow from app=web on TCP/80
      allow from app=web on TCP/81
      allow from app=web on TCP/80-90
    policy shop/q app=web
      allow from app=db on TCP/80
      allow from app=db on TCP/80
    ",
        &[
            "w:7 rule-adds-nothing ingress 0: it adds nothing: ingress rule 2 (w:9) does the same with all that it \
             matches / remove it: the policy does the same without it",
            "w:8 rule-adds-nothing ingress 1: it adds nothing: ingress rule 2 (w:9) does the same with all that it \
             matches / remove it: the policy does the same without it",
            "w:12 rule-never-reached ingress 1: no flow reaches it: ingress rule 0 (w:11) always decides first / \
             remove it: the policy does the same without it",
        ],
    );
}

/// What matches the same pods only because there are no others is no repetition, and policies of one order may
/// repeat each other.
#[test]
fn repetitions_that_may_be_meant() {
    finds_with_pods(
        "
    policy shop/a app=db
      allow from app=web on TCP/80
      allow from 10.0.0.0/16 on TCP/80-90
    policy shop/b app=db
      allow from app=web on TCP/80
      allow from app=guest on TCP/80
    policy shop/deny-all
    policy shop/web app=web
      allow from 10.0.0.0/16 on TCP/80
      allow from app=db on TCP/80
    policy guard @kube-baseline !
      deny
    ",
        &[],
    );
}

/// A policy that changes nothing is reported with this text, after its line.
const CHANGES_NOTHING: &str = "policy-changes-nothing: it changes nothing: without it every connection here is the \
    same / remove it, or correct what it was meant to change; keep it if it is meant for pods or policies to come";

#[test]
fn policies_that_change_nothing() {
    // Nothing denies what `admin` allows. `a` repeats `b`: each alone changes nothing. `c` allows everything. What `e`
    // opens, the other end denies. `d` isolates what `e` does, but is meant for pods to come.
    let text = "
    policy admin app=db @kube-admin !
      allow from app=web on TCP/80
    policy shop/a app=db
      allow from app=web
    policy shop/b app=db
      allow from app=web
    policy other/closed
      > allow to 203.0.113.0/24
    policy shop/c app=web
      > allow to app=guest
      > allow to 0.0.0.0/0
      > allow to ::/0
    policy other/in
      allow from 198.51.100.0/24
    policy shop/d
    policy shop/e app=web
      allow from app=guest
    ";
    let expected: Vec<String> = [6, 8, 10, 14, 21]
        .iter()
        .map(|line| format!("w:{line} {CHANGES_NOTHING}"))
        .collect();
    let expected: Vec<&str> = expected.iter().map(|text| &**text).collect();
    finds_with_pods(text, &expected);
}

/// A pod's connection to itself is not subject to policy; two pods of one class are.
#[test]
fn a_pod_and_its_twin() {
    let rule = "
    policy n/p app=a
      allow from app=a
    policy n/q app=a
      allow from 192.0.2.0/24
    ";
    let one = format!("pod n/a 10.0.0.1 app=a{rule}");
    let found = findings(&one, LintLimit::default());
    assert_eq!(found, [format!("w:1 {CHANGES_NOTHING}")]);
    let two = format!("pod n/a 10.0.0.1 fd00::1 app=a\npod n/b fd00::2 app=a{rule}");
    finds(&two, &[]);
}

#[test]
fn policies_of_one_order_that_contradict_each_other() {
    let text = "
    policy a @kube-admin #5 !
      deny from app=web on TCP/80-90
      allow from app=guest
    policy b @kube-admin #5 !
      allow from app=guest
      allow from app=web on TCP/90
    policy c @kube-admin #5 app=db !
      allow from app=web on TCP/79
    policy d @kube-admin #6 !
      allow from app=web on TCP/80
    policy e @kube-baseline #5 !
      allow from app=web on TCP/80
    policy shop/x
    ";
    let changes_nothing = [9, 14, 16].map(|line| format!("w:{line} {CHANGES_NOTHING}"));
    let [b, d, e] = changes_nothing.each_ref().map(|text| &**text);
    finds_with_pods(
        text,
        &[
            b,
            "w:11 order-decided-by-name ingress 1: its policy has the same order as others that decide differently: \
             it contradicts ingress rule 0 of NetworkPolicy a (w:7), and only the names of the policies decide / \
             give one of the policies another order or priority",
            d,
            "w:15 rule-never-reached ingress 0: no flow reaches it: ingress rule 0 of NetworkPolicy a (w:7) always \
             decides first / remove it, or evaluate it before the rules that decide instead",
            e,
            "w:17 rule-never-reached ingress 0: no flow reaches it: ingress rule 0 of NetworkPolicy a (w:7) always \
             decides first / remove it, or evaluate it before the rules that decide instead",
        ],
    );
}

#[test]
fn a_pass_into_nothing() {
    let report = "pass-into-nothing ingress 0: it passes to later tiers, and none of them has a policy for what the \
        policy selects: what it matches is decided as if no policy applied / say Allow or Deny if that is meant, or \
        add the policies to which it should pass";
    let admin = "
    policy admin @kube-admin #5 !
      pass from app=web
      deny from app=web app=guest app=db";
    let found = findings(&format!("{PODS}{admin}"), LintLimit::default());
    assert_eq!(found, [format!("w:7 {report}")]);
    // One pod with a policy in a later tier is enough, whatever the direction of others.
    finds_with_pods(
        &format!("{admin}\n    policy shop/p app=db\n      allow from app=web"),
        &[],
    );
    let egress = format!("{PODS}{admin}\n    policy shop/p app=db\n      > allow to app=web");
    assert_eq!(
        findings(&egress, LintLimit::default()),
        [format!("w:7 {report}")]
    );
}

/// Without pods it is not known what policies select; with too little work allowed, what they do. Both are said.
#[test]
fn what_is_not_checked_is_said() {
    finds(
        "policy shop/p app=web",
        &["unchecked: there is no pod or workload, so it is not known what policies select"],
    );
    let text = format!(
        "{PODS}
    policy shop/p app=wbe
    policy shop/q app=db
      allow from app=web
      allow from app=web"
    );
    assert_eq!(
        findings(&text, LintLimit { max_steps: 1 }),
        [
            "w:6 subject-selects-nothing: it selects nothing: no endpoint in namespace shop is labelled \
             app = \"wbe\" / did you mean app = \"web\"?",
            "unchecked: rules that are never reached, that add nothing or that pass into nothing: given up after 1 \
             steps",
            "unchecked: whether 1 policies change anything: given up after 1 steps",
        ]
    );
}

/// Thousands of ports in a rule, and thousands of rules in a policy.
#[test]
fn long_lists() {
    let mut state = world(&format!("{PODS}\n    policy shop/p app=db"));
    let policy = state.policies.values_mut().next().unwrap();
    let list = policy.ingress.as_mut().unwrap();
    let mut ports = rule(Action::Allow);
    ports.traffic = (0..2_000).map(|n| tcp(n * 2 + 1)).collect();
    list.rules = vec![ports];
    for n in 0..300 {
        let mut one = from(Action::Allow, Peer::from_selector(sel("app=web")));
        one.traffic = vec![tcp(n)];
        one.origin.index = 1 + u32::from(n);
        list.rules.push(one);
    }
    let report = lint(&state, &UnnamedPorts::new(), LintLimit::default());
    let mut found: Vec<u32> = report
        .findings
        .iter()
        .filter_map(|finding| finding.rule)
        .collect();
    found.dedup();
    let odd: Vec<u32> = (0..300).filter(|n| n % 2 == 1).map(|n| 1 + n).collect();
    assert_eq!(found, odd);
    assert_eq!(report.unchecked, [""; 0]);
}
