//! Generates small random states over the whole model, with few labels and addresses, so that rules
//! match often.

use palisade_model::EndpointMetadata;
use palisade_model::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::net::IpAddr;

/// A random generator of parts of a state.
pub(crate) struct Dice(SmallRng);

/// The names that rules name.
const NAME_PATTERNS: [&str; 3] = ["a.x", "b.x", "*.x"];

const PORTS: [u16; 5] = [0, 53, 80, 443, 65535];

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(SmallRng::seed_from_u64(seed))
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one<T: Clone>(&mut self, list: &[T]) -> T {
        let index = self.below(list.len());
        list[index].clone()
    }

    fn some<T>(&mut self, percent: usize, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.chance(percent).then(|| make(self))
    }

    fn many<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| make(self)).collect()
    }

    pub(crate) fn address(&mut self) -> IpAddr {
        let last = self.below(16);
        match self.below(3) {
            0 => format!("fd00::{last:x}").parse().unwrap(),
            1 => format!("10.0.{}.{last}", self.below(2)).parse().unwrap(),
            _ => format!("192.0.2.{last}").parse().unwrap(),
        }
    }

    fn prefix(&mut self) -> Prefix {
        let address = self.address();
        let bits = Family::of(address).bits();
        let lengths = [0, bits - 16, bits - 8, bits - 3, bits - 2, bits - 1, bits];
        Prefix::new(address, self.one(&lengths))
    }

    pub(crate) fn traffic(&mut self) -> (Protocol, L4) {
        let protocol = self.protocol();
        let near = |dice: &mut Self| dice.one(&[0, 52, 53, 54, 79, 80, 81, 100, 443, 8080, 65535]);
        let l4 = if protocol.has_ports() {
            L4::Ports {
                source: near(self),
                destination: near(self),
            }
        } else if protocol.is_icmp() {
            L4::Icmp {
                kind: self.one(&[0, 3, 8, 128, 255]),
                code: self.one(&[0, 1, 4]),
            }
        } else {
            L4::None
        };
        (protocol, l4)
    }

    fn protocol(&mut self) -> Protocol {
        self.one(&[6, 6, 17, 132, 1, 58, 47, 255].map(Protocol))
    }

    fn word(&mut self, words: &[&str]) -> Str {
        self.one(words).into()
    }

    fn labels(&mut self) -> Labels {
        let pairs = self.many(2, |d| (d.word(&["app", "tier"]), d.word(&["a", "b"])));
        pairs.into_iter().collect()
    }

    fn key(&mut self) -> LabelKey {
        match self.below(8) {
            0 => LabelKey::namespace("env"),
            1 => LabelKey::reserved(reserved::NAMESPACE),
            2 => LabelKey::reserved(reserved::KIND),
            _ => LabelKey::own(self.word(&["app", "tier"])),
        }
    }

    fn selector(&mut self) -> Selector {
        let values = ["a", "b", "x", "y", "workload", "networkset"];
        match self.below(9) {
            0 => Selector::all(),
            1 => Selector::negate(self.selector()),
            2 => Selector::and([self.selector(), self.selector()]),
            3 => Selector::or([self.selector(), self.selector()]),
            4 | 5 => Selector::has(self.key()),
            _ => {
                let key = self.key();
                Selector::equals(key, self.word(&values))
            }
        }
    }

    fn peer(&mut self) -> Peer {
        Peer {
            selector: self.some(45, Self::selector),
            not_selector: self.some(10, Self::selector),
            nets: self.some(30, |d| d.many(2, Self::prefix)),
            not_nets: if self.chance(20) {
                self.many(2, Self::prefix)
            } else {
                Vec::new()
            },
        }
    }

    fn ports(&mut self) -> PortMatch {
        let spec = |d: &mut Self| {
            if d.chance(30) {
                return PortSpec::Named(d.word(&["http", "dns"]));
            }
            let (a, b) = (d.one(&PORTS), d.one(&PORTS));
            PortSpec::Range(PortRange::new(a, b).unwrap_or(PortRange::single(a)))
        };
        PortMatch {
            any_of: self.some(70, |d| d.many(2, spec)),
            not: if self.chance(20) {
                self.many(2, spec)
            } else {
                Vec::new()
            },
        }
    }

    fn icmp(&mut self) -> IcmpMatch {
        IcmpMatch {
            kind: self.one(&[0, 3, 8, 128]),
            code: self.some(50, |d| d.one(&[0, 1, 4])),
        }
    }

    fn term(&mut self) -> TrafficMatch {
        TrafficMatch {
            family: self.some(15, |d| d.one(&Family::BOTH)),
            protocol: self.some(50, Self::protocol),
            not_protocols: self.some(10, Self::protocol).into_iter().collect(),
            destination: if self.chance(40) {
                self.ports()
            } else {
                PortMatch::any()
            },
            source: if self.chance(12) {
                self.ports()
            } else {
                PortMatch::any()
            },
            icmp: self.some(8, Self::icmp),
            not_icmp: self.some(6, Self::icmp),
        }
    }

    fn rule(&mut self, index: usize) -> Rule {
        let actions = [
            Action::Allow,
            Action::Allow,
            Action::Allow,
            Action::Deny,
            Action::Pass,
            Action::Log,
        ];
        Rule {
            origin: RuleOrigin {
                index: u32::try_from(index).unwrap(),
                name: None,
                fingerprint: 0,
                line: None,
            },
            action: self.one(&actions),
            peers: (0..=self.below(2)).map(|_| self.peer()).collect(),
            local: self.some(8, Self::peer),
            traffic: (0..=self.below(2)).map(|_| self.term()).collect(),
            dns_names: None,
        }
    }

    fn rules(&mut self) -> Vec<Rule> {
        let count = self.below(4);
        (0..count).map(|index| self.rule(index)).collect()
    }

    fn id(&mut self, kind: &str, name: String) -> ObjectId {
        ObjectId {
            namespace: Some(self.word(&["x", "y"])),
            name: name.as_str().into(),
            kind: ObjectKind::new("", kind),
        }
    }

    fn policy(&mut self, number: usize) -> Policy {
        let rules = |d: &mut Self| DirectionRules {
            default_deny: d.chance(60),
            rules: d.rules(),
        };
        let policy = Policy {
            scope: TrafficScope::Endpoints,
            observes_dns: false,
            id: PolicyId {
                object: self.id("NetworkPolicy", format!("p{number}")),
                part: 0,
            },
            tier: self.word(&[
                tier_name::DEFAULT,
                tier_name::KUBE_ADMIN,
                tier_name::KUBE_BASELINE,
                "gone",
            ]),
            mode: PolicyMode::Enforce,
            precedence: Precedence {
                order: self.one(&[
                    Order::from_number(1.0),
                    Order::from_number(1000.0),
                    Order::Last,
                ]),
                rank: 0,
            },
            subject: self.selector(),
            ingress: self.some(65, rules),
            egress: self.some(65, rules),
            line: None,
        };
        self.named(policy)
    }

    /// The policy, often with rules by name. Draws nothing from the shared sequence.
    fn named(&self, mut policy: Policy) -> Policy {
        let mut dice = Dice(self.0.clone());
        policy.observes_dns = dice.chance(15);
        for list in [&mut policy.ingress, &mut policy.egress]
            .into_iter()
            .flatten()
        {
            dice.name(&mut list.rules);
        }
        policy
    }

    /// Makes some rules decide DNS queries by name, and gives some a peer by name.
    fn name(&mut self, rules: &mut [Rule]) {
        let pattern = |d: &mut Self| d.one(&NAME_PATTERNS.map(|t| DomainPattern::glob(t).unwrap()));
        for rule in rules.iter_mut().filter(|r| r.action == Action::Allow) {
            if self.chance(18) {
                rule.dns_names = Some(self.many(2, pattern).into_iter().collect());
            }
            if self.chance(18) {
                let key = LabelKey::reserved(reserved::DOMAIN);
                let selector = Selector::domain(key, pattern(self));
                rule.peers.push(Peer::from_selector(selector));
            }
        }
    }

    /// The addresses of a name.
    fn name_set(&mut self) -> NetworkSet {
        let name: DomainName = self.one(&["a.x", "b.x"]).parse().unwrap();
        NetworkSet {
            id: name.network_set_id(),
            kind: NetworkSetKind::DomainName,
            labels: Labels::new(),
            nets: self.many(2, |d| Prefix::host(d.address())),
        }
    }

    fn endpoint(&mut self, number: usize) -> Endpoint {
        let names = ["http", "dns"];
        let owner = |d: &mut Self| Owner {
            kind: "ReplicaSet".into(),
            name: d.word(&["r", "s"]),
        };
        let id = self.id("Pod", format!("e{number}"));
        let kind = if self.chance(8) {
            EndpointKind::HostInterface
        } else {
            EndpointKind::POD
        };
        Endpoint {
            kind,
            labels: self.labels(),
            interface: self.some(30, |_| format!("pal{number}").as_str().into()),
            addresses: if self.chance(25) {
                Vec::new()
            } else {
                self.many(3, Self::address)
            },
            ports: self.many(2, |d| NamedPort {
                name: d.word(&names),
                protocol: d.one(&Protocol::WITH_PORTS),
                port: d.one(&PORTS),
            }),
            profiles: match self.below(8) {
                0 => vec!["made".into(), Profile::ALLOW_ALL.into()],
                1 => vec!["gone".into()],
                _ => vec![Profile::ALLOW_ALL.into()],
            },
            created: self.0.random_range(0..3),
            metadata: EndpointMetadata {
                owner: self.some(50, owner),
                uid: None,
            },
            ..Endpoint::pod(id)
        }
    }

    fn network_set(&mut self, number: usize) -> NetworkSet {
        NetworkSet {
            id: self.id("NetworkSet", format!("n{number}")),
            kind: NetworkSetKind::NetworkSet,
            labels: self.labels(),
            nets: self.many(2, Self::prefix),
        }
    }

    pub(crate) fn state(&mut self) -> State {
        let mut objects = Vec::new();
        for number in 0..2 + self.below(6) {
            objects.push(Object::Endpoint(self.endpoint(number)));
        }
        for number in 0..self.below(6) {
            objects.push(Object::Policy(self.policy(number)));
        }
        for number in 0..self.below(3) {
            objects.push(Object::NetworkSet(self.network_set(number)));
        }
        for name in ["x", "y"] {
            let mut namespace = Namespace::from_name(name.into());
            namespace
                .labels
                .insert("env".into(), self.word(&["a", "b"]));
            objects.push(Object::Namespace(namespace));
        }
        objects.push(Object::Node(Node {
            name: "node".into(),
            labels: self.labels(),
            addresses: vec![self.address()],
            internal_addresses: Vec::new(),
            pod_networks: Vec::new(),
            audit: false,
        }));
        let mut profile = Profile {
            name: "made".into(),
            ingress: self.rules(),
            egress: self.rules(),
            labels_to_apply: Default::default(),
        };
        let mut dice = Dice(self.0.clone());
        dice.name(&mut profile.egress);
        objects.push(Object::Profile(profile));
        if dice.chance(50) {
            objects.push(Object::NetworkSet(dice.name_set()));
        }
        State::from_updates(objects.into_iter().map(Update::Upsert))
    }

    /// The state with a few of its objects replaced, removed or added.
    pub(crate) fn edited(&mut self, old: &State) -> State {
        let mut new = old.clone();
        for _ in 0..=self.below(3) {
            let number = self.below(7);
            match self.below(6) {
                0 => drop(new.policies.pop_first()),
                1 => new.apply(Update::Upsert(Object::Endpoint(self.endpoint(number)))),
                2 => new.apply(Update::Upsert(Object::NetworkSet(self.network_set(number)))),
                _ => new.apply(Update::Upsert(Object::Policy(self.policy(number)))),
            }
        }
        new
    }
}

/// Puts some policies and endpoints of a state in audit, by dice of their own.
pub(crate) fn put_in_audit(state: &mut State, seed: u64) {
    let mut dice = Dice::new(seed ^ 0x6175_6469_7400);
    for policy in state.policies.values_mut() {
        policy.mode = dice.one(&[PolicyMode::Enforce, PolicyMode::Enforce, PolicyMode::Audit]);
    }
    for endpoint in state.endpoints.values_mut() {
        endpoint.audit = dice.below(10) == 0;
    }
}
