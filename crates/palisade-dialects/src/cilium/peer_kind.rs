//! What an address can be, and the addresses that a selector over labels with sources selects.
//!
//! Cilium gives every address labels: of pods those of Kubernetes, of everything else `reserved:…`, and outside of
//! the cluster those of networks. Here an address has holders instead. So each selector is evaluated once for each
//! kind of address: what does not depend on the address there is decided now, and the rest becomes a test of
//! holders.
//!
//! Where it is not known on which node the judged endpoint runs, a rule that allows matches no node by whether it is
//! that one, and a rule that denies matches each.
//!
//! Promises: an address in the pod networks of a node is never outside, whether a pod has it or not; such a test
//! of what is outside gives pods there no entry of their own.

use super::label_key::{LabelSource, PodLabel, SourcedKey};
use super::missing_feature::MissingFeature;
use super::rule_context::RuleAction;
use super::selector::LabelRequirement;
use crate::domain_peer::{inside_kinds, kind_in};
use crate::label_selector::LabelTest;
use crate::label_selector::workload_selector;
use palisade_model::{LabelKey, NetworkSet, Peer, Prefix, Selector, reserved};
use std::net::IpAddr;

/// A kind of address, as Cilium tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerKind {
    /// A pod.
    Pod,
    /// The node that the judged endpoint runs on.
    OwnNode,
    /// Another node.
    RemoteNode,
    /// In the networks of pods, but no pod that is known.
    Unmanaged,
    /// Outside of the cluster.
    World,
}

impl PeerKind {
    const ALL: [PeerKind; 5] = [
        PeerKind::Pod,
        PeerKind::OwnNode,
        PeerKind::RemoteNode,
        PeerKind::Unmanaged,
        PeerKind::World,
    ];

    /// All addresses of the kind, for rules of an action.
    pub(super) fn peer(self, action: RuleAction) -> Peer {
        match self {
            PeerKind::Pod => Peer::from_selector(workload_selector()),
            PeerKind::OwnNode => Peer::from_selector(own_node(action)),
            PeerKind::RemoteNode => Peer::from_selector(remote_node(action)),
            PeerKind::Unmanaged => Peer {
                selector: Some(kind_in(&[reserved::KIND_POD_NETWORK])),
                not_selector: Some(kind_in(&[
                    reserved::KIND_WORKLOAD,
                    reserved::KIND_HOST,
                    reserved::KIND_NODE,
                ])),
                ..Peer::any()
            },
            PeerKind::World => world(),
        }
    }
}

/// Everything outside of the cluster.
pub(super) fn world() -> Peer {
    Peer {
        not_selector: Some(inside_kinds()),
        ..Peer::any()
    }
}

/// What is inside of the cluster, nodes apart.
pub(super) fn inside_kinds_without_nodes() -> Selector {
    kind_in(&[
        reserved::KIND_WORKLOAD,
        reserved::KIND_HOST,
        reserved::KIND_POD_NETWORK,
    ])
}

/// The addresses of the API server: the endpoints of the Service `kubernetes` in `default`.
pub(super) fn api_server() -> Selector {
    service_named("kubernetes", Some("default"))
}

/// The endpoints of the Services of a name.
pub(super) fn service_named(name: &str, namespace: Option<&str>) -> Selector {
    let name = Selector::equals(LabelKey::own(NetworkSet::SERVICE_LABEL), name);
    endpoint_slices(namespace, name)
}

/// The EndpointSlices of a namespace, or of any, that pass a test.
pub(super) fn endpoint_slices(namespace: Option<&str>, test: Selector) -> Selector {
    let of_namespace = |name: &str| Selector::equals(LabelKey::reserved(reserved::NAMESPACE), name);
    let namespace = namespace.map(of_namespace);
    let kind = kind_in(&[reserved::KIND_ENDPOINT_SLICE]);
    Selector::and([kind, test].into_iter().chain(namespace))
}

/// CiliumCIDRGroups that pass a test.
pub(super) fn cidr_groups(test: Selector) -> Selector {
    Selector::and([kind_in(&[reserved::KIND_CIDR_GROUP]), test])
}

fn own_node(action: RuleAction) -> Selector {
    let (own, other) = (reserved::IS_OWN_NODE, reserved::IS_OTHER_NODE);
    node_test(action, own, other)
}

/// Every node but the node of the judged endpoint.
pub(super) fn remote_node(action: RuleAction) -> Selector {
    let (own, other) = (reserved::IS_OWN_NODE, reserved::IS_OTHER_NODE);
    node_test(action, other, own)
}

