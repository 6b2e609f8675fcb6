//! What the DNS proxies of this host have counted, together, for the metrics.
//!
//! Each proxy reports all that it did since it started, again and again; a successor begins with nothing. Promises: the
//! sums never get less, and what a proxy reports twice counts once. Never: keeps more than a few proxies.

use palisade_proxy::{ProxyCounts, ProxyReport};
use std::collections::VecDeque;

/// How many proxies are remembered: one serves, one ends, and others had to start again.
const MOST_PROXIES: usize = 16;

/// The sums, and the last report of each proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxyTotals {
    sums: ProxyCounts,
    /// The one that reported longest ago first.
    reports: VecDeque<ProxyReport>,
}

impl ProxyTotals {
    /// Takes in a report.
    pub fn add(&mut self, report: ProxyReport) {
        let is_same = |known: &ProxyReport| known.proxy == report.proxy;
        let known = self.reports.iter().position(is_same);
        let known = known.and_then(|at| self.reports.remove(at));
        let mut known = known.unwrap_or(ProxyReport {
            counts: ProxyCounts::default(),
            ..report
        });
        self.sums.add_growth(&known.counts, &report.counts);
        // The most that it reported of each number: one that got less does not count again when it grows.
        let before = known.counts;
        known.counts.add_growth(&before, &report.counts);
        self.reports.push_back(known);
        if self.reports.len() > MOST_PROXIES {
            self.reports.pop_front();
        }
    }

    /// The sums.
    pub fn counts(&self) -> &ProxyCounts {
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_proxy::ProxyId;

    /// What a proxy reports: queries that it allowed, and connections that are open now.
    fn report(proxy: u64, allowed: u64, open: u64) -> ProxyReport {
        let mut counts = ProxyCounts::default();
        counts.queries.allowed = allowed;
        counts.tcp.open = open;
        ProxyReport {
            proxy: ProxyId::new(proxy),
            counts,
        }
    }

    /// The sum after each of these reports.
    fn sums(totals: &mut ProxyTotals, reports: &[(u64, u64)]) -> Vec<u64> {
        let mut sums = Vec::new();
        for (proxy, allowed) in reports {
            totals.add(report(*proxy, *allowed, 5));
            sums.push(totals.counts().queries.allowed);
        }
        sums
    }

    #[test]
    fn two_proxies_are_added_and_nothing_counts_twice() {
        let mut totals = ProxyTotals::default();
        // A proxy that was there before the agent; it reports again after a new connection, and hands over to another
        // while it still ends.
        let reports = [(1, 100), (1, 100), (1, 130), (2, 10), (1, 135), (2, 12)];
        let expected = [100, 100, 130, 140, 145, 147];
        assert_eq!(sums(&mut totals, &reports), expected);
        assert_eq!(totals.counts().tcp.open, 0, "what is open is no sum");
    }

    #[test]
    fn the_sums_never_get_less() {
        let mut totals = ProxyTotals::default();
        let reports = [(1, 100), (1, 20), (1, 100), (1, 101), (2, u64::MAX), (2, 0)];
        let expected = [100, 100, 100, 101, u64::MAX, u64::MAX];
        assert_eq!(sums(&mut totals, &reports), expected);
    }

    #[test]
    fn few_proxies_are_remembered_those_that_report() {
        let mut totals = ProxyTotals::default();
        for proxy in 1..1_000 {
            totals.add(report(0, proxy, 0));
            totals.add(report(proxy, 1, 0));
        }
        assert_eq!(totals.reports.len(), MOST_PROXIES);
        assert_eq!(totals.counts().queries.allowed, 2 * 999);
    }
}
