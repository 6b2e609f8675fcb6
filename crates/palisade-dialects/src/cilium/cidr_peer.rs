//! Networks as peers: CIDRs, CIDRs with exceptions, and groups of CIDRs.
//!
//! Promises: a network matches what is outside of the cluster only; nodes as well where [`match_nodes_by_cidr`] says
//! so, as the operator may decide; pods never.
//!
//! [`match_nodes_by_cidr`]: super::match_nodes_by_cidr

use super::peer_kind::{cidr_groups, world};
use super::selector;
use crate::cidr;
use crate::faults::DialectFault;
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{LabelKey, Peer, Prefix, Selector, reserved};

const KNOWN: &[&str] = &["cidr", "cidrGroupRef", "cidrGroupSelector", "except"];

/// An item of `fromCIDR` or `toCIDR`: a network, or one address.
pub(super) fn read_cidr(field: &Field<'_>, report: &mut ObjectReport) -> Option<Peer> {
    let text = report.ok(field.as_str())?;
    if text.is_empty() {
        report.error(field, "an address or a network must be specified");
        return None;
    }
    let net = if text.contains('/') {
        network(field, report)?
    } else {
        Prefix::host(report.address(field, text)?)
    };
    Some(Peer {
        nets: Some(vec![net]),
        ..world()
    })
}

/// An item of `fromCIDRSet` or `toCIDRSet`.
pub(super) fn read_cidr_rule(field: &Field<'_>, report: &mut ObjectReport) -> Option<Peer> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN, &[]);
    let cidr = report.child(field, "cidr");
    let name = report.child(field, "cidrGroupRef");
    let groups = report.child(field, "cidrGroupSelector");
    let except = report.child(field, "except");
    let (net, groups) = match (cidr, name, groups) {
        (Some(at), None, None) => (Some(network(&at, report)?), None),
        (None, Some(at), None) => (None, Some(group_of_name(&at, report)?)),
        (None, None, Some(at)) => (None, Some(selected_groups(&at, report))),
        (None, None, None) => {
            report.error(
                field,
                "one of cidr, cidrGroupRef and cidrGroupSelector is required; none is there",
            );
            return None;
        }
        _ => {
            report.error(
                field,
                "one of cidr, cidrGroupRef and cidrGroupSelector is required, not several",
            );
            return None;
        }
    };
    let mut peer = world();
    match (net, groups) {
        (Some(net), _) => {
            peer.nets = Some(vec![net]);
            peer.not_nets = exceptions(net, field, report);
        }
        (None, groups) => {
            if let Some(except) = except {
                report.error(
                    &except,
                    "`except` is only beside `cidr`, not beside a group",
                );
            }
            peer.selector = groups;
        }
    }
    Some(peer)
}

fn exceptions(net: Prefix, item: &Field<'_>, report: &mut ObjectReport) -> Vec<Prefix> {
    let mut except = Vec::new();
    for at in report.items(item, "except") {
        let Some(inner) = network(&at, report) else {
            continue;
        };
        if !net.contains(inner.address()) {
            report.error(&at, format!("{inner} is not inside cidr {net}"));
        }
        except.push(inner);
    }
    if DialectFault::CidrExceptLost.is_injected() {
        except.clear();
    }
    except
}

/// A network, written so that all programs read it alike.
pub(super) fn network(field: &Field<'_>, report: &mut ObjectReport) -> Option<Prefix> {
    let text = report.ok(field.as_str())?;
    match cidr::parse_unambiguous_network(text) {
        Ok(literal) => {
            for doubt in literal.warnings {
                report.warn(field, doubt);
            }
            Some(literal.net)
        }
        Err(reason) => {
            report.error(field, reason);
            None
        }
    }
}

fn group_of_name(field: &Field<'_>, report: &mut ObjectReport) -> Option<Selector> {
    let name = report.ok(field.as_str())?;
    report.errors(field, names::dns_subdomain_errors(name));
    let name = Selector::equals(LabelKey::reserved(reserved::NAME), name);
    Some(cidr_groups(name))
}

/// The groups whose labels a selector selects.
fn selected_groups(field: &Field<'_>, report: &mut ObjectReport) -> Selector {
    let requirements = selector::read(field, report);
    let tests = requirements.iter().map(|requirement| {
        let key = LabelKey::own(requirement.key.name.clone());
        requirement.test.to_selector(key)
    });
    cidr_groups(Selector::and(tests))
}
