//! The two ends in Calico's rules: `source` and `destination`.
//!
//! Promises: a rule with networks of one family, given or excluded, matches no packet of the other; a selector
//! without a namespace selector stays in the namespace of its policy; domain names that are not understood close the
//! rule.

use super::domain;
use super::protocol;
use super::selector::CalicoSelector;
use super::selector_scope::{SelectorScope, calico_holders, in_namespace, with_accounts};
use crate::cidr;
use crate::closed_part::ClosedReason;
use crate::domain_peer::outside_names;
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::{
    DomainPattern, Family, LabelKey, NetworkSet, Peer, PortMatch, PortSpec, Prefix, Selector, Str,
    reserved,
};

pub(super) const KNOWN: &[&str] = &[
    "nets",
    "notNets",
    "selector",
    "notSelector",
    "namespaceSelector",
    "ports",
    "notPorts",
    "serviceAccounts",
    "services",
    "domains",
];
const MISPLACED: &[(&str, &str)] = &[
    ("podSelector", "endpoints are selected by `selector`"),
    ("protocol", "it belongs into the rule"),
];
const KNOWN_ACCOUNTS: &[&str] = &["names", "selector"];
const KNOWN_SERVICE: &[&str] = &["name", "namespace"];
/// What a service cannot have beside it.
const NOT_BESIDE_SERVICE: &[&str] = &[
    "nets",
    "notNets",
    "selector",
    "notSelector",
    "namespaceSelector",
    "serviceAccounts",
];
/// What a service as destination cannot have beside it either.
const NOT_BESIDE_DESTINATION: &[&str] = &["ports", "notPorts"];
/// The maximum number of networks in a list of a rule.
const MAX_NETS: usize = 256;

/// What an end of a rule tests.
#[derive(Clone, Debug, Default)]
pub(super) struct EntityMatch {
    /// The address.
    pub(super) peer: Peer,
    /// The port.
    pub(super) ports: PortMatch,
    /// The families that the networks leave.
    pub(super) families: Families,
    /// The name that stands for the ports of its Service.
    pub(super) service_port: Option<PortSpec>,
    /// Whether a part of it is not served: what it matches is not known.
    pub(super) is_closed: bool,
}

/// The families of packets that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Default for Families {
    fn default() -> Self {
        Families { v4: true, v6: true }
    }
}

impl Families {
    /// Only this family.
    pub(super) fn only(family: Family) -> Self {
        Families {
            v4: family == Family::V4,
            v6: family == Family::V6,
        }
    }

    /// The families of these networks.
    fn of(nets: &[Prefix]) -> Self {
        let has = |family| nets.iter().any(|net| net.family() == family);
        Families {
            v4: has(Family::V4),
            v6: has(Family::V6),
        }
    }

    /// Those of both.
    pub(super) fn and(self, other: Families) -> Self {
        Families {
            v4: self.v4 && other.v4,
            v6: self.v6 && other.v6,
        }
    }
}

/// Where an entity is written.
#[derive(Clone, Copy)]
pub(super) struct EntityContext<'a> {
    /// The namespace of the policy; `None` for what is cluster-wide.
    pub(super) namespace: Option<&'a Str>,
    /// Whether it is the end of the endpoint that the rule judges.
    pub(super) is_own: bool,
    /// Whether domain names are served there: as the destination of an egress rule that allows.
    pub(super) has_domains: bool,
}

/// Reads `source` or `destination` of a rule.
pub(super) fn read(
    rule: &Field<'_>,
    key: &str,
    context: EntityContext<'_>,
    report: &mut ObjectReport,
) -> EntityMatch {
    let Some(entity) = report.object(rule, key) else {
        return EntityMatch::default();
    };
    report.check_fields(&entity, KNOWN, MISPLACED);
    let (selector, not_selector) = selectors(&entity, context, report);
    let nets = rule_networks(&entity, "nets", report);
    let not_nets = rule_networks(&entity, "notNets", report);
    if let Some(all) = not_nets.iter().find(|net| net.length() == 0)
        && let Some(at) = report.child(&entity, "notNets")
    {
        report.warn(
            &at,
            format!(
                "{all} excludes every {} address, so the rule matches none of them; Calico's API server refuses it",
                all.family()
            ),
        );
    }
    let mut families = Families::default();
    if !nets.is_empty() {
        families = families.and(Families::of(&nets));
    }
    if !not_nets.is_empty() {
        families = families.and(Families::of(&not_nets));
    }
    let ports = protocol::ports(&entity, report);
    let service = service(&entity, key, context, report);
    let (slices, service_port) = service.unzip();
    let peer = Peer {
        selector: selector.or(slices),
        not_selector,
        nets: (!nets.is_empty()).then_some(nets),
        not_nets,
    };
    let domains = domains(&entity, context, &peer, report);
    let is_closed = matches!(domains, DomainsReading::Closed);
    EntityMatch {
        peer: match domains {
            DomainsReading::Names(patterns) => outside_names(patterns),
            DomainsReading::Absent | DomainsReading::Closed => peer,
        },
        ports,
        families,
        service_port,
        is_closed,
    }
}

