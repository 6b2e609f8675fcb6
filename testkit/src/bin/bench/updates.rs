//! The smaller states in which single updates are timed.

use crate::parsed_objects::{
    BenchNamespace, BenchObject, BenchPeer, BenchPod, BenchPolicy, BenchRule, LabelTest,
};
use crate::states::{BenchInput, Families, ObjectGenerator, addresses, file, line};
use palisade_model::{Action, Prefix, Protocol};
use std::net::{IpAddr, Ipv4Addr};

const NAMESPACE: &str = "bench";

/// How many rules a policy has, where a state only asks for a number of rules.
const RULES: usize = 10;

fn namespace() -> BenchObject {
    BenchObject::Namespace(BenchNamespace {
        name: NAMESPACE.into(),
        labels: Vec::new(),
    })
}

/// A pod; the local one has an interface.
fn pod(number: usize, labels: Vec<(String, String)>, local: bool) -> BenchPod {
    BenchPod {
        namespace: NAMESPACE.into(),
        name: format!("pod-{number}"),
        labels,
        addresses: addresses(number, Families::Both),
        interface: local.then(|| "palbench0".to_owned()),
        node: if local {
            "here".into()
        } else {
            "node-1".into()
        },
    }
}

/// The endpoint that every policy of these states selects.
pub(crate) fn local() -> BenchObject {
    BenchObject::Pod(pod(9_000_000, vec![("role".into(), "bench".into())], true))
}

/// A policy over the local endpoint.
fn policy(number: usize, name: &str, ingress: Vec<BenchRule>) -> BenchPolicy {
    BenchPolicy {
        namespace: None,
        name: name.into(),
        tier: "default",
        file: file(number),
        line: line(number),
        subject: vec![LabelTest::Is("role".into(), "bench".into())],
        ingress: Some(ingress),
        egress: None,
    }
}

fn allow(tests: Vec<LabelTest>, ports: &[(Protocol, u16)]) -> BenchRule {
    BenchRule {
        action: Action::Allow,
        peer: BenchPeer::Labelled(tests),
        ports: ports.to_vec(),
    }
}

fn is(key: &str, value: String) -> LabelTest {
    LabelTest::Is(key.into(), value)
}

/// One local endpoint under policies with so many different selectors, and 1,000 other pods of 100
/// signatures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectorScenario(pub(crate) usize);

impl SelectorScenario {
    pub(crate) const PODS: usize = 1_000;
    const KINDS: usize = 100;

    pub(crate) fn input(self) -> BenchInput {
        BenchInput::of(vec![
            (1, Box::new(|_| namespace())),
            (
                self.0.div_ceil(RULES),
                Box::new(move |n| BenchObject::Policy(self.policy(n))),
            ),
            (Self::PODS, Box::new(move |n| self.pod(n, n))),
            (1, Box::new(|_| local())),
        ])
    }

    fn policy(self, number: usize) -> BenchPolicy {
        let selectors = (number * RULES..self.0).take(RULES);
        let rules = selectors.map(|i| allow(Self::selector(i), &[]));
        policy(number, &format!("allow-{number}"), rules.collect())
    }

    /// A third tests a value, a third two values, a third the presence of a key of its own.
    fn selector(number: usize) -> Vec<LabelTest> {
        match number % 3 {
            0 => vec![is("app", format!("app-{number}"))],
            1 => vec![
                is("app", format!("app-{number}")),
                is("tier", format!("tier-{}", number % 7)),
            ],
            _ => vec![LabelTest::Has(format!("feature-{number}"))],
        }
    }

    /// Pod `number` with the labels of kind `kind`: known as soon as each kind has a pod.
    pub(crate) fn pod(self, number: usize, kind: usize) -> BenchObject {
        let kind = kind % Self::KINDS;
        let selector = kind * self.0 / Self::KINDS;
        let feature = selector / 3 * 3 + 2;
        BenchObject::Pod(pod(
            number,
            vec![
                ("app".into(), format!("app-{selector}")),
                ("tier".into(), format!("tier-{}", selector % 7)),
                (format!("feature-{feature}"), "on".into()),
                ("instance".into(), format!("instance-{number}")),
            ],
            false,
        ))
    }

