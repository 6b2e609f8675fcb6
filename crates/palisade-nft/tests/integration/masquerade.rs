//! The table that translates: its text, and that a plan writes only what differs.

use palisade_nft::{ElementKey, Masquerade, Ruleset, masqueraded_addresses, print_ruleset};
use palisade_verification::{apply, lint, lint_transaction};

fn masquerade(addresses: &[&str]) -> Masquerade {
    Masquerade {
        table: "palisade".into(),
        interface_prefix: "pal".into(),
        exempt_prefixes: vec![
            "10.245.0.0/24".parse().unwrap(),
            "10.245.1.0/24".parse().unwrap(),
            "fd50::/64".parse().unwrap(),
        ],
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
    }
}

/// Applies a plan to a simulated kernel.
fn execute_plan(masquerade: &Masquerade, mut installed: Option<Ruleset>) -> Option<Ruleset> {
    let plan = masquerade.plan(installed.as_ref(), 0);
    let of_table = |name: &str| {
        let installed = installed.as_ref()?;
        installed.sets.get(name).map(|set| set.decl.clone())
    };
    assert_eq!(lint_transaction(&plan, of_table), []);
    for step in &plan.steps {
        apply(&mut installed, &masquerade.table_name(), &step.ops).unwrap();
    }
    installed
}

#[test]
fn the_table_is_sound_and_reads_as_it_is_meant() {
    let masquerade = masquerade(&["10.245.0.2", "fd50::2"]);
    let ruleset = masquerade.ruleset(0);
    assert_eq!(lint(&ruleset), []);
    let text = print_ruleset(&ruleset);
    let wanted = include_str!("masquerade.txt");
    assert_eq!(text, wanted, "{text}");
}

#[test]
fn only_what_differs_is_written() {
    let (one, other) = (
        masquerade(&["10.245.0.2"]),
        masquerade(&["10.245.0.3", "fd50::3"]),
    );
    let installed = execute_plan(&one, None);
    assert_eq!(installed, Some(one.ruleset(0)));
    assert!(one.plan(installed.as_ref(), 0).is_empty());
    assert_eq!(other.plan(installed.as_ref(), 0).steps[0].ops.len(), 3);
    let installed = execute_plan(&other, installed);
    assert_eq!(installed, Some(other.ruleset(0)));
    let found = masqueraded_addresses(&installed.unwrap());
    assert_eq!(found, other.addresses);
}

#[test]
fn what_somebody_changed_is_made_anew() {
    let masquerade = masquerade(&["10.245.0.2"]);
    let mut damaged = masquerade.ruleset(0);
    damaged.chains.values_mut().for_each(|c| c.rules.clear());
    assert_eq!(
        execute_plan(&masquerade, Some(damaged)),
        Some(masquerade.ruleset(0))
    );
    let mut damaged = masquerade.ruleset(0);
    damaged.sets.remove("p_near4");
    assert_eq!(
        execute_plan(&masquerade, Some(damaged)),
        Some(masquerade.ruleset(0))
    );
}

#[test]
fn ranges_meet_nowhere() {
    let ruleset = masquerade(&[]).ruleset(0);
    let exempt: Vec<&ElementKey> = ruleset.sets["p_near4"].elements.keys().collect();
    let range = |first: [u8; 4], last: [u8; 4]| ElementKey::Range(first.into(), last.into());
    assert_eq!(
        exempt,
        [
            &range([10, 245, 0, 0], [10, 245, 1, 255]),
            &range([169, 254, 0, 0], [169, 254, 255, 255]),
            &range([224, 0, 0, 0], [255, 255, 255, 255]),
        ]
    );
}