/// The positive and the negative test of the holders of an address.
fn selectors(
    entity: &Field<'_>,
    context: EntityContext<'_>,
    report: &mut ObjectReport,
) -> (Option<Selector>, Option<Selector>) {
    let objects = selector(entity, "selector", SelectorScope::Object, report);
    let unwanted = selector(entity, "notSelector", SelectorScope::Object, report);
    let namespaces = selector(
        entity,
        "namespaceSelector",
        SelectorScope::Namespace,
        report,
    );
    let mut tests: Vec<Selector> = objects.into_iter().collect();
    tests.extend(accounts(entity, report));
    let is_local = context.namespace.is_some() && unwanted.is_some();
    let is_positive = !tests.is_empty() || namespaces.is_some() || is_local;
    let namespace_test = match (namespaces, context.namespace) {
        (Some(namespaces), _) => Some(namespaces),
        (None, Some(own)) => Some(in_namespace(own)),
        (None, None) => None,
    };
    let positive = is_positive.then(|| {
        let parts = [calico_holders()]
            .into_iter()
            .chain(namespace_test)
            .chain(tests);
        Selector::and(parts)
    });
    let negative = unwanted.map(|unwanted| Selector::and([calico_holders(), unwanted]));
    (positive, negative)
}

/// A selector; `None` if there is none, or an empty text. One that cannot be read is an error.
pub(super) fn selector(
    parent: &Field<'_>,
    key: &str,
    scope: SelectorScope,
    report: &mut ObjectReport,
) -> Option<Selector> {
    let (text, at) = report.text(parent, key)?;
    if text.trim_matches([' ', '\t']).is_empty() {
        return None;
    }
    match CalicoSelector::parse(text) {
        Ok(parsed) if parsed.uses_global() && !scope.has_global() => {
            report.error(&at, "global() is only for the namespaceSelector of a rule");
            None
        }
        Ok(parsed) => Some(scope.lower(&parsed)),
        Err(error) => {
            report.error(
                &at,
                format!("not a selector, at byte {}: {}", error.offset, error.reason),
            );
            None
        }
    }
}

/// The tests of service accounts.
fn accounts(entity: &Field<'_>, report: &mut ObjectReport) -> Vec<Selector> {
    let Some(field) = report.object(entity, "serviceAccounts") else {
        return Vec::new();
    };
    report.check_fields(&field, KNOWN_ACCOUNTS, &[]);
    let mut names = Vec::new();
    for item in report.items(&field, "names") {
        if let Some(name) = report.ok(item.as_str()) {
            report.errors(&item, names::dns_subdomain_errors(name));
            names.push(name.into());
        }
    }
    let selected = selector(&field, "selector", SelectorScope::ServiceAccount, report);
    let named = (!names.is_empty()).then(|| with_accounts(names));
    named.into_iter().chain(selected).collect()
}

/// The networks of a rule.
fn rule_networks(entity: &Field<'_>, key: &str, report: &mut ObjectReport) -> Vec<Prefix> {
    let count = report.items(entity, key).len();
    if count > MAX_NETS
        && let Some(at) = report.child(entity, key)
    {
        report.error(
            &at,
            format!("too many networks: {count}, the maximum is {MAX_NETS}"),
        );
    }
    networks(entity, key, report)
}

/// Networks, or single addresses: any number.
pub(super) fn networks(parent: &Field<'_>, key: &str, report: &mut ObjectReport) -> Vec<Prefix> {
    let items = report.items(parent, key);
    let mut nets: Vec<Prefix> = items.iter().filter_map(|at| network(at, report)).collect();
    nets.sort_unstable();
    nets.dedup();
    nets
}

