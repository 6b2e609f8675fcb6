//! Policy APIs that have to be installed: they come and go while the server is followed.

use super::running_source::{RunningSource, Seen, names, shop};
use serde_json::{Value, json};

const ADMIN_POLICIES: &str = "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies";

fn admin_policy(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "priority": 10,
            "subject": {"namespaces": {}},
            "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}],
        },
    })
}

/// Whether an object of this name is in force.
fn is_in_force(seen: &Seen, name: &str) -> bool {
    names(&seen.state).iter().any(|other| other.ends_with(name))
}

#[test]
fn a_policy_api_may_come_later_and_go() {
    let server = shop();
    let follower = RunningSource::start(&server);
    let absent = |seen: &Seen| seen.report.sources[0].absent().len();
    let seen = follower.wait("in sync without the API", |seen| {
        seen.in_sync && absent(seen) == 3
    });
    assert_eq!(seen.report.sources[0].stale, None);

    server.put(ADMIN_POLICIES, admin_policy("admin"));
    server.set_installed(ADMIN_POLICIES, true);
    follower.wait("the API has come", |seen| {
        absent(seen) == 2 && is_in_force(seen, "admin")
    });

    server.set_installed(ADMIN_POLICIES, false);
    server.cut_connections();
    let seen = follower.wait("the API has gone", |seen| absent(seen) == 3);
    assert!(is_in_force(&seen, "admin"));
    let reason = &seen.report.sources[0].stale.as_ref().unwrap().reason;
    assert_eq!(
        reason,
        "adminnetworkpolicies.policy.networking.k8s.io: the API server does not have this API any more; its \
         object stays in force"
    );
    assert!(
        names(&seen.state)
            .iter()
            .any(|name| name.ends_with("shop/deny"))
    );

    // Back again without the object: a complete list says that it is gone.
    server.set_installed(ADMIN_POLICIES, true);
    let seen = follower.wait("the API is back", |seen| absent(seen) == 2);
    assert!(!is_in_force(&seen, "admin"));
    assert_eq!(seen.report.sources[0].stale, None);
}
