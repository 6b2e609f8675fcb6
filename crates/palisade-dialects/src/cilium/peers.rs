//! The peers of a rule: of one kind at most, each a list.
//!
//! Promises: a list that is there and empty selects nothing, so that a rule with it matches nothing; a rule without
//! any list of peers, but with ports, matches every address.

use super::crd_schema::{self, CLOUD_GROUP};
use super::label_key::SourcedKey;
use super::missing_feature::{MissingFeature, closed_peers, hold_closed};
use super::peer_kind::{UnservedPeers, remote_node, selected_peers};
use super::rule_context::{RuleAction, RuleContext};
use super::selector::{self, LabelRequirement};
use super::{cidr_peer, entity, fqdn, service_peer};
use crate::domain_peer::outside_names;
use crate::faults::DialectFault;
use crate::label_selector::LabelTest;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{Direction, LabelKey, Peer, Selector};

/// The names of the lists of peers, without `from` or `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerList {
    Endpoints,
    Cidr,
    CidrSet,
    Entities,
    Nodes,
    Groups,
    Services,
    Fqdns,
}

impl PeerList {
    const ALL: [PeerList; 8] = [
        PeerList::Endpoints,
        PeerList::Cidr,
        PeerList::CidrSet,
        PeerList::Entities,
        PeerList::Nodes,
        PeerList::Groups,
        PeerList::Services,
        PeerList::Fqdns,
    ];

    /// Its field; `None` where rules of the direction and action do not have it.
    fn field(self, direction: Direction, action: RuleAction) -> Option<&'static str> {
        use Direction::{Egress, Ingress};
        Some(match (self, direction) {
            (PeerList::Endpoints, Ingress) => "fromEndpoints",
            (PeerList::Endpoints, Egress) => "toEndpoints",
            (PeerList::Cidr, Ingress) => "fromCIDR",
            (PeerList::Cidr, Egress) => "toCIDR",
            (PeerList::CidrSet, Ingress) => "fromCIDRSet",
            (PeerList::CidrSet, Egress) => "toCIDRSet",
            (PeerList::Entities, Ingress) => "fromEntities",
            (PeerList::Entities, Egress) => "toEntities",
            (PeerList::Nodes, Ingress) => "fromNodes",
            (PeerList::Nodes, Egress) => "toNodes",
            (PeerList::Groups, Ingress) => "fromGroups",
            (PeerList::Groups, Egress) => "toGroups",
            (PeerList::Services, Egress) => "toServices",
            (PeerList::Fqdns, Egress) if action == RuleAction::Allow => "toFQDNs",
            (PeerList::Services | PeerList::Fqdns, _) => return None,
        })
    }
}

/// The fields that hold the peers of rules of a direction and action.
pub(super) fn fields(
    direction: Direction,
    action: RuleAction,
) -> impl Iterator<Item = &'static str> {
    let all = PeerList::ALL.into_iter();
    all.filter_map(move |list| list.field(direction, action))
}

/// Reads the peers of a rule.
pub(super) fn read(
    rule: &Field<'_>,
    context: &RuleContext<'_>,
    report: &mut ObjectReport,
) -> Vec<Peer> {
    let (direction, action) = (context.direction, context.action);
    let mut present = Vec::new();
    for list in PeerList::ALL {
        if let Some(key) = list.field(direction, action)
            && let Some(field) = report.child(rule, key)
        {
            let items = report.ok(field.items()).unwrap_or_default();
            present.push((list, key, field, items));
        }
    }
    let filled = present.iter().filter(|(.., items)| !items.is_empty());
    let filled: Vec<&str> = filled.map(|(_, key, ..)| *key).collect();
    check_combination(rule, &filled, report);
    if present.is_empty() {
        return vec![Peer::any()];
    }
    let mut is_empty = false;
    let (mut peers, mut is_closed) = (Vec::new(), false);
    for (list, key, field, items) in &present {
        if items.is_empty() && field.node.as_list().is_some() {
            report.warn(
                field,
                format!("an empty list: `{key}` selects nothing, so the rule matches nothing"),
            );
            is_empty = true;
        }
        if *list == PeerList::Groups && !items.is_empty() {
            hold_groups_closed((field, items), context, report);
            is_closed = true;
            continue;
        }
        for item in items {
            match read_item(*list, item, context, report) {
                Ok(read) => peers.extend(read),
                Err(UnservedPeers { feature, denied }) => {
                    hold_closed(item, feature, action, report);
                    match denied {
                        Some(denied) => peers.extend(denied),
                        None => is_closed = true,
                    }
                }
            }
        }
    }
    if is_closed && DialectFault::UnservedPeersOpen.is_injected() {
        return vec![Peer::any()];
    }
    if is_empty {
        return Vec::new();
    }
    match (is_closed, action) {
        (true, RuleAction::Deny) => closed_peers(action),
        (true, RuleAction::Allow) | (false, _) => peers,
    }
}

