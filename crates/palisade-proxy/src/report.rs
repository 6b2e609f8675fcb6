//! What the proxy tells the agent of itself: its counts, for the agent's metrics.
//!
//! A report is a line of its own kind between the offers: `report` and JSON. It has all counts since the proxy started,
//! so one that is lost costs nothing, and the agent needs to have seen none before. Promises: one of another version of
//! the proxy can be read, or is left out, and offers go on. Never: names a client, a server or a domain name.

use crate::counts::ProxyCounts;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, RandomState};

/// What a line of a report begins with; an offer begins with a brace.
pub(crate) const REPORT_PREFIX: &[u8] = b"report ";

/// Counts of one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyReport {
    /// Which one: a number that no other has.
    pub proxy: ProxyId,
    /// What it did since it started.
    pub counts: ProxyCounts,
}

/// Tells one start of a proxy from another. Process numbers do not: in a container each proxy has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyId(u64);

impl ProxyId {
    /// A new one.
    pub(crate) fn draw() -> Self {
        // Keys of the hasher are random.
        ProxyId(RandomState::new().hash_one(()))
    }

    /// The one of a number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        ProxyId(number)
    }
}

impl ProxyReport {
    /// The line, with its end.
    ///
    /// # Errors
    /// If it cannot be written as text.
    pub(crate) fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = REPORT_PREFIX.to_vec();
        serde_json::to_writer(&mut line, self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads what follows [`REPORT_PREFIX`].
    ///
    /// # Errors
    /// If it is no report.
    pub(crate) fn read(text: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample_report() -> ProxyReport {
        let mut counts = ProxyCounts::default();
        counts.queries.allowed = u64::MAX;
        counts.tcp.queries.refused = 3;
        counts.latency.observe(Duration::from_micros(70));
        ProxyReport {
            proxy: ProxyId::new(u64::MAX),
            counts,
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = sample_report();
        let line = report.line().unwrap();
        let text = line.strip_prefix(REPORT_PREFIX).unwrap();
        assert_eq!(ProxyReport::read(text).unwrap(), report);
        assert_ne!(ProxyId::draw(), ProxyId::draw());
    }

    #[test]
    fn one_that_is_cut_short_or_is_something_else_is_refused() {
        let line = sample_report().line().unwrap();
        let text = line.strip_prefix(REPORT_PREFIX).unwrap().trim_ascii_end();
        for length in 0..text.len() {
            assert!(ProxyReport::read(&text[..length]).is_err(), "{length}");
        }
        let value: serde_json::Value = serde_json::from_slice(text).unwrap();
        for (path, wrong) in [
            ("/proxy", serde_json::json!(-1)),
            ("/proxy", serde_json::json!("1")),
            ("/counts", serde_json::json!(7)),
            ("/counts/queries/allowed", serde_json::json!(-1)),
            ("/counts/queries/allowed", serde_json::json!(1e30)),
            ("/counts/latency/buckets", serde_json::json!([1, 2])),
            ("/counts/latency/buckets", serde_json::json!(vec![0; 14])),
            ("/counts/latency/nanoseconds", serde_json::json!(null)),
        ] {
            let mut value = value.clone();
            *value.pointer_mut(path).unwrap() = wrong;
            assert!(
                ProxyReport::read(value.to_string().as_bytes()).is_err(),
                "{value}"
            );
        }
    }

    #[test]
    fn a_proxy_of_another_version_counts_more_or_less() {
        let text = br#"{"proxy":1,"counts":{"queries":{"allowed":2,"postponed":3},"moods":{}}}"#;
        let mut expected = ProxyCounts::default();
        expected.queries.allowed = 2;
        let report = ProxyReport::read(text).unwrap();
        assert_eq!((report.proxy, report.counts), (ProxyId::new(1), expected));
    }
}
