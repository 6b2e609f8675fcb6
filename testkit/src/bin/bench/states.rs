//! The two big states of the start benches: one with many shared labels, one with many tenants.
//!
//! Both are functions from a number to an object, so that a snapshot can be streamed and dropped as
//! an agent's source does, and the same objects made again for the oracle.

use crate::parsed_objects::{
    BenchNamespace, BenchObject, BenchPeer, BenchPod, BenchPolicy, BenchRule, BenchTier, LabelTest,
};
use crate::stopwatch::Stopwatch;
use palisade_model::{Action, Prefix, Protocol, Str, Update};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many objects are parsed ahead of the engine.
const AHEAD: usize = 1_000;

/// Which families pods have an address of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    V4,
    Both,
}

/// A whole input, by number.
pub(crate) struct BenchInput {
    parts: Vec<(usize, ObjectGenerator)>,
}

/// Makes the object of a number.
pub(crate) type ObjectGenerator = Box<dyn Fn(usize) -> BenchObject>;

impl BenchInput {
    /// An input of these parts: how many objects, and what each is.
    pub(crate) fn of(parts: Vec<(usize, ObjectGenerator)>) -> Self {
        BenchInput { parts }
    }

    /// Every object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = BenchObject> + '_ {
        let parts = self.parts.iter();
        parts.flat_map(|(count, part)| (0..*count).map(part))
    }

    /// Every object as an update, lowered one by one as they are asked for; parsing is kept out of
    /// the time of `watch`.
    pub(crate) fn updates<'a>(&'a self, watch: &'a Stopwatch) -> impl Iterator<Item = Update> + 'a {
        let mut objects = self.objects();
        let mut chunk: Vec<BenchObject> = Vec::new();
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == chunk.len() {
                watch.exclude(|| {
                    chunk.clear();
                    chunk.extend(objects.by_ref().take(AHEAD));
                });
                at = 0;
            }
            let written = chunk.get(at)?;
            at += 1;
            Some(written.update())
        })
    }
}

/// A number of things at a scale: never fewer than one.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts far below 2^52, scaled by a positive factor"
)]
pub(crate) fn scaled(count: usize, scale: f64) -> usize {
    ((count as f64 * scale) as usize).max(1)
}

/// The addresses of pod number `pod`.
pub(crate) fn addresses(pod: usize, families: Families) -> Vec<IpAddr> {
    let host = u32::try_from(pod).unwrap_or(u32::MAX - 0x0a00_0001);
    let v4 = IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + host));
    let v6 = Ipv6Addr::from(0xfd00_0000_0000_0000_0000_0000_0000_0001 + u128::from(host));
    match families {
        Families::V4 => vec![v4],
        Families::Both => vec![v4, IpAddr::V6(v6)],
    }
}

/// A file name for each hundred policies.
pub(crate) fn file(policy: usize) -> Str {
    format!("policies/{:03}.yaml", policy / 100).into()
}

pub(crate) fn line(policy: usize) -> u32 {
    u32::try_from(policy % 100).unwrap_or(0) * 60 + 1
}

/// The host-side interface of a local pod.
fn interface(pod: usize) -> String {
    format!("pal{pod:08x}")
}

/// Whether every so-many-th pod falls on `pod`, where `local` of `pods` are local.
fn is_spread_local(pod: usize, pods: usize, local: usize) -> bool {
    let stride = (pods / local).max(1);
    pod.is_multiple_of(stride) && pod / stride < local
}

/// Many endpoints with shared labels, many policies of `has()` selectors.
pub(crate) mod tags {
    use super::{
        Action, BenchInput, BenchNamespace, BenchObject, BenchPeer, BenchPod, BenchPolicy,
        BenchRule, BenchTier, Families, LabelTest, Protocol, addresses, file, interface, line,
        scaled,
    };

    /// How many of the pods are local: the last ones, so that every tag is among them.
    const LOCAL: usize = 200;
    /// How many tags there are; each pod has one.
    const TAGS: usize = 30;
    const NAMESPACES: usize = 100;
    const SPREADS: [usize; 5] = [10, 11, 20, 30, 40];

