//! Dumps of clusters: `validate`, `explain`, `connections` and `diff` on lists of many pods.

use super::World;
use palisade_testkit::dump::ClusterDump;
use serde_json::json;

fn text(dump: ClusterDump) -> String {
    let mut text = Vec::new();
    dump.write(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Larger than the read buffer.
const DUMP: ClusterDump = ClusterDump {
    pods: 600,
    workloads: 60,
    namespaces: 12,
    policies: 90,
};

#[test]
fn a_dump_is_read_item_by_item_and_answered_in_groups() {
    let world = World::of(&[("all.json", &text(DUMP))]);
    let ran = world.run("validate", "");
    assert_eq!(
        (ran.code, &*ran.out, &*ran.err),
        (0, "1 file, 702 valid objects, 0 errors, 0 warnings\n", "")
    );
    let policies = |out: &str| out.matches("does not apply: ").count();
    let asked =
        "--from team-1/app-1-0000001ef0-00001 --to team-0/app-0-0000000001-00000 --port 1024";
    let brief = world.run("explain", asked);
    assert_eq!((brief.code, policies(&brief.out)), (0, 0), "{}", brief.out);
    assert!(
        brief
            .out
            .contains("88 other policies do not apply (--all shows why)"),
        "{}",
        brief.out
    );
    let all = world.run("explain", &format!("{asked} --all"));
    assert_eq!(policies(&all.out), 90 + 88, "{}", all.out);
    let told = world.json("explain", asked);
    assert_eq!(told["ingress"]["notApplying"], 88);
    let told = world.json("connections", "--to team-3/app-3-0000005cce --members");
    let rows = told["connections"].as_array().unwrap();
    assert!(!rows.is_empty());
    assert!(
        rows.iter()
            .all(|row| row["dst"]["name"] == "app-3-0000005cce"),
        "{rows:?}"
    );
    let text = world.run("connections", "");
    assert_eq!(text.code, 0);
    assert!(
        text.out.lines().count() < 1_000,
        "{}",
        text.out.lines().count()
    );
}

#[test]
fn without_policy_a_cluster_is_one_group() {
    let none = ClusterDump {
        policies: 0,
        ..DUMP
    };
    let world = World::of(&[("all.json", &text(none))]);
    let ran = world.run("connections", "");
    let group = "team-0/app-0-0000000001 (ReplicaSet) and 59 more";
    let (table, own_node) = ran.out.split_once("\n\n").unwrap();
    assert!(own_node.starts_with("Besides, every workload is reachable from its own node"));
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|l| {
            l.split("  ")
                .filter(|c| !c.is_empty())
                .map(str::trim)
                .collect()
        })
        .collect();
    assert_eq!(
        lines,
        [
            vec!["FROM", "TO", "FAMILY", "CONNECTIONS"],
            vec![group, group, "-", "all"],
            vec![group, "outside 0.0.0.0/0", "-", "all"],
            vec!["outside 0.0.0.0/0", group, "-", "all"],
        ]
    );
    let told = world.json("connections", "--members");
    let src = &told["connections"][0]["src"];
    assert_eq!((&src["count"], &src["group"]), (&json!(60), &json!(group)));
    assert_eq!(src["members"].as_array().map(Vec::len), Some(60));
    let members = world.run("connections", "--members").out;
    assert!(members.contains("\n  team-11/app-59-"), "{members}");
    let wrong = world.run("connections", "--from team-0/nobody");
    assert_eq!((wrong.code, &*wrong.out), (2, ""));
    assert!(
        wrong
            .err
            .contains("there is no pod or workload team-0/nobody"),
        "{}",
        wrong.err
    );
}

#[test]
fn a_broken_item_is_named_by_its_index() {
    let mut text = text(DUMP);
    let at = text.rfind("\"containerPort\": 8080").unwrap();
    text.replace_range(at..at + 21, "\"containerPort\": 08080");
    let ran = World::of(&[("all.json", &text)]).run("validate", "");
    assert_eq!(ran.code, 1);
    assert!(
        ran.out
            .contains("items[701].spec.containers[0].ports[0]: the document is not JSON"),
        "{}",
        ran.out
    );
}