/// A network, or a single address.
pub(super) fn network(at: &Field<'_>, report: &mut ObjectReport) -> Option<Prefix> {
    let text = report.ok(at.as_str())?;
    if !text.contains('/') {
        return report.address(at, text).map(Prefix::host);
    }
    match cidr::parse_network(text) {
        Ok(literal) => {
            for doubt in literal.warnings {
                report.warn(at, doubt);
            }
            Some(literal.net)
        }
        Err(reason) => {
            report.error(at, reason);
            None
        }
    }
}

/// The domain names of an entity.
enum DomainsReading {
    /// There are none.
    Absent,
    /// They are all that says which addresses match.
    Names(Vec<DomainPattern>),
    /// They are not understood, or not served there.
    Closed,
}

/// Reads the domain names of an entity with this peer.
///
/// Source: Calico Enterprise: they are only for egress rules that allow, and nothing else selects addresses beside them.
fn domains(
    entity: &Field<'_>,
    context: EntityContext<'_>,
    peer: &Peer,
    report: &mut ObjectReport,
) -> DomainsReading {
    let items = report.items(entity, "domains");
    let Some(list) = report
        .child(entity, "domains")
        .filter(|_| !items.is_empty())
    else {
        return DomainsReading::Absent;
    };
    let mut patterns = Vec::new();
    let mut reason = None;
    for item in &items {
        let Some(text) = report.ok(item.as_str()) else {
            continue;
        };
        match domain::parse_pattern(text) {
            Some(pattern) => patterns.push(pattern),
            None => {
                let text = quote(text);
                reason = Some(format!(
                    "{text} is neither a name nor one with `*.` in front"
                ));
            }
        }
    }
    if !context.has_domains {
        reason = Some("they are only served as the destination of egress rules that allow".into());
    } else if !peer.is_any() {
        reason = Some("they are not served beside selectors, networks and services".into());
    }
    let Some(reason) = reason else {
        return DomainsReading::Names(patterns);
    };
    report.close(
        &list,
        ClosedReason::NamesNotServed,
        format!("domain names: {reason}: the rule fails closed"),
    );
    DomainsReading::Closed
}

/// A Service as the other end: its endpoints, and the name that stands for their ports.
fn service(
    entity: &Field<'_>,
    key: &str,
    context: EntityContext<'_>,
    report: &mut ObjectReport,
) -> Option<(Selector, PortSpec)> {
    let field = report.object(entity, "services")?;
    report.check_fields(&field, KNOWN_SERVICE, &[]);
    if context.is_own {
        report.error(
            &field,
            format!("a rule cannot name a Service as its own end, `{key}`"),
        );
    }
    let of_destination = match key {
        "destination" => NOT_BESIDE_DESTINATION,
        _ => &[],
    };
    for other in NOT_BESIDE_SERVICE.iter().chain(of_destination) {
        if let Some(at) = report.child(entity, other)
            && at.node.as_str() != Some("")
            && at.node.as_list() != Some(&[])
        {
            report.error(&at, "it is not allowed beside `services`");
        }
    }
    let name = report.text(&field, "name");
    match &name {
        Some((name, at)) => report.errors(at, names::dns_label_errors(name)),
        None => report.error(&field, "`name` is required, but missing"),
    }
    let namespace = report.text(&field, "namespace");
    if let Some((namespace, at)) = &namespace {
        report.errors(at, names::dns_label_errors(namespace));
    } else if context.namespace.is_none() {
        report.error(
            &field,
            "`namespace` is required in what is cluster-wide, but missing",
        );
    }
    let (name, _) = name?;
    let namespace = match namespace {
        Some((namespace, _)) => namespace,
        None => context.namespace?,
    };
    let slices = Selector::and([
        // Whether they serve or not.
        Selector::is_in(
            LabelKey::reserved(reserved::KIND),
            [
                reserved::KIND_ENDPOINT_SLICE.into(),
                reserved::KIND_UNREADY_ENDPOINTS.into(),
            ],
        ),
        in_namespace(&namespace.into()),
        Selector::equals(LabelKey::own(NetworkSet::SERVICE_LABEL), name),
    ]);
    Some((slices, PortSpec::of_service(namespace, name)))
}
