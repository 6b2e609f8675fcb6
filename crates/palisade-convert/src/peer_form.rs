//! The forms of peers that dialects have words for, recognised from tests of the model.
//!
//! Promises: a form stands for exactly the addresses that the peer matches; what has no form is [`PeerForm::Other`].
//! A peer of networks is taken apart into single networks with those exceptions that lie inside.

use crate::domain_text;
use crate::pods::{KeyTest, NoPodSelection, PodSelection, conjuncts, key_test, workloads};
use palisade_dialects::calico_holders;
use palisade_model::{DomainPattern, LabelKey, LabelScope, Peer, Prefix, Selector, reserved};

/// A network, and what is left out of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NetworkExcept {
    /// The network.
    pub(crate) net: Prefix,
    /// Networks strictly inside that do not match.
    pub(crate) except: Vec<Prefix>,
}

/// The nodes of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeChoice {
    /// All of them.
    All,
    /// The node that the judged endpoint runs on.
    Own,
    /// The others.
    Remote,
}

/// A peer as a dialect may say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerForm {
    /// No address.
    Nothing,
    /// Every address.
    Any,
    /// Pods and other workloads.
    Pods(PodSelection),
    /// Every address of networks, whoever has it.
    Networks(Vec<NetworkExcept>),
    /// Outside of the cluster.
    Outside,
    /// Addresses of networks outside of the cluster.
    OutsideNetworks(Vec<NetworkExcept>),
    /// Addresses outside of the cluster in the CiliumCIDRGroups that pass tests.
    OutsideGroups,
    /// The addresses of names, outside of the cluster.
    Names(Vec<DomainPattern>),
    /// Everything inside of the cluster.
    Inside,
    /// Nodes with some labels.
    Nodes(NodeChoice, Vec<KeyTest>),
    /// Addresses of pod networks that no pod has.
    Unmanaged,
    /// Endpoints of Services.
    Services,
    /// What a selector of Calico selects: host endpoints and network sets as well.
    Holders,
    /// All but what a selector of Calico selects.
    NotSelector,
    /// What a selector selects, in some networks.
    SelectorAndNetworks,
    /// Every address outside of some networks.
    NotNetworks,
    /// Workloads with a test of labels that is no test of one value.
    Untestable(Selector),
    /// Nothing that has a word; shown as a test of the model.
    Other(String),
}

impl PeerForm {
    /// The form of a peer.
    pub(crate) fn of(peer: &Peer) -> Self {
        let nets = peer.nets.as_deref();
        match (&peer.selector, &peer.not_selector, nets) {
            (None, None, None) if peer.not_nets.is_empty() => PeerForm::Any,
            (None, None, Some(nets)) => networks(nets, &peer.not_nets),
            (Some(selector), None, None) if peer.not_nets.is_empty() => of_selector(selector),
            (None, Some(not), nets) if *not == inside() => match nets {
                None if peer.not_nets.is_empty() => PeerForm::Outside,
                None => PeerForm::Other(text(peer)),
                Some(nets) => match networks(nets, &peer.not_nets) {
                    PeerForm::Networks(nets) => PeerForm::OutsideNetworks(nets),
                    other => other,
                },
            },
            (Some(selector), Some(not), None) if *not == inside() && peer.not_nets.is_empty() => {
                let names = domain_text::patterns(selector);
                match (kind_tests(selector, reserved::KIND_CIDR_GROUP), names) {
                    (Some(_), _) => PeerForm::OutsideGroups,
                    (None, Some(patterns)) => PeerForm::Names(patterns),
                    (None, None) => PeerForm::Other(text(peer)),
                }
            }
            (Some(selector), Some(not), None)
                if (selector, not) == (&pod_networks(), &known_holders())
                    && peer.not_nets.is_empty() =>
            {
                PeerForm::Unmanaged
            }
            (_, Some(not), _) if conjuncts(not).contains(&calico_holders()) => {
                PeerForm::NotSelector
            }
            (Some(_), None, _) => PeerForm::SelectorAndNetworks,
            (None, None, None) => PeerForm::NotNetworks,
            _ => PeerForm::Other(text(peer)),
        }
    }
}

fn pod_networks() -> Selector {
    Selector::equals(
        LabelKey::reserved(reserved::KIND),
        reserved::KIND_POD_NETWORK,
    )
}

/// Everything that has an address of its own.
fn known_holders() -> Selector {
    kind_in([
        reserved::KIND_WORKLOAD,
        reserved::KIND_HOST,
        reserved::KIND_NODE,
    ])
}

/// A peer as text, for messages.
fn text(peer: &Peer) -> String {
    let mut parts = Vec::new();
    parts.extend(peer.selector.as_ref().map(ToString::to_string));
    parts.extend(peer.not_selector.as_ref().map(|not| format!("!({not})")));
    let join = |nets: &[Prefix]| {
        let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
        nets.join(", ")
    };
    parts.extend(peer.nets.as_ref().map(|nets| format!("in {}", join(nets))));
    if !peer.not_nets.is_empty() {
        parts.push(format!("not in {}", join(&peer.not_nets)));
    }
    parts.join(", ")
}

