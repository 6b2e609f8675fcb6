//! ipBlock peers: a network, less some networks inside it.

use crate::cidr::{self, Written};
use crate::faults::{self, Fault};
use crate::report::Report;
use palisade_manifest::Field;
use palisade_model::{Family, Peer, Prefix};

const KNOWN: &[&str] = &["cidr", "except"];

/// Reads an ipBlock.
pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Option<Peer> {
    report.keep(field.as_map())?;
    report.only(field, KNOWN, &[]);
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
        if let Some(net) = net {
            if net.covers(inner) && net != inner {
                except.push(inner);
            } else {
                let reason = if net.family() != inner.family() {
                    format!(
                        "{inner} is {}, but cidr {net} is {}",
                        inner.family(),
                        net.family()
                    )
                } else if net == inner {
                    format!("{inner} is the whole of cidr {net}: it must be strictly inside")
                } else {
                    format!("{inner} is not strictly inside cidr {net}")
                };
                report.error(&at, reason);
            }
        }
    }
    let net = net?;
    if faults::on(Fault::ExceptIgnored) {
        except.clear();
    }
    if faults::on(Fault::Ipv6BlocksIgnored) && net.family() == Family::V6 {
        return None;
    }
    Some(Peer::net(net, except))
}

fn network(field: &Field<'_>, report: &mut Report) -> Option<Prefix> {
    let text = if field.node.is_null() {
        ""
    } else {
        report.keep(field.as_str())?
    };
    match cidr::network(text) {
        Ok(Written { net, host_bits }) => {
            if host_bits {
                report.warn(
                    field,
                    format!("{text} has bits set beyond its length: it is taken as {net}"),
                );
            }
            Some(net)
        }
        Err(reason) => {
            report.error(field, reason);
            None
        }
    }
}
