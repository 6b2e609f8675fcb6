//! Makes a failing world smaller while it still fails in the same way.

use super::StageFailure;
use palisade_generators::kubernetes::ClusterWorld;
use palisade_model::{
    Direction, Flow, Object, Peer, Policy, Selector, State, TrafficMatch, Update,
};
use serde_json::Value;

/// How many smaller worlds are tried before the result is good enough.
const PATIENCE: u32 = 4_000;

/// The smallest world found that fails at the same stage, with how it fails.
pub(crate) fn shrink<W>(
    world: W,
    failure: StageFailure,
    smaller: impl Fn(&W) -> Vec<W>,
    fails: impl Fn(&W) -> Option<StageFailure>,
) -> (W, StageFailure) {
    let (mut world, mut failure) = (world, failure);
    let mut left = PATIENCE;
    'again: loop {
        for candidate in smaller(&world) {
            left = left.saturating_sub(1);
            if left == 0 {
                break 'again;
            }
            if let Some(found) = fails(&candidate).filter(|found| found.stage == failure.stage) {
                (world, failure) = (candidate, found);
                continue 'again;
            }
        }
        break;
    }
    (world, failure)
}

/// A Kubernetes world with one thing less: an object, or any field or item inside one.
pub(crate) fn smaller_clusters(world: &ClusterWorld) -> Vec<ClusterWorld> {
    let mut all = Vec::new();
    for index in 0..world.trials.len() {
        let mut one = world.clone();
        one.trials = vec![world.trials[index].clone()];
        if world.trials.len() > 1 {
            all.push(one);
        }
    }
    for index in 0..world.made.len() {
        let mut one = world.clone();
        one.made.remove(index);
        all.push(one);
    }
    for (index, made) in world.made.iter().enumerate() {
        for object in smaller_values(&made.object) {
            let mut one = world.clone();
            one.made[index].object = object;
            all.push(one);
        }
    }
    all
}

/// A value with one field or item less, outermost first; what names an object stays.
fn smaller_values(value: &Value) -> Vec<Value> {
    const KEPT: [&str; 4] = ["apiVersion", "kind", "name", "namespace"];
    let mut all = Vec::new();
    match value {
        Value::Object(fields) => {
            for name in fields.keys().filter(|name| !KEPT.contains(&name.as_str())) {
                let mut less = fields.clone();
                less.shift_remove(name);
                all.push(Value::Object(less));
            }
            for (name, field) in fields {
                for smaller in smaller_values(field) {
                    let mut less = fields.clone();
                    less.insert(name.clone(), smaller);
                    all.push(Value::Object(less));
                }
            }
        }
        Value::Array(items) => {
            for index in 0..items.len() {
                let mut less = items.clone();
                less.remove(index);
                all.push(Value::Array(less));
            }
            for (index, item) in items.iter().enumerate() {
                for smaller in smaller_values(item) {
                    let mut less = items.clone();
                    less[index] = smaller;
                    all.push(Value::Array(less));
                }
            }
        }
        _ => {}
    }
    all
}

/// A state and its flows with one thing less.
pub(crate) fn smaller_states((state, flows): &(State, Vec<Flow>)) -> Vec<(State, Vec<Flow>)> {
    let mut all = Vec::new();
    if flows.len() > 1 {
        all.extend(flows.iter().map(|flow| (state.clone(), vec![*flow])));
    }
    let with = |update: Update| {
        let mut changed = state.clone();
        changed.apply(update);
        (changed, flows.clone())
    };
    for object in state.objects() {
        all.push(with(Update::Delete(object.key())));
    }
    for policy in state.policies.values() {
        let smaller = smaller_policies(policy);
        all.extend(
            smaller
                .into_iter()
                .map(|p| with(Update::Upsert(Object::Policy(p)))),
        );
    }
    for endpoint in state.endpoints.values() {
        let mut put = |change: &dyn Fn(&mut palisade_model::Endpoint)| {
            let mut less = endpoint.clone();
            change(&mut less);
            if less != *endpoint {
                all.push(with(Update::Upsert(Object::Endpoint(less))));
            }
        };
        put(&|e| {
            e.addresses.pop();
        });
        put(&|e| e.addresses.truncate(1));
        put(&|e| e.labels = palisade_model::Labels::new());
        put(&|e| e.ports.clear());
        put(&|e| e.profiles = vec![palisade_model::Profile::ALLOW_ALL.into()]);
        put(&|e| e.interface = None);
    }
    all
}

