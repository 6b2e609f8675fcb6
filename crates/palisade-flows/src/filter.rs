//! Which recorded flows a query asks for.

use jiff::{Span, SpanRelativeTo, Timestamp};
use palisade_api::{MonitorVerdict, RecordedEnd, RecordedFlowQuery};
use palisade_model::Prefix;
use std::net::IpAddr;
use std::time::Duration;
use thiserror::Error;

use crate::row::{RowCounts, RowKey, RowPort, protocol_number};

/// How many flows are listed if a query does not say.
pub const DEFAULT_LIMIT: usize = 1_000;

/// How many flows are listed at most.
pub const MAX_LIMIT: usize = 100_000;

/// Why a query has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{parameter}: {text:?} is neither a time (2026-11-21T07:32:05Z) nor a time span (90m, 24h, 7d)"
)]
pub struct FlowQueryError {
    /// The parameter.
    pub parameter: &'static str,
    /// Its value.
    pub text: String,
}

/// The flows that a query asks for.
pub(crate) struct FlowFilter {
    since: Option<u64>,
    until: Option<u64>,
    namespace: Option<String>,
    endpoint: Option<WantedEnd>,
    from: Option<WantedEnd>,
    to: Option<WantedEnd>,
    is_denied: Option<bool>,
    protocol: Option<u8>,
    port: Option<u16>,
    pub(crate) limit: usize,
}

/// An end that a query asks for.
#[derive(Debug, PartialEq, Eq)]
enum WantedEnd {
    Address(IpAddr),
    Network(Prefix),
    /// A workload or controller of this namespace and name.
    Workload(String, String),
    /// A workload or controller of the namespace `default`, or a domain name.
    Name(String),
}

impl WantedEnd {
    fn parse(text: &str) -> Self {
        if let Ok(address) = text.parse() {
            return WantedEnd::Address(address);
        }
        match text.split_once('/') {
            None => WantedEnd::Name(text.to_owned()),
            Some((namespace, name)) => match text.parse() {
                Ok(network) => WantedEnd::Network(network),
                Err(_) => WantedEnd::Workload(namespace.to_owned(), name.to_owned()),
            },
        }
    }

    fn matches(&self, end: &RecordedEnd) -> bool {
        let address = || end.address.as_ref()?.parse::<IpAddr>().ok();
        match self {
            WantedEnd::Address(wanted) => address() == Some(*wanted),
            WantedEnd::Network(network) => address().is_some_and(|a| network.contains(a)),
            WantedEnd::Workload(namespace, name) => is_workload(end, namespace, name),
            WantedEnd::Name(name) => {
                let wanted = name.strip_suffix('.').unwrap_or(name);
                is_workload(end, "default", name)
                    || end
                        .names
                        .iter()
                        .any(|name| name.eq_ignore_ascii_case(wanted))
            }
        }
    }
}

/// Whether an end is the workload or controller of this name.
fn is_workload(end: &RecordedEnd, namespace: &str, name: &str) -> bool {
    let controller = end.controller.as_ref().map(|controller| &controller.name);
    end.namespace.as_deref() == Some(namespace)
        && (end.name.as_deref() == Some(name) || controller.is_some_and(|found| found == name))
}

/// What of a filter an end fulfils.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndMatch {
    is_from: bool,
    is_to: bool,
    is_endpoint: bool,
    is_in_namespace: bool,
}

impl FlowFilter {
    /// The filter of a query. `now` is since the epoch.
    pub(crate) fn new(query: &RecordedFlowQuery, now: Duration) -> Result<Self, FlowQueryError> {
        let time = |parameter, text: &Option<String>| {
            let parsed = text.as_ref().map(|text| {
                parse_time(text, now).ok_or_else(|| FlowQueryError {
                    parameter,
                    text: text.clone(),
                })
            });
            parsed.transpose()
        };
        let end = |text: &Option<String>| text.as_deref().map(WantedEnd::parse);
        Ok(FlowFilter {
            since: time("since", &query.since)?,
            until: time("until", &query.until)?,
            namespace: query.namespace.clone(),
            endpoint: end(&query.endpoint),
            from: end(&query.from),
            to: end(&query.to),
            is_denied: query
                .verdict
                .map(|verdict| verdict == MonitorVerdict::Denied),
            protocol: query.protocol.map(protocol_number),
            port: query.port,
            limit: query.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT),
        })
    }

    /// Whether anything between these times may be asked for.
    pub(crate) fn overlaps(&self, first: u64, last: u64) -> bool {
        self.since.is_none_or(|since| last >= since) && self.until.is_none_or(|until| first < until)
    }

    /// Whether a row is asked for, whatever its ends are.
    pub(crate) fn matches_row(&self, key: &RowKey, counts: &RowCounts) -> bool {
        self.overlaps(counts.first, counts.last)
            && self.is_denied.is_none_or(|denied| denied == key.is_denied)
            && self
                .protocol
                .is_none_or(|protocol| protocol == key.protocol)
            && self.port.is_none_or(|port| key.port == RowPort::Port(port))
    }

    /// What an end fulfils.
    pub(crate) fn match_end(&self, end: &RecordedEnd) -> EndMatch {
        let matches =
            |wanted: &Option<WantedEnd>| wanted.as_ref().is_none_or(|wanted| wanted.matches(end));
        EndMatch {
            is_from: matches(&self.from),
            is_to: matches(&self.to),
            is_endpoint: matches(&self.endpoint),
            is_in_namespace: self.namespace.is_none() || self.namespace == end.namespace,
        }
    }
}

/// Whether ends that fulfil this are asked for together.
pub(crate) fn matches_ends(source: EndMatch, destination: EndMatch) -> bool {
    source.is_from
        && destination.is_to
        && (source.is_endpoint || destination.is_endpoint)
        && (source.is_in_namespace || destination.is_in_namespace)
}

/// The seconds since the epoch of a time (RFC 3339), or of a time span before `now` (`24h`), which is since the epoch.
pub fn parse_time(text: &str, now: Duration) -> Option<u64> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(u64::try_from(time.as_second()).unwrap_or_default());
    }
    let span: Span = text.parse().ok()?;
    // A day has 24 hours here, whatever the time zone.
    let days = SpanRelativeTo::days_are_24_hours();
    let span = span.to_duration(days).ok()?.unsigned_abs();
    Some(now.saturating_sub(span).as_secs())
}
