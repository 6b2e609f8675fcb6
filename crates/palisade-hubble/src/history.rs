//! Where the reading of flows begins and ends, as Cilium's server has it.
//!
//! Promises: the last flows are counted back from the newest one, by the filters; a reader that does not follow ends at
//! the line that was the newest when it began.
//!
//! Never: keeps flows while it counts.

use crate::filter::FlowFilters;
use crate::flow::{FlowMaker, LineEvents};
use crate::limits::BATCH;
use palisade_flows::recent::{RecentLine, RecentLines};
use std::time::Duration;

/// What a request asks for.
pub(crate) struct FlowQuery {
    /// How many flows; 0 is all of them.
    pub(crate) number: u64,
    /// Whether these are the first ones.
    pub(crate) first: bool,
    /// Whether flows to come are asked for.
    pub(crate) follow: bool,
    /// The time of the first flow.
    pub(crate) since: Option<Duration>,
    /// The time of the last flow.
    pub(crate) until: Option<Duration>,
    /// Which flows.
    pub(crate) filters: FlowFilters,
}

/// Where the reading is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadingPlace {
    /// The number of the next line.
    pub(crate) line: u64,
    /// How many selected flows of that line are left out.
    pub(crate) skip: u64,
    /// The number of the line to end before.
    pub(crate) end: Option<u64>,
}

impl FlowQuery {
    /// The flows of a line that are selected; nothing if it is no line of flows.
    pub(crate) fn selected(&self, maker: &FlowMaker, line: &RecentLine) -> usize {
        match maker.events(line) {
            LineEvents::Flows(flows) => flows
                .iter()
                .filter(|flow| self.filters.select(flow))
                .count(),
            LineEvents::Lost(..) => 0,
        }
    }

    /// Whether a line is older than what is asked for.
    pub(crate) fn is_before(&self, line: &RecentLine) -> bool {
        self.since.is_some_and(|since| line.time < since)
    }

    /// Whether a line is newer than what is asked for.
    pub(crate) fn is_after(&self, line: &RecentLine) -> bool {
        self.until.is_some_and(|until| line.time > until)
    }

    /// Where the reading begins and ends.
    pub(crate) async fn place(&self, maker: &FlowMaker, lines: &RecentLines) -> ReadingPlace {
        let (oldest, next) = lines.bounds();
        let end = (!self.follow).then_some(next);
        let at = |line| ReadingPlace { line, skip: 0, end };
        if self.first || self.since.is_some() {
            return at(oldest);
        }
        match (self.number, self.follow) {
            (0, false) => at(oldest),
            (0, true) => at(next),
            (number, _) => {
                let (line, skip) = self.count_back(maker, lines, number).await;
                ReadingPlace { line, skip, end }
            }
        }
    }

    /// The line that a number of flows begins in, and how many of its flows are before them.
    async fn count_back(&self, maker: &FlowMaker, lines: &RecentLines, number: u64) -> (u64, u64) {
        let mut wanted = number;
        let (mut oldest, mut upper) = lines.bounds();
        while upper > oldest {
            let lower = upper.saturating_sub(BATCH as u64).max(oldest);
            let batch = lines.read(lower, usize::try_from(upper - lower).unwrap_or(BATCH));
            // Lines may have been overwritten since, and others be in their place.
            for line in batch.lines.iter().rev().filter(|line| line.number < upper) {
                let selected = self.selected(maker, line) as u64;
                if selected >= wanted {
                    return (line.number, selected - wanted);
                }
                wanted -= selected;
            }
            upper = lower;
            oldest = lines.bounds().0;
            tokio::task::yield_now().await;
        }
        (oldest, 0)
    }
}