    /// How many different label combinations [`SelectorScenario::pod_with_new_labels`] has.
    pub(crate) fn new_label_combinations(self) -> usize {
        let features = self.0 / 3;
        (features * features.saturating_sub(1) / 2).min(200)
    }

    /// Pod `number` with a combination of labels that no pod ever had: two features at once, as no
    /// kind has.
    pub(crate) fn pod_with_new_labels(self, number: usize, novelty: usize) -> BenchObject {
        let features = self.0 / 3;
        let (mut first, mut rest) = (0, novelty);
        while rest >= features - 1 - first {
            rest -= features - 1 - first;
            first += 1;
        }
        let feature = |n: usize| (format!("feature-{}", n * 3 + 2), "on".to_owned());
        BenchObject::Pod(pod(
            number,
            vec![
                ("app".into(), format!("app-{}", novelty % self.0)),
                feature(first),
                feature(first + 1 + rest),
                ("instance".into(), format!("instance-{number}")),
            ],
            false,
        ))
    }
}

/// One local endpoint, so many others, and a policy that is edited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndpointScenario(pub(crate) usize);

impl EndpointScenario {
    pub(crate) const APPS: usize = 10;
    pub(crate) const TIERS: usize = 3;
    const RARE: usize = 1_000;
    /// How many labels there are of which half of all pods have each.
    const HALVES: usize = 4;

    pub(crate) fn input(self) -> BenchInput {
        let known = (0..Self::APPS).map(|n| is("app", format!("app-{n}")));
        let tiers = (0..Self::TIERS).map(|n| is("tier", format!("tier-{n}")));
        let standing: Vec<BenchRule> = known
            .chain(tiers)
            .enumerate()
            .map(|(n, test)| {
                let port = 8_000 + u16::try_from(n).unwrap_or(0);
                allow(vec![test], &[(Protocol::TCP, port)])
            })
            .collect();
        BenchInput::of(vec![
            (1, Box::new(|_| namespace())),
            (
                1,
                Box::new(move |_| BenchObject::Policy(policy(0, "standing", standing.clone()))),
            ),
            (1, Box::new(|_| Self::policy_with_known_tests(0))),
            (self.0, Box::new(Self::pod)),
            (1, Box::new(|_| local())),
        ])
    }

    /// Ten pods of each app, ten at most of each rare key.
    fn pod(number: usize) -> BenchObject {
        let mut labels = vec![
            ("app".into(), format!("app-{}", number / 10)),
            ("tier".into(), format!("tier-{}", number % 7)),
            ("instance".into(), format!("instance-{number}")),
        ];
        if number < 10 * Self::RARE {
            labels.push((format!("rare-{}", number % Self::RARE), "yes".into()));
        }
        let halves = (0..Self::HALVES).filter(|half| number >> half & 1 == 1);
        labels.extend(halves.map(|half| (format!("half-{half}"), "yes".into())));
        BenchObject::Pod(pod(number, labels, false))
    }

    /// The edited policy with a selector that half of all pods match, by a label that nothing tests
    /// before the edit.
    pub(crate) fn policy_matching_half(edit: usize) -> BenchObject {
        let key = LabelTest::Has(format!("half-{}", edit % Self::HALVES));
        let rule = allow(vec![key], &[(Protocol::TCP, 443)]);
        BenchObject::Policy(policy(1, "edited", vec![rule]))
    }

    /// The edited policy with a selector made of tests that the standing rules make already.
    pub(crate) fn policy_with_known_tests(edit: usize) -> BenchObject {
        let app = is("app", format!("app-{}", edit % Self::APPS));
        let tier = is("tier", format!("tier-{}", edit % Self::TIERS));
        let rule = allow(vec![app, tier], &[(Protocol::TCP, 443)]);
        BenchObject::Policy(policy(1, "edited", vec![rule]))
    }

