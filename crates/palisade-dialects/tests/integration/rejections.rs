//! Errors of a NetworkPolicy: every reason, with its field and text.

use crate::common::{self, EntryStatus};

/// The errors of a policy with this spec in flow style. The first character of the spec is at line 4, column
/// 8.
fn errors(spec: &str) -> Vec<String> {
    of(&format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: a}}\nspec: {spec}\n"
    ))
}

fn of(text: &str) -> Vec<String> {
    let lowering = common::lowering("f", text);
    for entry in &lowering.entries {
        assert_eq!(entry.status, EntryStatus::Rejected);
        assert!(entry.objects.is_empty());
    }
    let shown = |p: &palisade_manifest::Problem| {
        assert_eq!(p.object.as_deref(), Some("NetworkPolicy default/a"));
        p.to_string()
    };
    lowering.errors.iter().map(shown).collect()
}

/// The field and reason of each error of a spec, without locations.
fn reasons(spec: &str) -> Vec<String> {
    let text = format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: a}}\nspec: {spec}\n"
    );
    let lowering = common::lowering("f", &text);
    assert!(lowering.objects().all(|o| match o {
        palisade_model::Object::Policy(p) => p.ingress.iter().all(|d| d.rules.is_empty()),
        _ => false,
    }));
    let shown = |p: &palisade_manifest::Problem| format!("{}: {}", p.field, p.reason);
    lowering.errors.iter().map(shown).collect()
}

#[test]
fn all_problems_of_one_policy_each_at_its_place() {
    assert_eq!(
        errors(
            "{podSelector: {matchLabels: {-x: 'a b'}}, ingress: [{from: [{ipBlock: {cidr: x/8}, \
             podSelector: {}}], ports: [{port: 0, protocol: tcp}]}], policyTypes: [ingress]}"
        ),
        [
            "f:4:36: spec.podSelector.matchLabels.-x: \"-x\" is not a label key: letters, digits, \
             '-', '_' and '.', with a letter or digit first and last",
            "f:4:40: spec.podSelector.matchLabels.-x: \"a b\" is not a label value: letters, \
             digits, '-', '_' and '.', with a letter or digit first and last, or nothing",
            "f:4:67: spec.ingress[0].from[0]: ipBlock must not be combined with podSelector or \
             namespaceSelector",
            "f:4:84: spec.ingress[0].from[0].ipBlock.cidr: \"x\" is not an IP address",
            "f:4:124: spec.ingress[0].ports[0].port: 0 is not a port: 1 to 65535",
            "f:4:137: spec.ingress[0].ports[0].protocol: \"tcp\" is not a supported protocol: use TCP, UDP \
             or SCTP",
            "f:4:160: spec.policyTypes[0]: \"ingress\" is not a policy type: use Ingress or Egress",
        ]
    );
}

#[test]
fn ports() {
    let nothing: [&str; 0] = [];
    for (port, expected) in [
        ("{port: 80, endPort: 80}", &nothing[..]),
        ("{port: -1}", &["port: -1 is not a port: 1 to 65535"]),
        ("{port: 65536}", &["port: 65536 is not a port: 1 to 65535"]),
        (
            "{port: 99999999999}",
            &["port: 99999999999 is not a port: 1 to 65535"],
        ),
        (
            "{port: '80'}",
            &[
                "port: \"80\" has only digits: a port name needs a letter, and a port number must not be \
                 quoted",
            ],
        ),
        ("{port: ''}", &["port: a port name must not be empty"]),
        (
            "{port: HTTP}",
            &["port: \"HTTP\" is not a port name: only lower case letters, digits and '-'"],
        ),
        (
            "{port: 1-2}",
            &["port: \"1-2\" is not a port name: it needs at least one letter"],
        ),
        (
            "{port: a--b}",
            &["port: \"a--b\" is not a port name: two hyphens in a row"],
        ),
        (
            "{port: -a}",
            &["port: \"-a\" is not a port name: a hyphen first or last"],
        ),
        (
            "{port: abcdefghijklmnop}",
            &["port: 16 bytes are too long: at most 15"],
        ),
        (
            "{port: [80]}",
            &["port: expected a whole number or text, found a list"],
        ),
        (
            "{port: 1.5}",
            &["port: expected a whole number or text, found the number 1.5"],
        ),
        (
            "{endPort: 80}",
            &["endPort: endPort requires a numeric port: port is missing"],
        ),
        (
            "{port: http, endPort: 80}",
            &["endPort: endPort requires a numeric port: port is the name \"http\""],
        ),
        (
            "{port: 81, endPort: 80}",
            &["endPort: endPort 80 is below port 81"],
        ),
        (
            "{port: 81, endPort: 65536}",
            &["endPort: 65536 is not a port: 1 to 65535"],
        ),
        (
            "{port: 81, endPort: x}",
            &["endPort: expected a whole number, found the text \"x\""],
        ),
        (
            "{protocol: ICMP}",
            &["protocol: \"ICMP\" is not a supported protocol: use TCP, UDP or SCTP"],
        ),
        (
            "{protocol: ''}",
            &["protocol: \"\" is not a supported protocol: use TCP, UDP or SCTP"],
        ),
        (
            "{protocol: 6}",
            &["protocol: expected text, found the number 6"],
        ),
        (
            "{ports: 80}",
            &["ports: unknown field `ports`; did you mean `port`?"],
        ),
    ] {
        let expected: Vec<String> = expected
            .iter()
            .map(|e| format!("spec.egress[0].ports[0].{e}"))
            .collect();
        let spec = format!("{{podSelector: {{}}, egress: [{{ports: [{port}]}}]}}");
        assert_eq!(reasons(&spec), expected, "{port}");
    }
}