/// The nodes with a value of the label that tells the own node from others: for rules that allow, those that have
/// the value; for rules that deny, those that do not have the opposite value.
fn node_test(action: RuleAction, value: &str, opposite: &str) -> Selector {
    let key = LabelKey::reserved(reserved::OWN_NODE);
    let is_value = match action {
        RuleAction::Allow => Selector::equals(key, value),
        RuleAction::Deny => Selector::negate(Selector::equals(key, opposite)),
    };
    Selector::and([kind_in(&[reserved::KIND_NODE]), is_value])
}

/// What a requirement is for one kind of address.
enum EvaluatedTest {
    /// It holds, or not, whatever the address.
    Constant(bool),
    /// A test of the holder that makes the address one of this kind.
    Holder(Selector),
    /// Whether another holder passes a test.
    OtherHolder(Selector, bool),
    /// Whether the address is in a network.
    Network(Prefix, bool),
    /// It cannot be said here, and why.
    Unserved(MissingFeature),
}

/// Peers that are served in part only.
pub(super) struct UnservedPeers {
    /// What is not served.
    pub(super) feature: MissingFeature,
    /// All addresses that a rule that denies may be about, if these are fewer than all there are.
    pub(super) denied: Option<Vec<Peer>>,
}

/// The addresses that a selector selects, as alternatives; the error says what of it is not served.
pub(super) fn selected_peers(
    requirements: &[LabelRequirement],
    action: RuleAction,
) -> Result<Vec<Peer>, UnservedPeers> {
    if let [only] = requirements
        && is_api_server(&only.key)
        && only.test.holds_if_empty()
        && !only.test.holds_if_absent()
    {
        return Ok(vec![Peer::from_selector(api_server())]);
    }
    let select = |of_pods: &[LabelRequirement]| {
        let mut peers = Vec::new();
        for kind in PeerKind::ALL {
            let requirements = if kind == PeerKind::Pod {
                of_pods
            } else {
                requirements
            };
            peers.extend(select_of_kind(requirements, kind.peer(action), kind)?);
        }
        Ok(peers)
    };
    select(requirements).map_err(|feature| {
        // Only a pod is of a cluster, and it may be of any.
        let other = requirements
            .iter()
            .filter(|requirement| !requirement.key.is_cluster_name());
        let other: Vec<LabelRequirement> = other.cloned().collect();
        let names_cluster = other.len() < requirements.len();
        let denied = (action == RuleAction::Deny && names_cluster).then(|| select(&other));
        let denied = denied.and_then(Result::ok);
        UnservedPeers { feature, denied }
    })
}

/// The test of pods that a selector is; the error says what of it is not served.
pub(super) fn selected_pods(requirements: &[LabelRequirement]) -> Result<Selector, MissingFeature> {
    let all = Peer::from_selector(workload_selector());
    let peer = select_of_kind(requirements, all, PeerKind::Pod)?;
    Ok(peer
        .and_then(|peer| peer.selector)
        .unwrap_or(Selector::none()))
}

/// The addresses of a kind that a selector selects, of `peer`, which is all of the kind; `None` if there are none.
fn select_of_kind(
    requirements: &[LabelRequirement],
    mut peer: Peer,
    kind: PeerKind,
) -> Result<Option<Peer>, MissingFeature> {
    let is_set_free = peer.selector.is_none();
    let (mut set_tests, mut unwanted) = (Vec::new(), Vec::new());
    for requirement in requirements {
        match evaluate(requirement, kind) {
            EvaluatedTest::Constant(true) => {}
            EvaluatedTest::Constant(false) => return Ok(None),
            EvaluatedTest::Holder(test) => {
                let base = peer.selector.take().unwrap_or(Selector::all());
                peer.selector = Some(Selector::and([base, test]));
            }
            EvaluatedTest::OtherHolder(test, true) => set_tests.push(test),
            EvaluatedTest::OtherHolder(test, false) => unwanted.push(test),
            EvaluatedTest::Network(net, true) => {
                let nets = peer.nets.get_or_insert_with(|| vec![net]);
                let inner = nets.first().copied().filter(|other| net.covers(*other));
                let inner = inner.or_else(|| nets.iter().any(|n| n.covers(net)).then_some(net));
                *nets = inner.into_iter().collect();
            }
            EvaluatedTest::Network(net, false) => peer.not_nets.push(net),
            EvaluatedTest::Unserved(feature) => return Err(feature),
        }
    }
    match set_tests.len() {
        0 => {}
        1 if is_set_free => peer.selector = set_tests.pop(),
        _ => return Err(MissingFeature::SeveralSets),
    }
    if !unwanted.is_empty() {
        peer.not_selector = Some(Selector::or(peer.not_selector.into_iter().chain(unwanted)));
    }
    Ok(Some(peer))
}

