//! From the creation of a pod's interface until ADD returns, no packet passes that its policy would deny,
//! with senders running in both directions; afterwards allowed packets pass.

use super::World;
use crate::plugin::pod;
use palisade_testkit::lab::{NodeId, Spray, SprayKind};
use palisade_testkit::need_root;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 20;
const PACE: Duration = Duration::from_micros(50);

/// Isolates api both ways: from and to web, port 7 alone.
const POLICY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
    metadata: {name: api, namespace: shop}\nspec:\n  podSelector: {matchLabels: {app: api}}\n  \
    policyTypes: [Ingress, Egress]\n  \
    ingress:\n  - from: [{podSelector: {matchLabels: {app: web}}}]\n    ports: [{port: 7, protocol: UDP}]\n  \
    egress:\n  - to: [{podSelector: {matchLabels: {app: web}}}]\n    ports: [{port: 7, protocol: UDP}]\n";

#[test]
fn nothing_passes_before_the_policy_does() {
    if !need_root() {
        return;
    }
    let mut world = World::open("silence");
    let (web, _, web_addresses) = world.pod("web");
    world.agent.apply("api-pod.yaml", &pod("api", "api"));
    world.agent.apply("policy.yaml", POLICY);
    let (api, container) = world.sandbox("api");
    let own: IpAddr = "10.245.0.77".parse().unwrap();
    let peer: IpAddr = web_addresses[0].parse().unwrap();
    let runtime = world.runtime.with("runtimeConfig", json!({"ips": [own]}));
    let lab = &world.lab;
    let spray = |from: (NodeId, IpAddr), (node, address): (NodeId, IpAddr), port| {
        let to = (node, SocketAddr::new(address, port));
        Spray::start(lab, from, to, SprayKind::Udp, PACE).unwrap()
    };
    let denied = [
        spray((web, peer), (api, own), 9),
        spray((api, own), (web, peer), 9),
    ];
    let allowed = [
        spray((web, peer), (api, own), 7),
        spray((api, own), (web, peer), 7),
    ];
    let (mut during, mut longest) = ([0; 2], Duration::ZERO);
    for round in 0..ROUNDS {
        let before = [denied[0].sent(), denied[1].sent()];
        let began = Instant::now();
        runtime.ok("ADD", Some(&container));
        longest = longest.max(began.elapsed());
        for (at, spray) in denied.iter().enumerate() {
            during[at] += spray.sent() - before[at];
        }
        let came = [allowed[0].counts().arrived, allowed[1].counts().arrived];
        let began = Instant::now();
        while allowed
            .iter()
            .zip(came)
            .any(|(s, n)| s.counts().arrived < n + 20)
        {
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "round {round}: what is allowed does not pass\n{}",
                world.agent.log()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        runtime.ok("DEL", Some(&container));
    }
    let passed: Vec<u64> = denied.iter().map(|spray| spray.counts().arrived).collect();
    println!(
        "silence: {ROUNDS} ADDs, the longest {longest:?}; {} denied packets to the pod and {} from it \
         were sent meanwhile, {passed:?} passed; of allowed ones {} and {} came",
        during[0],
        during[1],
        allowed[0].counts().arrived,
        allowed[1].counts().arrived
    );
    assert_eq!(passed, [0, 0]);
    // The pod's own sender has an interface only for part of the time.
    assert!(during[0] > 1000 && during[1] > 0, "{during:?}");
}