fn smaller_policies(policy: &Policy) -> Vec<Policy> {
    let mut all = Vec::new();
    let mut put = |change: &dyn Fn(&mut Policy)| {
        let mut less = policy.clone();
        change(&mut less);
        if less != *policy {
            all.push(less);
        }
    };
    put(&|p| p.ingress = None);
    put(&|p| p.egress = None);
    put(&|p| p.subject = Selector::all());
    put(&|p| p.observes_dns = false);
    for direction in Direction::BOTH {
        let count = policy.rules(direction).map_or(0, |rules| rules.rules.len());
        for index in 0..count {
            put(&|p| {
                if let Some(rules) = rules_mut(p, direction) {
                    rules.remove(index);
                }
            });
        }
        for index in 0..count {
            let mut put = |change: &dyn Fn(&mut palisade_model::Rule)| {
                put(&|p| {
                    if let Some(rules) = rules_mut(p, direction) {
                        change(&mut rules[index]);
                    }
                });
            };
            put(&|rule| rule.local = None);
            put(&|rule| rule.dns_names = None);
            put(&|rule| rule.peers = vec![Peer::any()]);
            put(&|rule| rule.traffic = vec![TrafficMatch::any()]);
            put(&|rule| rule.peers.truncate(1));
            put(&|rule| rule.traffic.truncate(1));
            for part in 0..6 {
                put(&|rule| {
                    rule.peers
                        .iter_mut()
                        .for_each(|peer| simplify_peer(peer, part))
                });
                put(&|rule| {
                    rule.traffic
                        .iter_mut()
                        .for_each(|t| simplify_traffic(t, part))
                });
            }
        }
    }
    all
}

fn rules_mut(policy: &mut Policy, direction: Direction) -> Option<&mut Vec<palisade_model::Rule>> {
    let rules = match direction {
        Direction::Ingress => policy.ingress.as_mut(),
        Direction::Egress => policy.egress.as_mut(),
    };
    rules.map(|rules| &mut rules.rules)
}

fn simplify_peer(peer: &mut Peer, part: u32) {
    match part {
        0 => peer.selector = None,
        1 => peer.not_selector = None,
        2 => peer.nets = None,
        3 => peer.not_nets.clear(),
        4 => {
            peer.nets.as_mut().and_then(Vec::pop);
        }
        _ => {
            peer.not_nets.pop();
        }
    }
}

fn simplify_traffic(traffic: &mut TrafficMatch, part: u32) {
    match part {
        0 => traffic.family = None,
        1 => traffic.not_protocols.clear(),
        2 => traffic.destination = Default::default(),
        3 => traffic.source = Default::default(),
        4 => (traffic.icmp, traffic.not_icmp) = (None, None),
        _ => traffic.protocol = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_what_matters() {
        let fails = |w: &Vec<u32>| {
            (w.contains(&3) && w.contains(&5)).then(|| StageFailure::new("both", "3 and 5"))
        };
        let smaller = |w: &Vec<u32>| {
            (0..w.len())
                .map(|i| {
                    let mut less = w.clone();
                    less.remove(i);
                    less
                })
                .collect()
        };
        let failure = StageFailure::new("both", "");
        let (world, failure) = shrink((0..9).collect(), failure, smaller, fails);
        assert_eq!(world, [3, 5]);
        assert_eq!(failure.detail, "3 and 5");
    }

    #[test]
    fn values_lose_one_thing_at_a_time() {
        let value = serde_json::json!({ "kind": "Pod", "spec": { "a": [1, 2] } });
        let all: Vec<String> = smaller_values(&value)
            .iter()
            .map(Value::to_string)
            .collect();
        assert_eq!(
            all,
            [
                r#"{"kind":"Pod"}"#,
                r#"{"kind":"Pod","spec":{}}"#,
                r#"{"kind":"Pod","spec":{"a":[2]}}"#,
                r#"{"kind":"Pod","spec":{"a":[1]}}"#,
            ]
        );
    }
}
