//! Objects as a parser leaves them, and their lowering to the model's own types.
//!
//! Writing one ([`BenchObject`], plain text and numbers) is outside the clock; [`BenchObject::lower`] is
//! inside. It does what a dialect does once a document is parsed: it makes every name, label and
//! selector a value of the model's, canonical and with provenance (file and line of each policy and
//! rule), and shares nothing between objects but the name of the file.

use palisade_model::{
    Action, DirectionRules, Endpoint, LabelKey, Labels, Namespace, Object, ObjectId, ObjectKind,
    Order, Peer, Policy, PolicyId, PolicyMode, PortMatch, PortRange, PortSpec, Precedence, Prefix,
    Protocol, Rule, RuleOrigin, Selector, SourceLine, Str, Tier, TierDefault, TrafficMatch,
    TrafficScope, Update, reserved,
};
use std::net::IpAddr;

/// One object, parsed.
#[derive(Clone, Debug)]
pub(crate) enum BenchObject {
    Tier(BenchTier),
    Namespace(BenchNamespace),
    Policy(BenchPolicy),
    Pod(BenchPod),
}

#[derive(Clone, Debug)]
pub(crate) struct BenchTier {
    pub(crate) name: &'static str,
    pub(crate) order: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct BenchNamespace {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct BenchPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) addresses: Vec<IpAddr>,
    /// What the agent adds for a pod of this host.
    pub(crate) interface: Option<String>,
    pub(crate) node: String,
}

#[derive(Clone, Debug)]
pub(crate) struct BenchPolicy {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) tier: &'static str,
    pub(crate) file: Str,
    pub(crate) line: u32,
    pub(crate) subject: Vec<LabelTest>,
    pub(crate) ingress: Option<Vec<BenchRule>>,
    pub(crate) egress: Option<Vec<BenchRule>>,
}

#[derive(Clone, Debug)]
pub(crate) struct BenchRule {
    pub(crate) action: Action,
    pub(crate) peer: BenchPeer,
    /// Any traffic where empty.
    pub(crate) ports: Vec<(Protocol, u16)>,
}

#[derive(Clone, Debug)]
pub(crate) enum BenchPeer {
    /// What has these labels, wherever it is.
    Labelled(Vec<LabelTest>),
    /// Pods of the policy's own namespace.
    SameNamespace,
    /// Pods of a namespace, by its name, with these labels.
    Pods(String, Vec<LabelTest>),
    /// A network.
    Net(Prefix),
}

/// A test of one label.
#[derive(Clone, Debug)]
pub(crate) enum LabelTest {
    Has(String),
    Is(String, String),
}

impl LabelTest {
    fn lower(&self) -> Selector {
        match self {
            LabelTest::Has(key) => Selector::has(LabelKey::own(&**key)),
            LabelTest::Is(key, value) => Selector::equals(LabelKey::own(&**key), &**value),
        }
    }
}

impl BenchObject {
    /// The object in the model's own types.
    pub(crate) fn lower(&self) -> Object {
        match self {
            BenchObject::Tier(tier) => Object::Tier(Tier {
                name: tier.name.into(),
                order: Order::from_number(tier.order),
                default: TierDefault::Pass,
            }),
            BenchObject::Namespace(namespace) => {
                let mut labels = labels(&namespace.labels);
                labels.insert(Namespace::NAME_LABEL.into(), (&*namespace.name).into());
                Object::Namespace(Namespace {
                    name: (&*namespace.name).into(),
                    labels,
                    audit: false,
                })
            }
            BenchObject::Policy(policy) => Object::Policy(policy.lower()),
            BenchObject::Pod(pod) => Object::Endpoint(pod.lower()),
        }
    }

    /// The object as an update.
    pub(crate) fn update(&self) -> Update {
        Update::Upsert(self.lower())
    }
}