fn evaluate(requirement: &LabelRequirement, kind: PeerKind) -> EvaluatedTest {
    let LabelRequirement { key, test, .. } = requirement;
    let absent = || EvaluatedTest::Constant(test.holds_if_absent());
    match (key.source, kind) {
        (LabelSource::Any | LabelSource::Kubernetes, PeerKind::Pod) => test_of_pod(key, test),
        (LabelSource::Any | LabelSource::Node, PeerKind::OwnNode | PeerKind::RemoteNode) => {
            EvaluatedTest::Holder(test.to_selector(LabelKey::own(key.name.clone())))
        }
        (LabelSource::Reserved, _) => test_of_kind(key, test, kind),
        (LabelSource::Cidr, PeerKind::World) => test_of_network(key, test),
        (LabelSource::CidrGroup, PeerKind::World) => {
            let positive = match test {
                LabelTest::NotIn(values) => LabelTest::In(values.clone()),
                LabelTest::DoesNotExist => LabelTest::Exists,
                other => other.clone(),
            };
            let group = cidr_groups(positive.to_selector(LabelKey::own(key.name.clone())));
            EvaluatedTest::OtherHolder(group, !test.holds_if_absent())
        }
        (LabelSource::Fqdn, PeerKind::World) => EvaluatedTest::Unserved(MissingFeature::FqdnLabels),
        _ => absent(),
    }
}

fn test_of_pod(key: &SourcedKey, test: &LabelTest) -> EvaluatedTest {
    let key = match key.pod_label() {
        None => return EvaluatedTest::Constant(test.holds_if_absent()),
        Some(PodLabel::NamespaceName) => LabelKey::reserved(reserved::NAMESPACE),
        Some(PodLabel::NamespaceLabel(name)) => LabelKey::namespace(name),
        Some(PodLabel::ServiceAccount) => LabelKey::reserved(reserved::SERVICE_ACCOUNT),
        Some(PodLabel::Cluster) => {
            return match test {
                // Every pod is of some cluster.
                LabelTest::Exists => EvaluatedTest::Constant(true),
                LabelTest::DoesNotExist => EvaluatedTest::Constant(false),
                LabelTest::In(_) | LabelTest::NotIn(_) => {
                    EvaluatedTest::Unserved(MissingFeature::ClusterNames)
                }
            };
        }
        Some(PodLabel::Own(name)) => LabelKey::own(name),
    };
    EvaluatedTest::Holder(test.to_selector(key))
}

fn is_api_server(key: &SourcedKey) -> bool {
    key.source == LabelSource::Reserved && &*key.name == "kube-apiserver"
}

/// A label of the source `reserved`, which has no value.
fn test_of_kind(key: &SourcedKey, test: &LabelTest, kind: PeerKind) -> EvaluatedTest {
    let (present, absent) = (test.holds_if_empty(), test.holds_if_absent());
    let family = match &*key.name {
        "world-ipv4" => Some(Prefix::ALL_V4),
        "world-ipv6" => Some(Prefix::ALL_V6),
        _ => None,
    };
    if let (PeerKind::World, Some(net)) = (kind, family)
        && present != absent
    {
        return EvaluatedTest::Network(net, present);
    }
    if is_api_server(key) && present != absent {
        return EvaluatedTest::OtherHolder(api_server(), present);
    }
    let has = match kind {
        PeerKind::Pod => false,
        PeerKind::OwnNode => &*key.name == "host",
        PeerKind::RemoteNode => &*key.name == "remote-node",
        PeerKind::Unmanaged => &*key.name == "unmanaged",
        PeerKind::World => &*key.name == "world",
    };
    EvaluatedTest::Constant(if has { present } else { absent })
}

/// A label of the source `cidr`: its key is a network, with hyphens for the colons of IPv6.
fn test_of_network(key: &SourcedKey, test: &LabelTest) -> EvaluatedTest {
    let (present, absent) = (test.holds_if_empty(), test.holds_if_absent());
    if present == absent {
        return EvaluatedTest::Constant(absent);
    }
    match parse_network_key(&key.name) {
        Some(net) => EvaluatedTest::Network(net, present),
        None => EvaluatedTest::Constant(absent),
    }
}

fn parse_network_key(text: &str) -> Option<Prefix> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = match address.parse() {
        Ok(address) => address,
        Err(_) => address.replace('-', ":").parse().ok()?,
    };
    let length: u8 = length.parse().ok()?;
    let net = Prefix::new(address, length);
    (net.length() == length).then_some(net)
}

#[cfg(test)]
mod tests {
    use super::parse_network_key;

    #[test]
    fn keys_of_networks() {
        for (text, net) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("fd00--0/8", Some("fd00::/8")),
            ("0--0/0", Some("::/0")),
            ("2001-db8--1/128", Some("2001:db8::1/128")),
            ("10.0.0.0", None),
            ("10.0.0.0/33", None),
            ("x/8", None),
        ] {
            assert_eq!(
                parse_network_key(text)
                    .map(|net| net.to_string())
                    .as_deref(),
                net,
                "{text}"
            );
        }
    }
}