#[test]
fn ip_blocks() {
    for (block, expected) in [
        ("{}", "ipBlock: `cidr` is required, but missing"),
        ("{cidr: }", "ipBlock: `cidr` is required, but missing"),
        (
            "{cidr: ''}",
            "ipBlock.cidr: \"\" is not a CIDR (address/length)",
        ),
        (
            "{cidr: 10.0.0.1}",
            "ipBlock.cidr: \"10.0.0.1\" is not a CIDR: write one address as 10.0.0.1/32",
        ),
        (
            "{cidr: 8}",
            "ipBlock.cidr: expected text, found the number 8",
        ),
        (
            "{cidr: 10.0.0.0/33}",
            "ipBlock.cidr: \"10.0.0.0/33\" is not a CIDR: the part after the slash is not a prefix \
             length (0-32 for IPv4, 0-128 for IPv6)",
        ),
        (
            "{cidr: '::ffff:10.0.0.0/104', except: [10.1.0.0/16]}",
            "ipBlock.except[0]: 10.1.0.0/16 and cidr 10.0.0.0/8 must both be written as IPv4",
        ),
        (
            "{cidr: '::ffff:0:0/90', except: [10.1.0.0/16]}",
            "ipBlock.except[0]: 10.1.0.0/16 is IPv4, but cidr ::ffc0:0:0/90 is IPv6",
        ),
        (
            "{cidr: 10.0.0.0/8, except: [10.0.0.0/8]}",
            "ipBlock.except[0]: 10.0.0.0/8 equals cidr 10.0.0.0/8: it must be strictly \
             inside",
        ),
        (
            "{cidr: 10.0.0.0/8, except: [11.0.0.0/16]}",
            "ipBlock.except[0]: 11.0.0.0/16 is not strictly inside cidr 10.0.0.0/8",
        ),
        (
            "{cidr: 10.0.0.0/8, except: [0.0.0.0/0]}",
            "ipBlock.except[0]: 0.0.0.0/0 is not strictly inside cidr 10.0.0.0/8",
        ),
        (
            "{cidr: 10.0.0.0/8, except: ['fd00::/8']}",
            "ipBlock.except[0]: fd00::/8 is IPv6, but cidr 10.0.0.0/8 is IPv4",
        ),
        (
            "{cidr: 10.0.0.0/8, except: [x]}",
            "ipBlock.except[0]: \"x\" is not a CIDR (address/length)",
        ),
        (
            "{cidr: 10.0.0.0/8, except: 10.0.0.0/9}",
            "ipBlock.except: expected a list, found the text \"10.0.0.0/9\"",
        ),
        (
            "{cidr: 10.0.0.0/8, excepts: []}",
            "ipBlock.excepts: unknown field `excepts`; did you mean `except`?",
        ),
        ("[10.0.0.0/8]", "ipBlock: expected an object, found a list"),
    ] {
        let spec = format!("{{podSelector: {{}}, ingress: [{{from: [{{ipBlock: {block}}}]}}]}}");
        let expected = format!("spec.ingress[0].from[0].{expected}");
        assert_eq!(reasons(&spec), [expected], "{block}");
    }
}

