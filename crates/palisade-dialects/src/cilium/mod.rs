//! Cilium's dialect: CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy and CiliumCIDRGroup of `cilium.io`.
//!
//! Promises: every object is read with the limits and validations of its published CRD and of Cilium's agent, and
//! every rejection names field and reason; what is not served yet is validated and held closed, with a warning
//! that names the missing piece; what denies stands before everything of the default tier, whatever it is.
//!
//! Never: selects a pod on the host network, or closes a node for a policy that has never been valid.

mod cidr_group;
mod cidr_peer;
mod crd_schema;
mod entity;
mod fields;
mod fqdn;
mod icmp;
mod isolation;
mod l7;
mod label_key;
mod missing_feature;
mod node_subject;
mod peer_kind;
mod peers;
mod ports;
mod rule;
mod rule_context;
mod selector;
mod service_peer;
mod spec;
mod subject_namespace;

use crate::dialect::{Dialect, GroupVersionKind, LoweredObject};
use crate::domain_peer::{inside_kinds, tests_names};
use crate::kind_reader::{KindRead, KindReader, Naming, find_reader, reader_of};
use crate::names;
pub(crate) use fields::POLICY_KINDS;
use palisade_manifest::RawObject;
use palisade_model::Policy;
use peer_kind::inside_kinds_without_nodes;
use spec::PolicyScope;
pub use spec::index_in_specs;

/// The API group.
pub(crate) const GROUP: &str = "cilium.io";

/// Cilium's dialect.
pub(crate) struct CiliumDialect;

/// Every kind that is read; of several versions of a kind the one that messages name comes first.
pub(crate) const KINDS: &[KindReader] = &[
    KindReader {
        group: GROUP,
        version: "v2",
        kind: "CiliumNetworkPolicy",
        naming: Naming::Namespaced,
        object_group: GROUP,
        read: KindRead::Several(|object, report| {
            spec::read(object, PolicyScope::Namespace, report)
        }),
    },
    KindReader {
        group: GROUP,
        version: "v2",
        kind: "CiliumClusterwideNetworkPolicy",
        naming: Naming::Cluster,
        object_group: GROUP,
        read: KindRead::Several(|object, report| spec::read(object, PolicyScope::Cluster, report)),
    },
    KindReader {
        group: GROUP,
        version: "v2",
        kind: "CiliumCIDRGroup",
        naming: Naming::Cluster,
        object_group: GROUP,
        read: KindRead::One(cidr_group::read),
    },
    KindReader {
        group: GROUP,
        version: "v2alpha1",
        kind: "CiliumCIDRGroup",
        naming: Naming::Cluster,
        object_group: GROUP,
        read: KindRead::One(cidr_group::read),
    },
];

impl Dialect for CiliumDialect {
    fn lower(&self, object: &RawObject) -> Option<LoweredObject> {
        find_reader(KINDS, object).map(|kind| kind.lower(object))
    }

    fn isolate(&self, object: &RawObject, intended: Option<GroupVersionKind>) -> Vec<Policy> {
        let kind = find_reader(KINDS, object).or_else(|| reader_of(KINDS, intended?));
        let Some((kind, scope)) = kind.and_then(|kind| Some((kind, scope_of(kind)?))) else {
            return Vec::new();
        };
        let object = kind.interpret(object);
        let is_sound = scope == PolicyScope::Cluster
            || names::dns_label_errors(&object.namespace()).is_empty();
        if is_sound {
            isolation::isolation_policies(&object, scope)
        } else {
            Vec::new()
        }
    }
}

/// The scope of the policies of a kind; `None` for a kind without policies.
fn scope_of(kind: &KindReader) -> Option<PolicyScope> {
    match kind.kind {
        "CiliumNetworkPolicy" => Some(PolicyScope::Namespace),
        "CiliumClusterwideNetworkPolicy" => Some(PolicyScope::Cluster),
        _ => None,
    }
}

/// Makes networks in a policy match nodes as well, as the operator may decide (`policy-cidr-match-mode`). Policies of
/// other dialects stay as they are, and so do networks of everything: they stand for what is outside.
pub fn match_nodes_by_cidr(policy: &mut Policy) {
    if policy.id.object.kind.group() != GROUP {
        return;
    }
    let inside = inside_kinds();
    let rules = policy.ingress.iter_mut().chain(&mut policy.egress);
    let peers = rules.flat_map(|rules| rules.rules.iter_mut().flat_map(|rule| &mut rule.peers));
    for peer in peers.filter(|peer| peer.not_selector.as_ref() == Some(&inside)) {
        let is_everything = |net: &palisade_model::Prefix| net.length() == 0;
        let is_network = match &peer.nets {
            Some(nets) => !nets.iter().any(is_everything),
            // A group of networks, not addresses of names.
            None => peer
                .selector
                .as_ref()
                .is_some_and(|groups| !tests_names(groups)),
        };
        if is_network {
            peer.not_selector = Some(inside_kinds_without_nodes());
        }
    }
}