/// Single networks with the exceptions inside them; those that are left out whole are gone.
pub(crate) fn split_networks(nets: &[Prefix], not_nets: &[Prefix]) -> Vec<NetworkExcept> {
    let nets = nets
        .iter()
        .filter(|net| !not_nets.iter().any(|not| not.covers(**net)));
    nets.map(|net| {
        let mut except: Vec<Prefix> = not_nets.to_vec();
        except.retain(|not| net.covers(*not));
        except.sort_unstable();
        except.dedup();
        NetworkExcept { net: *net, except }
    })
    .collect()
}

fn networks(nets: &[Prefix], not_nets: &[Prefix]) -> PeerForm {
    let nets = split_networks(nets, not_nets);
    if nets.is_empty() {
        PeerForm::Nothing
    } else {
        PeerForm::Networks(nets)
    }
}

fn of_selector(selector: &Selector) -> PeerForm {
    if *selector == inside() {
        return PeerForm::Inside;
    }
    match PodSelection::read(selector) {
        Ok(pods) => return PeerForm::Pods(pods),
        Err(NoPodSelection::Nothing) => return PeerForm::Nothing,
        Err(NoPodSelection::Test(test)) if conjuncts(selector).contains(&workloads()) => {
            return PeerForm::Untestable(test);
        }
        Err(NoPodSelection::NotOnlyPods | NoPodSelection::Nodes | NoPodSelection::Test(_)) => {}
    }
    let parts = conjuncts(selector);
    if parts.contains(&calico_holders()) {
        return PeerForm::Holders;
    }
    let node = kind_tests(selector, reserved::KIND_NODE).and_then(node_form);
    let slices = kind_in([
        reserved::KIND_ENDPOINT_SLICE,
        reserved::KIND_UNREADY_ENDPOINTS,
    ]);
    let is_of_services =
        parts.contains(&slices) || kind_tests(selector, reserved::KIND_ENDPOINT_SLICE).is_some();
    node.or_else(|| is_of_services.then_some(PeerForm::Services))
        .unwrap_or_else(|| PeerForm::Other(selector.to_string()))
}

/// The other parts of a conjunction with a test of the kind.
fn kind_tests<'a>(selector: &'a Selector, kind: &str) -> Option<Vec<&'a Selector>> {
    let of_kind = Selector::equals(LabelKey::reserved(reserved::KIND), kind);
    let parts = conjuncts(selector);
    let rest = parts.iter().filter(|part| **part != of_kind).collect();
    parts.contains(&of_kind).then_some(rest)
}

fn own_labels(parts: &[&Selector]) -> Option<Vec<KeyTest>> {
    let tests = parts.iter().map(|part| {
        let (key, test) = key_test(part)?;
        (key.scope == LabelScope::Own).then(|| KeyTest {
            key: key.name.clone(),
            test,
        })
    });
    tests.collect()
}

fn node_form(mut parts: Vec<&Selector>) -> Option<PeerForm> {
    let key = || LabelKey::reserved(reserved::OWN_NODE);
    let is_own = Selector::equals(key(), reserved::IS_OWN_NODE);
    let is_other = Selector::equals(key(), reserved::IS_OTHER_NODE);
    // Rules that deny match every node where the own one is not known.
    let own = [is_own.clone(), Selector::negate(is_other.clone())];
    let remote = [is_other, Selector::negate(is_own)];
    let has = |tests: &[Selector]| parts.iter().any(|part| tests.contains(part));
    let choice = match (has(&own), has(&remote)) {
        (true, true) => return Some(PeerForm::Nothing),
        (true, false) => NodeChoice::Own,
        (false, true) => NodeChoice::Remote,
        (false, false) => NodeChoice::All,
    };
    parts.retain(|part| !own.contains(part) && !remote.contains(part));
    Some(PeerForm::Nodes(choice, own_labels(&parts)?))
}

/// What is inside of the cluster.
fn inside() -> Selector {
    kind_in([
        reserved::KIND_WORKLOAD,
        reserved::KIND_HOST,
        reserved::KIND_NODE,
        reserved::KIND_POD_NETWORK,
    ])
}

fn kind_in<const N: usize>(kinds: [&str; N]) -> Selector {
    let kinds = kinds.into_iter().map(Into::into);
    Selector::is_in(LabelKey::reserved(reserved::KIND), kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_keep_the_exceptions_inside() {
        let net = |text: &str| text.parse::<Prefix>().ok();
        let nets: Vec<Prefix> = [net("10.0.0.0/8"), net("11.0.0.0/8")]
            .into_iter()
            .flatten()
            .collect();
        let not: Vec<Prefix> = [net("10.1.0.0/16"), net("11.0.0.0/7")]
            .into_iter()
            .flatten()
            .collect();
        let split = split_networks(&nets, &not);
        assert!(split.is_empty(), "11.0.0.0/7 is 10.0.0.0/7: it covers both");
        let split = split_networks(&nets, &not[..1]);
        let shown: Vec<usize> = split.iter().map(|net| net.except.len()).collect();
        assert_eq!(shown, [1, 0]);
    }

    #[test]
    fn pods_and_everything() {
        assert_eq!(PeerForm::of(&Peer::any()), PeerForm::Any);
        let pods = Peer::from_selector(workloads());
        assert_eq!(PeerForm::of(&pods), PeerForm::Pods(PodSelection::default()));
        assert_eq!(
            PeerForm::of(&Peer::from_selector(inside())),
            PeerForm::Inside
        );
    }
}
