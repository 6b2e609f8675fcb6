//! ipBlock peers: a network without the networks of `except`.

use crate::cidr::{self, CidrLiteral};
use crate::faults::DialectFault;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{Family, Peer};

const KNOWN: &[&str] = &["cidr", "except"];

/// Lowers an ipBlock.
pub(super) fn read(field: &Field<'_>, report: &mut ObjectReport) -> Option<Peer> {
    report.ok(field.as_map())?;
    report.check_fields(field, KNOWN, &[]);
    let net = match report.child(field, "cidr") {
        Some(at) => network(&at, report),
        None => {
            report.error(field, "`cidr` is required, but missing");
            None
        }
    };
    let mut except = Vec::new();
    for at in report.items(field, "except") {
        let Some(inner) = network(&at, report) else {
            continue;
        };
        match &net {
            Some(net) if !is_strictly_inside(&inner, net) => {
                report.error(&at, outside_reason(&inner, net))
            }
            Some(_) => except.push(inner.net),
            None => {}
        }
    }
    let net = net?.net;
    if DialectFault::ExceptIgnored.is_injected() {
        except.clear();
    }
    Some(Peer::net(net, except))
}

/// As the API server checks it: compares the first address, and the prefix lengths as written.
fn is_strictly_inside(inner: &CidrLiteral, net: &CidrLiteral) -> bool {
    net.net.contains(inner.net.address()) && net.written_length < inner.written_length
}

fn outside_reason(inner: &CidrLiteral, net: &CidrLiteral) -> String {
    let mixed = (net.net.family() == Family::V4)
        && (net.written_length > 32) != (inner.written_length > 32);
    let (inner, net) = (inner.net, net.net);
    if net.family() != inner.family() {
        format!(
            "{inner} is {}, but cidr {net} is {}",
            inner.family(),
            net.family()
        )
    } else if net == inner {
        format!("{inner} equals cidr {net}: it must be strictly inside")
    } else if mixed {
        format!("{inner} and cidr {net} must both be written as IPv4")
    } else {
        format!("{inner} is not strictly inside cidr {net}")
    }
}

fn network(field: &Field<'_>, report: &mut ObjectReport) -> Option<CidrLiteral> {
    let text = if field.node.is_null() {
        ""
    } else {
        report.ok(field.as_str())?
    };
    match cidr::parse_network(text) {
        Ok(mut written) => {
            for doubt in written.warnings.drain(..) {
                report.warn(field, doubt);
            }
            Some(written)
        }
        Err(reason) => {
            report.error(field, reason);
            None
        }
    }
}