impl BenchPod {
    fn lower(&self) -> Endpoint {
        Endpoint {
            labels: labels(&self.labels),
            service_account: Some("default".into()),
            node: Some((&*self.node).into()),
            interface: self.interface.as_deref().map(Into::into),
            addresses: self.addresses.clone(),
            ..Endpoint::pod(ObjectId {
                namespace: Some((&*self.namespace).into()),
                name: (&*self.name).into(),
                kind: ObjectKind::new("", "Pod"),
            })
        }
    }
}

impl BenchPolicy {
    fn lower(&self) -> Policy {
        let namespaced = self.namespace.is_some();
        let group = if namespaced {
            "networking.k8s.io"
        } else {
            "projectcalico.org"
        };
        let kind = if namespaced {
            "NetworkPolicy"
        } else {
            "GlobalNetworkPolicy"
        };
        let subject = self.subject.iter().map(LabelTest::lower);
        let mut line = self.line + 8;
        let mut rules = |rules: &Option<Vec<BenchRule>>| {
            let rules = rules.as_ref()?.iter().enumerate();
            Some(DirectionRules {
                default_deny: true,
                rules: rules
                    .map(|(index, rule)| {
                        line += 5;
                        self.rule(rule, index, line)
                    })
                    .collect(),
            })
        };
        Policy {
            scope: TrafficScope::Endpoints,
            observes_dns: false,
            id: PolicyId {
                object: ObjectId {
                    namespace: self.namespace.as_deref().map(Into::into),
                    name: (&*self.name).into(),
                    kind: ObjectKind::new(group, kind),
                },
                part: 0,
            },
            tier: self.tier.into(),
            precedence: Precedence {
                order: Order::from_number(1000.0),
                rank: 1,
            },
            mode: PolicyMode::Enforce,
            subject: match &self.namespace {
                Some(namespace) => pods_of(namespace, subject),
                None => Selector::and([workload()].into_iter().chain(subject)),
            },
            ingress: rules(&self.ingress),
            egress: rules(&self.egress),
            line: Some(SourceLine::new(self.file.clone(), self.line)),
        }
    }

    fn rule(&self, rule: &BenchRule, index: usize, line: u32) -> Rule {
        let own = self.namespace.as_deref().unwrap_or_default();
        let peer = match &rule.peer {
            BenchPeer::Labelled(tests) => {
                Peer::from_selector(Selector::and(tests.iter().map(LabelTest::lower)))
            }
            BenchPeer::SameNamespace => Peer::from_selector(pods_of(own, [])),
            BenchPeer::Pods(namespace, tests) => {
                let name =
                    Selector::equals(LabelKey::namespace(Namespace::NAME_LABEL), &**namespace);
                let of = [workload(), name].into_iter();
                Peer::from_selector(Selector::and(of.chain(tests.iter().map(LabelTest::lower))))
            }
            BenchPeer::Net(net) => Peer::net(*net, Vec::new()),
        };
        let traffic = match rule.ports.as_slice() {
            [] => vec![TrafficMatch::any()],
            ports => ports
                .iter()
                .map(|(protocol, port)| to(*protocol, *port))
                .collect(),
        };
        Rule {
            origin: RuleOrigin {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                name: None,
                fingerprint: 0,
                line: Some(SourceLine::new(self.file.clone(), line)),
            },
            action: rule.action,
            peers: vec![peer],
            local: None,
            traffic,
            dns_names: None,
        }
    }
}

fn to(protocol: Protocol, port: u16) -> TrafficMatch {
    let port = PortSpec::Range(PortRange::single(port));
    TrafficMatch::to_port(protocol, PortMatch::one_of([port]))
}

fn labels(written: &[(String, String)]) -> Labels {
    let pairs = written.iter();
    pairs
        .map(|(key, value)| ((&**key).into(), (&**value).into()))
        .collect()
}

fn workload() -> Selector {
    Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_WORKLOAD)
}

fn pods_of(namespace: &str, tests: impl IntoIterator<Item = Selector>) -> Selector {
    let own = Selector::equals(LabelKey::reserved(reserved::NAMESPACE), namespace);
    Selector::and([workload(), own].into_iter().chain(tests))
}