#[test]
fn selectors() {
    let expression = "spec.podSelector.matchExpressions[0]";
    for (selector, expected) in [
        (
            "{matchExpressions: [{key: a, operator: In}]}",
            format!("{expression}: `values` is required with operator In"),
        ),
        (
            "{matchExpressions: [{key: a, operator: NotIn, values: []}]}",
            format!("{expression}: `values` is required with operator NotIn"),
        ),
        (
            "{matchExpressions: [{key: a, operator: Exists, values: [x]}]}",
            format!("{expression}: `values` must not be given with operator Exists"),
        ),
        (
            "{matchExpressions: [{key: a, operator: DoesNotExist, values: [x]}]}",
            format!("{expression}: `values` must not be given with operator DoesNotExist"),
        ),
        (
            "{matchExpressions: [{key: a, operator: in, values: [x]}]}",
            format!(
                "{expression}.operator: \"in\" is not a selector operator: use In, NotIn, Exists or \
                 DoesNotExist"
            ),
        ),
        (
            "{matchExpressions: [{operator: Exists}]}",
            format!("{expression}: `key` is required, but missing"),
        ),
        (
            "{matchExpressions: [{key: a}]}",
            format!("{expression}: `operator` is required, but missing"),
        ),
        (
            "{matchExpressions: [{key: a/b/c, operator: Exists}]}",
            format!("{expression}.key: \"a/b/c\" is not a label key: it has more than one slash"),
        ),
        (
            "{matchExpressions: [{key: /b, operator: Exists}]}",
            format!("{expression}.key: \"/b\" is not a label key: there is nothing before the slash"),
        ),
        (
            "{matchExpressions: [{key: A_/b, operator: Exists}]}",
            format!(
                "{expression}.key: the label key's prefix \"A_\" is not a DNS subdomain: lower case \
                 letters, digits, '-' and '.', with a letter or digit first and last in every part"
            ),
        ),
        (
            "{matchExpressions: [{key: a, operator: In, values: [1]}]}",
            format!("{expression}.values[0]: expected text, found the number 1"),
        ),
        (
            "{matchExpressions: [{key: a, operator: In, values: ['a b']}]}",
            format!(
                "{expression}.values[0]: \"a b\" is not a label value: letters, digits, '-', '_' \
                 and '.', with a letter or digit first and last, or nothing"
            ),
        ),
        (
            "{matchExpressions: [{key: a, operator: Exists, value: x}]}",
            format!("{expression}.value: unknown field `value`; did you mean `values`?"),
        ),
        (
            "{matchExpressions: {key: a}}",
            "spec.podSelector.matchExpressions: expected a list, found an object".to_owned(),
        ),
        (
            "{matchLabels: {a: true}}",
            "spec.podSelector.matchLabels.a: expected text, found the boolean true".to_owned(),
        ),
        (
            "{matchLabels: {'': a}}",
            "spec.podSelector.matchLabels[]: \"\" is not a label key: its name is empty".to_owned(),
        ),
        (
            "{matchLabels: [a]}",
            "spec.podSelector.matchLabels: expected an object, found a list".to_owned(),
        ),
        (
            "{app: web}",
            "spec.podSelector.app: unknown field `app`; known fields: matchLabels, matchExpressions"
                .to_owned(),
        ),
        (
            "{matchlabels: {}}",
            "spec.podSelector.matchlabels: unknown field `matchlabels`; did you mean `matchLabels`?"
                .to_owned(),
        ),
        (
            "web",
            "spec.podSelector: expected an object, found the text \"web\"".to_owned(),
        ),
    ] {
        assert_eq!(reasons(&format!("{{podSelector: {selector}}}")), [expected], "{selector}");
    }
    let long = "a".repeat(64);
    assert_eq!(
        reasons(&format!(
            "{{podSelector: {{matchLabels: {{a: {long}, {long}: a}}}}}}"
        )),
        [
            "spec.podSelector.matchLabels.a: 64 bytes are too long: at most 63".to_owned(),
            format!("spec.podSelector.matchLabels.{long}: 64 bytes are too long: at most 63"),
        ]
    );
}

