//! Calico's kinds: every error, warning and part held closed, with its field and text; and what traps become.
//!
//! `cases.txt`, and `rules.txt` for the rules of policies, have one object in a line, then what it results in,
//! indented. A line begins with the kind: `policy`, `global`, `staged`, `staged-global`, `staged-kubernetes`, `tier`,
//! `profile`, `set`, `global-set`, `host` and `workload` with a spec, and with `-object` what an object has besides
//! its name (`object` is that of a policy, `crd-object` the same in the other API group). `tier:NAME` and
//! `profile:NAME` name the object. To accept a change, run with `PALISADE_BLESS=1` and review the difference.

mod isolated;
mod lowered;
mod peers;

use crate::common;

/// The manifest of a line.
fn manifest(word: &str, written: &str) -> String {
    let (word, name) = word.split_once(':').unwrap_or((word, "a"));
    let (word, rest) = match word.strip_suffix("object") {
        Some(kind) => (kind.trim_end_matches('-'), written.to_owned()),
        None => (word, format!("spec: {written}")),
    };
    let kind = match word {
        "policy" | "" | "crd" => "NetworkPolicy",
        "global" => "GlobalNetworkPolicy",
        "staged" => "StagedNetworkPolicy",
        "staged-global" => "StagedGlobalNetworkPolicy",
        "staged-kubernetes" => "StagedKubernetesNetworkPolicy",
        "tier" => "Tier",
        "profile" => "Profile",
        "set" => "NetworkSet",
        "global-set" => "GlobalNetworkSet",
        "host" => "HostEndpoint",
        "workload" => "WorkloadEndpoint",
        other => panic!("{other} is no word for a kind"),
    };
    let version = match word {
        "crd" => "crd.projectcalico.org/v1",
        _ => "projectcalico.org/v3",
    };
    let metadata = if rest.starts_with("metadata:") {
        String::new()
    } else {
        format!("metadata: {{name: {name}}}, ")
    };
    format!("{{apiVersion: {version}, kind: {kind}, {metadata}{rest}}}\n")
}

#[test]
fn every_rejection_has_its_message() {
    for file in [
        "tests/integration/calico/cases.txt",
        "tests/integration/calico/rules.txt",
    ] {
        common::check_cases(file, |word, written| {
            common::problem_lines(&manifest(word, written))
        });
    }
}

/// Lists at their greatest length, and one item longer.
#[test]
fn lengths_of_lists() {
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(", "));
    let end = |field: &str| format!("spec.ingress[0].source.{field}");
    for (most, item, field, what) in [
        (1024, "{action: Log}", "spec.ingress".to_owned(), "rules"),
        (256, "10.0.0.0/8", end("nets"), "networks"),
        (256, "10.0.0.0/8", end("notNets"), "networks"),
        (50, "80", end("ports"), "ports"),
        (50, "80", end("notPorts"), "ports"),
    ] {
        for count in [most, most + 1] {
            let items = list(item, count);
            let spec = match field.strip_prefix("spec.ingress[0].source.") {
                Some(name) => format!(
                    "{{ingress: [{{action: Log, protocol: TCP, source: {{{name}: {items}}}}}]}}"
                ),
                None => format!("{{ingress: {items}}}"),
            };
            let found = common::problem_lines(&manifest("policy", &spec));
            let expected = if count > most {
                format!("  error {field}: too many {what}: {count}, the maximum is {most}")
            } else {
                "  valid".to_owned()
            };
            assert_eq!(found, [expected], "{field}");
        }
    }
}

/// The limit is that of rules: lists of addresses to block are long.
#[test]
fn network_sets_have_any_number_of_networks() {
    let nets: Vec<String> = (0..3000)
        .map(|n| format!("10.{}.{}.0/24", n / 256, n % 256))
        .collect();
    let spec = format!("{{nets: [{}]}}", nets.join(", "));
    for kind in ["set", "global-set"] {
        assert_eq!(
            common::problem_lines(&manifest(kind, &spec)),
            ["  valid"],
            "{kind}"
        );
    }
}

/// The resources of both API groups are the same objects, of one name.
#[test]
fn both_groups_of_calico_name_one_kind() {
    let kind = palisade_dialects::object_kind("projectcalico.org", "NetworkPolicy");
    assert_eq!(
        (kind.group(), kind.name()),
        ("projectcalico.org", "NetworkPolicy")
    );
    let stored = palisade_dialects::object_kind("crd.projectcalico.org", "NetworkPolicy");
    assert_eq!(stored, kind);
    let other = palisade_dialects::object_kind("networking.k8s.io", "NetworkPolicy");
    assert_eq!(
        (other.group(), other.name()),
        ("networking.k8s.io", "NetworkPolicy")
    );
}
