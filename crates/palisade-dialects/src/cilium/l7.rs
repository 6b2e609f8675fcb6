//! Rules about what is inside connections: HTTP, Kafka, DNS and others.
//!
//! Never: says what such a rule would allow, but for rules of DNS; the others are validated only.

use super::crd_schema::{self, HTTP_RULE, KAFKA_RULE, OTHER_RULE};
use super::fqdn;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{Direction, DomainPattern, Protocol};
use std::collections::BTreeSet;

const KNOWN: &[&str] = &["http", "kafka", "dns", "l7proto", "l7"];

/// What the rules about an item of `toPorts` have to know of its ports.
#[derive(Clone, Debug)]
pub(super) struct PortFacts {
    /// The protocols.
    pub(super) protocols: Vec<Protocol>,
    /// Whether it is port 0, which means all of them.
    pub(super) is_every_port: bool,
    /// Whether it is a range.
    pub(super) is_range: bool,
}

/// The kinds of such rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum L7Kind {
    Http,
    Kafka,
    Dns,
    Other,
}

/// The `rules` of an item of `toPorts`.
#[derive(Clone, Debug, Default)]
pub(super) struct L7Rules {
    /// The kinds that are there.
    pub(super) kinds: Vec<L7Kind>,
    /// The names that DNS queries may ask for.
    pub(super) dns_names: BTreeSet<DomainPattern>,
    /// Whether there is a list of DNS rules, and it is empty.
    pub(super) has_empty_dns: bool,
}

/// Reads the `rules` of an item of `toPorts`.
pub(super) fn read(
    rules: &Field<'_>,
    direction: Direction,
    ports: &[PortFacts],
    report: &mut ObjectReport,
) -> L7Rules {
    let mut read = L7Rules::default();
    if !report.is_object(rules) {
        return read;
    }
    let kinds = &mut read.kinds;
    report.check_fields(rules, KNOWN, &[]);
    for (key, kind) in [
        ("http", L7Kind::Http),
        ("kafka", L7Kind::Kafka),
        ("dns", L7Kind::Dns),
    ] {
        let Some(list) = report.child(rules, key) else {
            continue;
        };
        kinds.push(kind);
        let items = report.ok(list.items()).unwrap_or_default();
        read.has_empty_dns |= kind == L7Kind::Dns && items.is_empty();
        for item in items {
            match kind {
                L7Kind::Http => crd_schema::check(&item, &HTTP_RULE, report),
                L7Kind::Kafka => crd_schema::check(&item, &KAFKA_RULE, report),
                L7Kind::Dns | L7Kind::Other => read.dns_names.extend(fqdn::read(&item, report)),
            }
        }
    }
    let protocol = report.text(rules, "l7proto").map(|(text, _)| text);
    let others = report.child(rules, "l7");
    if let Some(list) = &others {
        for item in report.ok(list.items()).unwrap_or_default() {
            crd_schema::check(&item, &OTHER_RULE, report);
        }
        if protocol.is_none_or(str::is_empty) {
            report.error(list, "`l7` is only allowed with `l7proto`");
        }
    }
    if others.is_some() || protocol.is_some_and(|text| !text.is_empty()) {
        kinds.push(L7Kind::Other);
    }
    if kinds.len() > 1 {
        report.error(
            rules,
            "several kinds of L7 rules in one item: only one is allowed",
        );
    }
    if kinds.is_empty() && report.child(rules, "l7proto").is_none() {
        report.error(
            rules,
            "one of http, kafka, dns and l7proto is required; none is there",
        );
    }
    check_ports(rules, kinds, direction, ports, report);
    read
}

fn check_ports(
    rules: &Field<'_>,
    kinds: &[L7Kind],
    direction: Direction,
    ports: &[PortFacts],
    report: &mut ObjectReport,
) {
    if kinds.is_empty() {
        return;
    }
    let has_dns = kinds.contains(&L7Kind::Dns);
    if has_dns && direction == Direction::Ingress {
        report.error(rules, "DNS rules are not allowed on ingress");
    }
    if has_dns && ports.is_empty() {
        report.error(rules, "port 53 must be specified for DNS rules");
    }
    if has_dns && ports.iter().any(|port| port.is_range) {
        report.error(rules, "DNS rules do not support port ranges");
    }
    if ports.iter().any(|port| port.is_every_port) {
        report.error(rules, "L7 rules can not be used when a port is 0");
    }
    let is_tcp_only = |port: &PortFacts| port.protocols == [Protocol::TCP];
    if !has_dns && !ports.iter().all(is_tcp_only) {
        report.error(
            rules,
            "L7 rules apply to TCP only, except DNS rules: write `protocol: TCP` at each port",
        );
    }
}
