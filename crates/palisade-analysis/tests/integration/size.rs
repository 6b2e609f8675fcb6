//! The size of the grouped output depends on the number of workload classes, not of pods.

use crate::build::*;
use palisade_analysis::{connections, diff};
use palisade_model::Action::Allow;
use palisade_model::*;

/// 500 pods of 100 owners in 20 namespaces, 200 policies.
fn cluster() -> State {
    let mut objects = Vec::new();
    for n in 0..500 {
        let (namespace, app) = (n % 20, n % 100);
        let address = format!("10.{}.{}.{} fd00::{n:x}", namespace, n / 250, n % 250 + 1);
        let mut pod = pod(
            &format!("ns{namespace}/app{app}-{n}"),
            &address,
            &format!("app={app},id={n}"),
        );
        pod.metadata.owner = Some(Owner {
            kind: "ReplicaSet".into(),
            name: format!("app{app}").as_str().into(),
        });
        objects.push(Object::Endpoint(pod));
    }
    for n in 0..200u16 {
        let (app, client) = (n % 100, (n * 7 + 3 + n / 100) % 100);
        let subject = format!("app={app}");
        let mut rule = from(Allow, Peer::from_selector(sel(&format!("app={client}"))));
        rule.traffic = vec![tcp(80), tcp(1000 + n)];
        let outside = from(Allow, Peer::net(net(&format!("198.51.{n}.0/24")), vec![]));
        objects.push(Object::Policy(policy(
            &format!("ns{}/p{n}", app % 20),
            &subject,
            vec![rule, outside],
        )));
    }
    state(objects)
}

#[test]
fn a_cluster_is_answered_whole() {
    let state = cluster();
    let listed = connections(&state);
    // Every app accepts from two apps and from two networks; two apps accept from themselves.
    let between = listed.iter().filter(|c| !shown_outside(c)).count();
    assert_eq!(between, 198);
    let inward = listed
        .iter()
        .filter(|c| matches!(c.src, palisade_analysis::ConnectionEnd::Outside(_)))
        .count();
    assert_eq!(inward, 200);
    assert!(diff(&state, &state).is_empty());
}

fn shown_outside(c: &palisade_analysis::Connection) -> bool {
    format!("{}{}", c.src, c.dst).contains("outside")
}