    /// 250,000 pods (200 local) in 100 namespaces with six labels each, and 10,000 policies of five
    /// rules, in two tiers.
    pub(crate) fn input(scale: f64, families: Families) -> BenchInput {
        let pods = pods(scale);
        BenchInput::of(vec![
            (1, Box::new(|_| BenchObject::Tier(tier()))),
            (
                NAMESPACES,
                Box::new(|n| BenchObject::Namespace(namespace(n))),
            ),
            (
                policies(scale),
                Box::new(|n| BenchObject::Policy(policy(n, 0))),
            ),
            (
                pods,
                Box::new(move |n| BenchObject::Pod(pod(n, n, pods, families))),
            ),
        ])
    }

    pub(crate) fn pods(scale: f64) -> usize {
        scaled(250_000, scale)
    }

    pub(crate) fn policies(scale: f64) -> usize {
        scaled(10_000, scale)
    }

    fn tier() -> BenchTier {
        BenchTier {
            name: "security",
            order: 100.0,
        }
    }

    fn namespace(number: usize) -> BenchNamespace {
        BenchNamespace {
            name: format!("namespace-{number}"),
            labels: vec![
                ("team".into(), format!("team-{}", number % 7)),
                ("stage".into(), format!("stage-{}", number % 3)),
            ],
        }
    }

    fn tag(number: usize) -> String {
        format!("tag-{:02}", number % TAGS)
    }

    /// Pod `number` with the labels of pod `like`.
    pub(crate) fn pod(number: usize, like: usize, pods: usize, families: Families) -> BenchPod {
        let spread = SPREADS.map(|n| (format!("one-in-{n}"), format!("value-{}", like % n)));
        let local = number < pods && number + LOCAL >= pods;
        BenchPod {
            namespace: format!("namespace-{}", number % NAMESPACES),
            name: format!("pod-{number}"),
            labels: spread
                .into_iter()
                .chain([(tag(like), "true".to_owned())])
                .collect(),
            addresses: addresses(number, families),
            node: if local {
                "here".into()
            } else {
                format!("node-{}", number % 1000)
            },
            interface: local.then(|| interface(number)),
        }
    }

    /// Policy `number` with five rules and `more` after them. Every tenth stands in a tier of its
    /// own, where it denies one tag a port and passes on the others.
    pub(crate) fn policy(number: usize, more: usize) -> BenchPolicy {
        let security = number % 10 == 9;
        let rules = (0..5).map(|k| BenchRule {
            action: match (security, k) {
                (false, _) => Action::Allow,
                (true, 0) => Action::Deny,
                (true, _) => Action::Pass,
            },
            peer: BenchPeer::Labelled(vec![LabelTest::Has(tag(number + k))]),
            ports: match (security, k) {
                (true, 0) => vec![(Protocol::TCP, 8080)],
                _ => Vec::new(),
            },
        });
        let extra = (0..more).map(|k| BenchRule {
            action: Action::Allow,
            peer: BenchPeer::Labelled(vec![LabelTest::Has(tag(number + 9 + k))]),
            ports: vec![(Protocol::TCP, 443)],
        });
        BenchPolicy {
            namespace: None,
            name: format!("tag-policy-{number}"),
            tier: if security { "security" } else { "default" },
            file: file(number),
            line: line(number),
            subject: vec![LabelTest::Has(tag(number))],
            ingress: Some(rules.chain(extra).collect()),
            egress: None,
        }
    }
}

/// Many namespaces of one pod, each with a policy that isolates it.
pub(crate) mod tenants {
    use super::{
        Action, BenchInput, BenchNamespace, BenchObject, BenchPeer, BenchPod, BenchPolicy,
        BenchRule, Families, Ipv4Addr, LabelTest, Prefix, Protocol, addresses, file, interface,
        is_spread_local, line, scaled,
    };

    const SYSTEM: &str = "kube-system";
    const DNS_PODS: usize = 2;
    /// How many bodies policies have, where they differ.
    pub(crate) const BODIES: usize = 1_000;