    /// The edited policy with a key that no rule tests, and never tested.
    pub(crate) fn policy_with_new_key(edit: usize) -> BenchObject {
        let key = LabelTest::Has(format!("rare-{}", edit % Self::RARE));
        let rule = allow(vec![key], &[(Protocol::TCP, 443)]);
        BenchObject::Policy(policy(1, "edited", vec![rule]))
    }
}

/// What stands in a policy set that is computed when its one endpoint comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicySetScenario {
    /// 1,000 allowed networks.
    Cidrs,
    /// The same, with a denied network inside each, before them.
    CidrsWithDenies,
    /// 1,000 rules over labels, and pods of 2,997 identities.
    Labels,
    /// The same where another endpoint's policy distinguishes these identities already, so that the
    /// policy set alone is computed.
    KnownLabels,
}

impl PolicySetScenario {
    const COUNT: usize = 1_000;
    const ZONES: [&str; 3] = ["a", "b", "c"];

    /// Everything but the endpoint, which is [`local`].
    pub(crate) fn input(self) -> BenchInput {
        let pods = match self {
            PolicySetScenario::Labels | PolicySetScenario::KnownLabels => {
                Self::COUNT * Self::ZONES.len()
            }
            _ => 10,
        };
        let mut parts: Vec<(usize, ObjectGenerator)> = vec![
            (1, Box::new(|_| namespace())),
            (1, Box::new(move |_| BenchObject::Policy(self.policy()))),
            (pods, Box::new(Self::pod)),
        ];
        if self == PolicySetScenario::KnownLabels {
            let other = BenchPolicy {
                name: "of-another".into(),
                subject: vec![LabelTest::Is("role".into(), "another".into())],
                ..self.policy()
            };
            parts.push((1, Box::new(move |_| BenchObject::Policy(other.clone()))));
            parts.push((1, Box::new(|_| Self::another())));
        }
        BenchInput::of(parts)
    }

    fn policy(self) -> BenchPolicy {
        let net = |action, third: u8, n: usize, length| {
            let n = u16::try_from(n).unwrap_or(0).to_be_bytes();
            let address = IpAddr::V4(Ipv4Addr::new(172, n[0], n[1], third));
            BenchRule {
                action,
                peer: BenchPeer::Net(Prefix::new(address, length)),
                ports: vec![(Protocol::TCP, 8_000 + u16::from_be_bytes(n) % 10)],
            }
        };
        let allowed = (0..Self::COUNT).map(|n| net(Action::Allow, 0, n, 24));
        let denied = (0..Self::COUNT).map(|n| net(Action::Deny, 16, n, 28));
        let rules = match self {
            PolicySetScenario::Cidrs => allowed.collect(),
            PolicySetScenario::CidrsWithDenies => denied.chain(allowed).collect(),
            PolicySetScenario::Labels | PolicySetScenario::KnownLabels => {
                let apps = (0..Self::COUNT - 2).map(|n| is("app", format!("app-{n}")));
                let zones = Self::ZONES[..2].iter();
                let zones = zones.map(|zone| is("zone", (*zone).to_owned()));
                let tests = apps.chain(zones).enumerate();
                tests
                    .map(|(n, test)| {
                        let port = 8_000 + u16::try_from(n % 10).unwrap_or(0);
                        allow(vec![test], &[(Protocol::TCP, port)])
                    })
                    .collect()
            }
        };
        policy(0, "many-rules", rules)
    }

    /// A local endpoint that [`PolicySetScenario::policy`] does not select.
    fn another() -> BenchObject {
        let labels = vec![("role".into(), "another".into())];
        let pod = pod(9_000_001, labels, true);
        BenchObject::Pod(BenchPod {
            interface: Some("palbench1".to_owned()),
            ..pod
        })
    }

    fn pod(number: usize) -> BenchObject {
        let zone = Self::ZONES[number / Self::COUNT % Self::ZONES.len()];
        BenchObject::Pod(pod(
            number,
            vec![
                ("app".into(), format!("app-{}", number % Self::COUNT)),
                ("zone".into(), zone.into()),
            ],
            false,
        ))
    }
}