/// Checks that a rule has peers of one list only.
fn check_combination(rule: &Field<'_>, filled: &[&str], report: &mut ObjectReport) {
    if let [first, others @ ..] = filled
        && !others.is_empty()
    {
        report.error(
            rule,
            format!(
                "combining {first} and {} is not supported: write a rule for each",
                others.join(" and ")
            ),
        );
    }
}

/// Checks groups of cloud providers, and holds their list closed.
fn hold_groups_closed(
    (field, items): (&Field<'_>, &[Field<'_>]),
    context: &RuleContext<'_>,
    report: &mut ObjectReport,
) {
    for item in items {
        crd_schema::check(item, &CLOUD_GROUP, report);
    }
    let feature = match context.direction {
        Direction::Egress => MissingFeature::EgressGroups,
        Direction::Ingress => MissingFeature::IngressGroups,
    };
    hold_closed(field, feature, context.action, report);
}

/// The peers of an item; the error says what of it is not served.
fn read_item(
    list: PeerList,
    item: &Field<'_>,
    context: &RuleContext<'_>,
    report: &mut ObjectReport,
) -> Result<Vec<Peer>, UnservedPeers> {
    Ok(match list {
        PeerList::Endpoints => {
            let requirements = selector::read(item, report);
            if requirements
                .iter()
                .any(|requirement| requirement.key.is_world())
            {
                report.warn(
                    item,
                    "`reserved:world` is everything outside of the cluster; a dual-stack Cilium has the labels \
                     `reserved:world-ipv4` and `reserved:world-ipv6` instead, and matches nothing by this one",
                );
            }
            return selected_peers(&with_namespace(requirements, context), context.action);
        }
        PeerList::Cidr => cidr_peer::read_cidr(item, report).into_iter().collect(),
        PeerList::CidrSet => cidr_peer::read_cidr_rule(item, report)
            .into_iter()
            .collect(),
        PeerList::Entities => entity::read(item, context.action, report),
        PeerList::Nodes => vec![nodes(item, context.action, report)],
        PeerList::Services => service_peer::read(item, report).into_iter().collect(),
        PeerList::Fqdns => fqdn::read(item, report)
            .into_iter()
            .map(|pattern| outside_names([pattern]))
            .collect(),
        PeerList::Groups => Vec::new(),
    })
}

/// A selector of peers with the namespace that it gains unless it names one: that of the policy, or any for a
/// policy without one. Selectors of reserved labels gain none.
fn with_namespace(
    mut requirements: Vec<LabelRequirement>,
    context: &RuleContext<'_>,
) -> Vec<LabelRequirement> {
    let is_reserved = |requirement: &LabelRequirement| requirement.key.is_reserved();
    let names_one = |requirement: &LabelRequirement| {
        let key = &requirement.key;
        key.is_namespace_name() || context.namespace.is_some() && key.is_namespace_label()
    };
    if requirements.iter().any(is_reserved) || requirements.iter().any(names_one) {
        return requirements;
    }
    let test = match context.namespace {
        Some(name) => LabelTest::In(vec![name.clone()]),
        None => LabelTest::Exists,
    };
    requirements.push(LabelRequirement {
        key: SourcedKey::of_namespace_name(),
        test,
        is_match_label: false,
    });
    requirements
}

/// The nodes whose labels a selector selects, but for the node of the judged endpoint: `fromNodes` and `toNodes` are
/// about other nodes. Source: Cilium, "Node based": "all other nodes".
fn nodes(item: &Field<'_>, action: RuleAction, report: &mut ObjectReport) -> Peer {
    let mut tests = vec![remote_node(action)];
    for requirement in selector::read(item, report) {
        let (key, test) = (requirement.key, requirement.test);
        tests.push(if key.is_of_nodes() {
            test.to_selector(LabelKey::own(key.name))
        } else if test.holds_if_absent() {
            Selector::all()
        } else {
            Selector::none()
        });
    }
    Peer::from_selector(Selector::and(tests))
}