    /// 100,000 namespaces with one pod each (100 local) of 15 labels, five of them unique, and one
    /// isolation policy with a DNS rule each; beside them the two DNS pods. The policies have so many
    /// different bodies: with more than one, each lets a network of its own in to a port of its own,
    /// and another tenant's pods out to one.
    pub(crate) fn input(scale: f64, families: Families, bodies: usize) -> BenchInput {
        let tenants = scaled(100_000, scale);
        BenchInput::of(vec![
            (1, Box::new(|_| BenchObject::Namespace(system()))),
            (tenants, Box::new(|n| BenchObject::Namespace(namespace(n)))),
            (
                tenants,
                Box::new(move |n| BenchObject::Policy(policy(n, bodies))),
            ),
            (
                DNS_PODS,
                Box::new(move |n| BenchObject::Pod(dns(n, tenants + n, families))),
            ),
            (
                tenants,
                Box::new(move |n| BenchObject::Pod(pod(n, tenants, families))),
            ),
        ])
    }

    fn system() -> BenchNamespace {
        BenchNamespace {
            name: SYSTEM.into(),
            labels: Vec::new(),
        }
    }

    fn namespace(number: usize) -> BenchNamespace {
        BenchNamespace {
            name: format!("tenant-{number}"),
            labels: vec![
                ("plan".into(), format!("plan-{}", number % 4)),
                ("customer".into(), format!("customer-{number}")),
            ],
        }
    }

    fn pod(number: usize, tenants: usize, families: Families) -> BenchPod {
        let shared = [
            ("app", format!("app-{}", number % 5)),
            ("app.kubernetes.io/component", "server".into()),
            ("app.kubernetes.io/part-of", "platform".into()),
            ("app.kubernetes.io/managed-by", "Helm".into()),
            ("app.kubernetes.io/version", format!("1.{}", number % 20)),
            ("environment", format!("env-{}", number % 3)),
            ("region", format!("region-{}", number % 6)),
            ("zone", format!("zone-{}", number % 18)),
            ("team", format!("team-{}", number % 40)),
            ("tier", format!("tier-{}", number % 3)),
        ];
        let unique = [
            "pod-template-hash",
            "tenant",
            "instance",
            "release",
            "trace",
        ];
        let own = unique.map(|key| (key, format!("{key}-{number:08x}")));
        let local = is_spread_local(number, tenants, 100);
        BenchPod {
            namespace: format!("tenant-{number}"),
            name: format!("server-{number:08x}-x"),
            labels: shared
                .into_iter()
                .chain(own)
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            addresses: addresses(number, families),
            node: if local {
                "here".into()
            } else {
                format!("node-{}", number % 1000)
            },
            interface: local.then(|| interface(number)),
        }
    }

    fn dns(number: usize, address: usize, families: Families) -> BenchPod {
        BenchPod {
            namespace: SYSTEM.into(),
            name: format!("kube-dns-{number}"),
            labels: vec![("k8s-app".into(), "kube-dns".into())],
            addresses: addresses(address, families),
            interface: None,
            node: format!("node-{number}"),
        }
    }

    fn policy(number: usize, bodies: usize) -> BenchPolicy {
        // What is local lies a thousand apart, and differs as well.
        let body = (number % 997 + number / 997) % bodies;
        let own = |n: usize| u8::try_from(n % 250).unwrap_or(0);
        let port = u16::try_from(1_000 + body).unwrap_or(0);
        let allow = |peer, ports: &[(Protocol, u16)]| BenchRule {
            action: Action::Allow,
            peer,
            ports: ports.to_vec(),
        };
        let dns = vec![LabelTest::Is("k8s-app".into(), "kube-dns".into())];
        let mut ingress = vec![allow(BenchPeer::SameNamespace, &[])];
        let mut egress = vec![
            allow(BenchPeer::SameNamespace, &[]),
            allow(
                BenchPeer::Pods(SYSTEM.into(), dns),
                &[(Protocol::UDP, 53), (Protocol::TCP, 53)],
            ),
        ];
        if bodies > 1 {
            let net = Ipv4Addr::new(172, 16, own(body / 250), own(body));
            let net = Prefix::new(net.into(), 32);
            ingress.push(allow(BenchPeer::Net(net), &[(Protocol::TCP, port)]));
            let app = vec![LabelTest::Is("app".into(), format!("app-{}", body % 5))];
            let other = BenchPeer::Pods(format!("tenant-{body}"), app);
            egress.push(allow(other, &[(Protocol::TCP, port)]));
        }
        BenchPolicy {
            namespace: Some(format!("tenant-{number}")),
            name: "isolate".into(),
            tier: "default",
            file: file(number),
            line: line(number),
            subject: Vec::new(),
            ingress: Some(ingress),
            egress: Some(egress),
        }
    }
}