#[test]
fn shape() {
    for (spec, expected) in [
        (
            "{policyTypes: [Ingress, Egress, Ingress]}",
            "spec.policyTypes: at most two policyTypes: Ingress and Egress",
        ),
        (
            "{policyTypes: [null]}",
            "spec.policyTypes[0]: \"\" is not a policy type: use Ingress or Egress",
        ),
        (
            "{policyTypes: Ingress}",
            "spec.policyTypes: expected a list, found the text \"Ingress\"",
        ),
        (
            "{ingress: {}}",
            "spec.ingress: expected a list, found an empty object",
        ),
        (
            "{ingress: [from]}",
            "spec.ingress[0]: expected an object, found the text \"from\"",
        ),
        (
            "{ingress: [{to: []}]}",
            "spec.ingress[0].to: unknown field `to`; an ingress rule has `from`",
        ),
        (
            "{egress: [{from: []}]}",
            "spec.egress[0].from: unknown field `from`; an egress rule has `to`",
        ),
        (
            "{ingress: [{from: {podSelector: {}}}]}",
            "spec.ingress[0].from: expected a list, found an object",
        ),
        (
            "{ingress: [{podSelector: {}}]}",
            "spec.ingress[0].podSelector: unknown field `podSelector`; it belongs in an item of \
             the list `from`",
        ),
        (
            "{ingress: [{form: []}]}",
            "spec.ingress[0].form: unknown field `form`; did you mean `from`?",
        ),
        (
            "{ingress: [{from: [null]}]}",
            "spec.ingress[0].from[0]: a peer must have podSelector, namespaceSelector or ipBlock \
             (omit the list to match all peers)",
        ),
        (
            "{ingress: [{from: [{podSelector: null}]}]}",
            "spec.ingress[0].from[0]: a peer must have podSelector, namespaceSelector or ipBlock \
             (omit the list to match all peers)",
        ),
        (
            "{ingress: [{from: [{podSelector: {}, ports: []}]}]}",
            "spec.ingress[0].from[0].ports: unknown field `ports`; it belongs beside the list of \
             peers, not inside",
        ),
        (
            "{egress: [{to: [{namespaceSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}",
            "spec.egress[0].to[0]: ipBlock must not be combined with podSelector or namespaceSelector",
        ),
        (
            "{podselector: {}}",
            "spec.podselector: unknown field `podselector`; did you mean `podSelector`?",
        ),
        ("[]", "spec: expected an object, found an empty list"),
    ] {
        assert_eq!(reasons(spec), [expected], "{spec}");
    }
}

#[test]
fn names_and_metadata() {
    for (metadata, expected) in [
        (
            "{name: a, labels: {a: 1}}",
            "metadata.labels.a: expected text, found the number 1",
        ),
        (
            "{name: a, annotations: {a b: x}}",
            "metadata.annotations[a b]: \"a b\" is not a label key: letters, digits, '-', '_' and \
             '.', with a letter or digit first and last",
        ),
        (
            "{name: a, annotations: {a: 1}}",
            "metadata.annotations.a: expected text, found the number 1",
        ),
        (
            "{name: a, label: {}}",
            "metadata.label: unknown field `label`; did you mean `labels`?",
        ),
    ] {
        let text = format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {metadata}, spec: {{}}}}"
        );
        let found: Vec<String> = of(&text)
            .iter()
            .map(|p| p.splitn(4, ':').nth(3).unwrap().trim().to_owned())
            .collect();
        assert_eq!(found, [expected], "{metadata}");
    }
    for (metadata, expected) in [
        (
            "{name: A}",
            "NetworkPolicy default/A: f:1:74: metadata.name: \"A\" is not a DNS subdomain: lower \
             case letters, digits, '-' and '.', with a letter or digit first and last in every part",
        ),
        (
            "{name: a, namespace: b.c}",
            "NetworkPolicy b.c/a: f:1:88: metadata.namespace: \"b.c\" must not contain dots",
        ),
    ] {
        let text = format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {metadata}}}"
        );
        let lowering = common::lowering("f", &text);
        let found: Vec<String> = lowering.errors.iter().map(common::problem).collect();
        assert_eq!(found, [expected], "{metadata}");
    }
}
