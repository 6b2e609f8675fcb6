//! Conversions by hand: rule sets with the text that each dialect gets, or why it cannot say them.
//!
//! A file has scenarios that begin with `=== name` and a manifest; then, for each dialect, `--- dialect` and what is
//! printed: documents, and a line `! path: reason` for each refusal. `PALISADE_BLESS=1` writes the files again; what
//! is written must be read by a person. In every scenario the connections before and after are the same: alone,
//! beside policies of every dialect of which none is converted, and beside those converted as well.

use crate::manifests::{Input, assert_same_connections, lower};
use palisade_convert::{Conversion, Inexpressible, InexpressibleReason, TargetDialect};
use palisade_manifest::to_yaml;
use palisade_model::{ObjectId, State};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub(crate) const CLUSTER: &str = include_str!("cluster.yaml");
pub(crate) const BACKGROUND: &str = include_str!("background.yaml");
const CALICO_BACKGROUND: &str = include_str!("background-calico.json");

struct Scenario {
    name: String,
    manifest: String,
    expected: String,
}

const FILES: [&str; 4] = ["kubernetes", "cilium", "policy-api", "calico"];

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/scenarios");
    folder.join(format!("{name}.txt"))
}

fn scenarios(text: &str) -> Vec<Scenario> {
    let blocks = text.split("=== ").skip(1);
    blocks
        .map(|block| {
            let (name, rest) = block.split_once('\n').unwrap();
            let end = rest.find("--- ").unwrap_or(rest.len());
            Scenario {
                name: name.to_owned(),
                manifest: rest[..end].to_owned(),
                expected: rest[end..].to_owned(),
            }
        })
        .collect()
}

fn target_name(target: TargetDialect) -> &'static str {
    match target {
        TargetDialect::Kubernetes => "kubernetes",
        TargetDialect::ClusterNetworkPolicy => "cluster-network-policy",
        TargetDialect::Cilium => "cilium",
        TargetDialect::Calico => "calico",
    }
}

fn text(conversion: &Conversion) -> String {
    let documents: Vec<String> = (conversion.objects.iter())
        .map(|written| to_yaml(&written.object))
        .collect();
    let mut out = documents.join("...\n");
    for of in &conversion.inexpressible {
        let rule = of.rule.as_ref().map(|rule| format!("{rule}: "));
        let line = of.line.as_ref().map_or(0, |line| line.line);
        out.push_str(&format!(
            "! {line}: {}{}\n",
            rule.unwrap_or_default(),
            of.reason
        ));
    }
    out
}

/// Adds policies of Calico of every order, which are not converted.
pub(crate) fn add_calico_background(state: &mut State) {
    let calico: Vec<Value> = serde_json::from_str(CALICO_BACKGROUND).unwrap();
    for object in &calico {
        let policies = lower(object).into_iter();
        let policies = policies.map(|policy| (policy.id.clone(), policy));
        state.policies.extend(policies);
    }
}

/// What a scenario gives, with its connections compared.
fn outcome(scenario: &Scenario) -> String {
    let mut out = String::new();
    let alone = Input::of(&[("cluster.yaml", CLUSTER), ("p.yaml", &scenario.manifest)]);
    let among = Input::of(&[
        ("cluster.yaml", CLUSTER),
        ("background.yaml", BACKGROUND),
        ("p.yaml", &scenario.manifest),
    ]);
    let mut among_calico = among.clone();
    add_calico_background(&mut among_calico.state);
    let own: Vec<ObjectId> = alone
        .sources
        .iter()
        .map(|source| source.id().clone())
        .collect();
    assert!(!own.is_empty(), "{}", scenario.name);
    for target in TargetDialect::ALL {
        if own.iter().all(|id| target.has_kind(&id.kind)) {
            continue;
        }
        let converted = alone.convert(target, |_| true);
        out.push_str(&format!(
            "--- {}\n{}",
            target_name(target),
            text(&converted)
        ));
        let what = format!("{} as {}", scenario.name, target_name(target));
        let after = alone.replaced(&converted.objects);
        assert_same_connections(&alone.state, &after, &what);
        for mixed in [&among, &among_calico] {
            let one = mixed.convert(target, |id| own.contains(id));
            // Beside others it is written alike, but for a priority that one of them has.
            let shares =
                |of: &Inexpressible| matches!(of.reason, InexpressibleReason::SharedPriority(_));
            if !one.inexpressible.iter().any(shares) {
                assert_eq!(one.objects, converted.objects, "{what}");
            }
            let after = mixed.replaced(&one.objects);
            assert_same_connections(&mixed.state, &after, &format!("{what}, alone among others"));
            let all = mixed.convert(target, |_| true);
            let after = mixed.replaced(&all.objects);
            assert_same_connections(&mixed.state, &after, &format!("{what}, with all others"));
        }
    }
    out
}

#[test]
fn each_scenario_is_written_as_expected() {
    #[allow(
        clippy::disallowed_methods,
        reason = "whether expected texts are written is no configuration of the product"
    )]
    let is_blessed = std::env::var("PALISADE_BLESS").is_ok_and(|value| value == "1");
    let mut count = 0;
    for name in FILES {
        let path = file(name);
        let before = std::fs::read_to_string(&path).unwrap();
        let mut after = before[..before.find("=== ").unwrap()].to_owned();
        for scenario in scenarios(&before) {
            count += 1;
            let found = outcome(&scenario);
            if !is_blessed {
                assert_eq!(found, scenario.expected, "{name}: {}", scenario.name);
            }
            after.push_str(&format!(
                "=== {}\n{}{found}",
                scenario.name, scenario.manifest
            ));
        }
        if is_blessed {
            #[allow(clippy::disallowed_methods, reason = "a file of the repository")]
            std::fs::write(&path, after).unwrap();
        }
    }
    assert!(count >= 120, "{count} scenarios");
}
