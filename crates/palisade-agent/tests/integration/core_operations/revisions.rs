//! Which revision of a policy is in the kernel, since when, and how long that took.

use super::{Host, Ticking, add, core, synced};
use crate::requests::CoreRequests;
use palisade_agent::core::{Core, CoreEvent};
use palisade_api::PolicySummary;
use palisade_generators::line;
use palisade_model::{Object, ObjectKey, Policy, Update};
use palisade_node::clock::Clock;
use palisade_source::UpdateBatch;
use palisade_testkit::FakeDataplane;
use palisade_views::policies::policy_list;

/// A policy of a namespace that isolates every pod and allows this often everything.
fn policy(name: &str, rules: usize) -> Policy {
    line::policy(
        &format!("shop/{name}"),
        (0..rules).map(|_| line::rule("allow")),
    )
}

fn send(core: &mut Core, updates: Vec<Update>) {
    core.handle_event(CoreEvent::Source(UpdateBatch {
        detected_at: Some(Ticking::new().monotonic()),
        updates,
        in_sync: true,
        ..UpdateBatch::default()
    }));
}

fn realised(core: &mut Core, name: &str) -> (u64, Option<String>) {
    let mut policies = policy_list(&core.snapshot()).policies.into_iter();
    let found = policies.find(|summary| summary.policy.name == name);
    let PolicySummary {
        revision, since, ..
    } = found.unwrap();
    (revision, since)
}

/// The number of changes whose implementation delay was measured.
fn measured(core: &mut Core) -> u64 {
    let name = "palisade_policy_implementation_delay_seconds_count ";
    let text = core.collect_metrics().text();
    let count = text.lines().find_map(|line| line.strip_prefix(name));
    count.unwrap().parse().unwrap()
}

#[test]
fn a_policy_has_the_revision_that_brought_it_into_the_kernel_and_since_when() {
    let dir = tempfile::tempdir().unwrap();
    let dataplane = FakeDataplane::new();
    let mut core = core(dir.path(), &Host::with(&["web"]), &dataplane);
    synced(&mut core);
    core.add_workload(&add("web")).unwrap();
    assert_eq!(measured(&mut core), 0);
    let upsert = |name, rules| Update::Upsert(Object::Policy(policy(name, rules)));
    send(&mut core, vec![upsert("a", 0)]);
    let first = realised(&mut core, "a");
    assert_eq!((first.0, measured(&mut core)), (core.status().realised, 1));
    send(&mut core, vec![upsert("b", 0)]);
    assert_eq!(realised(&mut core, "a"), first, "another policy changed");
    let second = realised(&mut core, "b");
    assert!(second.0 > first.0 && second.1 >= first.1);

    // The kernel rejects the next version and its first retry: what is shown is not in force yet.
    dataplane.fail_next("no room");
    dataplane.fail_next("no room");
    send(&mut core, vec![upsert("a", 1)]);
    let refused = core.status();
    assert!(refused.realised < refused.revision);
    assert_eq!(
        realised(&mut core, "a"),
        (0, None),
        "its present version is not in the kernel"
    );
    assert_eq!(realised(&mut core, "b"), second);
    assert_eq!(core.endpoint_list().endpoints[0].revision, refused.realised);
    assert_eq!(measured(&mut core), 2);

    send(
        &mut core,
        vec![Update::Delete(ObjectKey::Policy(policy("b", 0).id))],
    );
    assert_eq!(core.status().realised, core.status().revision);
    assert_eq!(realised(&mut core, "a").0, core.status().realised);
    assert_eq!(
        measured(&mut core),
        4,
        "the delay of the rejected change ends here, too"
    );
}
