//! Errors and warnings of cluster-wide policies: every reason, with its field and text.
//!
//! `cases.txt` has the spec of one object in a line, then what it results in, indented. A line begins with the
//! kind: `cluster`, `admin` or `baseline`; `..` stands for the fields that every valid spec of the kind has. To
//! accept a change, run with `PALISADE_BLESS=1` and review the difference.

use crate::common;

/// What `..` stands for, `apiVersion` and kind of a word.
fn kind_of(word: &str) -> (&'static str, &'static str, &'static str) {
    match word {
        "cluster" => (
            "tier: Admin, priority: 1, subject: {namespaces: {}}",
            "policy.networking.k8s.io/v1alpha2",
            "ClusterNetworkPolicy",
        ),
        "admin" => (
            "priority: 1, subject: {namespaces: {}}",
            "policy.networking.k8s.io/v1alpha1",
            "AdminNetworkPolicy",
        ),
        _ => (
            "subject: {namespaces: {}}",
            "policy.networking.k8s.io/v1alpha1",
            "BaselineAdminNetworkPolicy",
        ),
    }
}

/// The problems of an object with this spec, one a line.
fn problems(word: &str, spec: &str) -> Vec<String> {
    let (start, version, kind) = kind_of(word);
    let spec = spec.replace("..", start);
    let text =
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: default}}\nspec: {spec}\n");
    let lowering = common::lowering("f", &text);
    assert_eq!(
        lowering.errors.is_empty(),
        !lowering.entries[0].objects.is_empty()
    );
    common::problem_lines(&text)
}

#[test]
fn every_rejection_has_its_message() {
    common::check_cases("tests/integration/policy_api/cases.txt", problems);
}

#[test]
fn the_only_baseline_admin_network_policy() {
    let text = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: BaselineAdminNetworkPolicy\n\
                metadata: {name: other}\n\
                spec: {subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}\n";
    let lowering = common::lowering("f", text);
    let shown: Vec<String> = lowering.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "f:3:18: metadata.name: \"other\" is not `default`: a cluster has one \
             BaselineAdminNetworkPolicy, of that name"
        ]
    );
}

/// Lists at their greatest length, and one item longer.
#[test]
fn lengths_of_lists() {
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(", "));
    let valid = |count: usize| vec!["  valid".to_owned(); count];
    let cluster = (
        "cluster",
        25,
        "protocols",
        "{tcp: {destinationPort: {number: 1}}}",
    );
    let admin = ("admin", 100, "ports", "{portNumber: {port: 1}}");
    let baseline = ("baseline", 100, "ports", "{portNumber: {port: 1}}");
    for (word, most, ports, port) in [cluster, admin, baseline] {
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for count in [most, most + 1] {
                let rule = |peer_count, port_count| {
                    let of = list("{namespaces: {}}", peer_count);
                    let ports_list = list(port, port_count);
                    format!("{{action: Deny, {peers}: {of}, {ports}: {ports_list}}}")
                };
                for (rules, field, what) in [
                    (list(&rule(1, 1), count), String::new(), "rules"),
                    (
                        format!("[{}]", rule(count, 1)),
                        format!("[0].{peers}"),
                        "peers",
                    ),
                    (
                        format!("[{}]", rule(1, count)),
                        format!("[0].{ports}"),
                        ports,
                    ),
                ] {
                    let expected = if count > most {
                        vec![format!(
                            "  error spec.{direction}{field}: {count} {what} are too many: at most {most}"
                        )]
                    } else {
                        valid(1)
                    };
                    let spec = format!("{{.., {direction}: {rules}}}");
                    assert_eq!(problems(word, &spec), expected);
                }
            }
        }
    }
    for (field, what, item) in [
        ("networks", "networks", "10.0.#.0/24"),
        ("domainNames", "domain names", "a#.example.com"),
    ] {
        for count in [25, 26] {
            let items: Vec<String> = (0..count)
                .map(|n| item.replace('#', &n.to_string()))
                .collect();
            let items = items.join(", ");
            let spec =
                format!("{{.., egress: [{{action: Accept, to: [{{{field}: [{items}]}}]}}]}}");
            let found = problems("cluster", &spec);
            let expected = format!(
                "  error spec.egress[0].to[0].{field}: {count} {what} are too many: at most 25"
            );
            assert_eq!(found.contains(&expected), count > 25, "{found:?}");
            let errors = found
                .iter()
                .filter(|line| line.starts_with("  error"))
                .count();
            assert_eq!(errors, usize::from(count > 25));
        }
    }
}
