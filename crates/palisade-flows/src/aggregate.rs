//! Sums up flows and denied packets by what they have in common, five minutes at a time.
//!
//! Promises: a flow counts once, when it begins, or when it ends if its begin was not seen; what it carried is added to the
//! row where it was counted, or to the same row of the bucket in which it ends. However many addresses, ports or names a
//! scan has, a bucket has at most [`MAX_KEYS`] rows and a few more: beyond that the addresses of outside ends are left out,
//! then ports, then everything but protocol and verdict. What is lost is counted.
//!
//! Never: has a source port in a key, reads a clock, or writes.

use crate::bucket::BucketSnapshot;
use crate::dictionary::{Dictionary, EntryNumber, NO_ENTRY};
use crate::open_flows::{FlowCount, FlowTuple, OpenFlowRows};
use crate::recorded_end::{DecisionView, EndView};
use crate::row::{RowCounts, RowKey, RowPort, protocol_number};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_api::{
    FlowDecision, FlowIcmp, FlowRecord, FlowState, MonitorEndpoint, MonitorLine, MonitorVerdict,
    PacketEvent,
};
use palisade_model::Direction;
use std::time::Duration;

/// The greatest number of rows of a bucket before anything is left out.
pub const MAX_KEYS: usize = 20_000;

/// The length of a bucket, in seconds.
pub const BUCKET_SECONDS: u64 = 300;

/// How much older than its bucket a line may be, in seconds: lines are not in the order of time. One that is older still
/// means that the clock was set back.
const LATE_SECONDS: u64 = 60;

/// The greatest number of texts of the ends of flows and of decisions, of a bucket and of open flows. One that is new beyond
/// that is recorded without its address, or not at all.
const MAX_TEXTS: usize = 4 * MAX_KEYS;

/// A dictionary of more buckets than a day has is replaced as well, so that what is used no longer is not kept for ever.
const BUCKETS_OF_DICTIONARY: u64 = 24 * 3600 / BUCKET_SECONDS;

type RowMap = HashMap<RowKey, RowCounts, FixedState>;

/// The flows and denied packets of the present bucket.
pub struct Aggregate {
    max_keys: usize,
    /// The number of the present bucket: that of each is greater than that of all before it, whatever the clock says.
    number: u64,
    /// When it begins, in seconds since the epoch.
    start: u64,
    dictionary: Dictionary,
    /// How many dictionaries there were before this one.
    generation: u64,
    /// The first bucket of the dictionary.
    dictionary_since: u64,
    rows: RowMap,
    /// How many events were lost, as far as it is known.
    lost: u64,
    /// How many flows and packets were counted in rows from which something was left out.
    folded: u64,
    /// Whether anything was added since it was written.
    is_changed: bool,
    open: OpenFlowRows,
    /// Whether an end of the key that is made lacks its address.
    is_shortened: bool,
}

impl Aggregate {
    /// Without flows; the first bucket has the number 0.
    pub fn new() -> Self {
        Self::with_max_keys(MAX_KEYS)
    }

    fn with_max_keys(max_keys: usize) -> Self {
        Aggregate {
            max_keys,
            number: 0,
            start: 0,
            dictionary: Dictionary::default(),
            generation: 0,
            dictionary_since: 0,
            rows: RowMap::default(),
            lost: 0,
            folded: 0,
            is_changed: false,
            open: OpenFlowRows::default(),
            is_shortened: false,
        }
    }

    /// Whether something that happened at this time belongs to the present bucket.
    pub fn covers(&self, time: Duration) -> bool {
        let (time, end) = (time.as_secs(), self.start + BUCKET_SECONDS);
        time < end && time + LATE_SECONDS >= self.start
    }

    /// Begins the bucket of this time. What the present one has is gone.
    pub fn begin_bucket(&mut self, time: Duration) {
        let has_begun = self.has_begun();
        self.number += 1;
        self.start = time.as_secs() - time.as_secs() % BUCKET_SECONDS;
        self.rows = RowMap::default();
        if has_begun {
            (self.lost, self.folded, self.is_changed) = (0, 0, false);
        }
        let is_old = self.number - self.dictionary_since >= BUCKETS_OF_DICTIONARY;
        if is_old || self.dictionary.texts().len() > MAX_TEXTS / 2 {
            self.replace_dictionary();
        }
    }

    /// Whether there was a bucket yet. What is lost before the first one is counted there.
    pub fn has_begun(&self) -> bool {
        self.number > 0
    }

    /// The present bucket.
    pub fn snapshot(&self) -> BucketSnapshot {
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .map(|(key, counts)| (*key, *counts))
            .collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        BucketSnapshot {
            number: self.number,
            start: self.start,
            generation: self.generation,
            texts: self.dictionary.texts().to_vec(),
            rows,
            lost: self.lost,
            folded: self.folded,
        }
    }

    /// Whether anything was added to the present bucket since this was asked before.
    pub fn take_changed(&mut self) -> bool {
        self.has_begun() && std::mem::take(&mut self.is_changed)
    }

    /// Keeps the texts of open flows only.
    fn replace_dictionary(&mut self) {
        let old = std::mem::take(&mut self.dictionary);
        let dictionary = &mut self.dictionary;
        let mut renumber = |number| match old.text(number) {
            Some(text) => dictionary.number_of_text(text),
            None => NO_ENTRY,
        };
        self.open.map_rows(|row| row.map_texts(&mut renumber));
        self.generation += 1;
        self.dictionary_since = self.number;
    }

    /// Adds what a line tells.
    pub fn add(&mut self, time: Duration, line: &MonitorLine) {
        let time = time.as_secs().max(self.start);
        match line {
            MonitorLine::Flow(record) => self.add_flow(time, record),
            // Of those that passed, the flow is told as well.
            MonitorLine::Packet(packet) if packet.verdict == MonitorVerdict::Allowed => {}
            MonitorLine::Packet(packet) => self.add_packet(time, packet),
            MonitorLine::Lost(lost) => self.add_lost(lost.count),
        }
    }

    /// Adds a number of lost events.
    pub fn add_lost(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
        self.is_changed |= count > 0;
    }

    fn add_flow(&mut self, time: u64, record: &FlowRecord) {
        let protocol = protocol_number(record.protocol);
        let tuple = FlowTuple::of(record, protocol);
        let counted = self.open.count_of(record.state, tuple.as_ref());
        let ends = [&record.source, &record.destination];
        let key = match counted {
            FlowCount::In(key) => key,
            FlowCount::New | FlowCount::Somewhere => {
                let port = RowPort::new(record.destination.port, record.icmp);
                let [egress, ingress] = [&record.egress, &record.ingress]
                    .map(|decision| decision.as_deref().map(decision_of_flow));
                RowKey {
                    egress: self.decision_number(egress),
                    ingress: self.decision_number(ingress),
                    ..self.key(ends, protocol, port, false)
                }
            }
        };
        let counts = RowCounts {
            count: u64::from(counted == FlowCount::New),
            traffic: match record.state {
                FlowState::Began => None,
                FlowState::Ended => record.traffic,
            },
            ..RowCounts::at(time)
        };
        let key = self.add_counts(key, ends, &counts);
        if record.state == FlowState::Began {
            self.open.insert(tuple, key);
        }
    }

    fn add_packet(&mut self, time: u64, packet: &PacketEvent) {
        let mut ends = [&packet.source, &packet.destination];
        if packet.reply {
            // It belongs to the flow that its receiver began.
            ends.reverse();
        }
        let decision = self.decision_number(Some(DecisionView {
            reason: packet.reason,
            rule: packet.rule.as_ref(),
            policies: &packet.policies,
            audit: packet.audit.as_ref().map(|audit| audit.verdict),
        }));
        let (egress, ingress) = match packet.direction {
            Some(Direction::Ingress) => (NO_ENTRY, decision),
            // Without a direction it was dropped before policy, where it came from.
            Some(Direction::Egress) | None => (decision, NO_ENTRY),
        };
        let icmp = packet.icmp_type.zip(packet.icmp_code);
        let icmp = icmp.map(|(kind, code)| FlowIcmp { kind, code });
        let port = RowPort::new(ends[1].port, icmp);
        let key = RowKey {
            egress,
            ingress,
            ..self.key(ends, protocol_number(packet.protocol), port, true)
        };
        let counts = RowCounts {
            count: 1,
            ..RowCounts::at(time)
        };
        self.add_counts(key, ends, &counts);
    }

    /// The key without what decided.
    fn key(
        &mut self,
        [source, destination]: [&MonitorEndpoint; 2],
        protocol: u8,
        port: RowPort,
        is_denied: bool,
    ) -> RowKey {
        RowKey {
            source: self.end_number(EndView::of(source)),
            destination: self.end_number(EndView::of(destination)),
            protocol,
            port,
            is_denied,
            egress: NO_ENTRY,
            ingress: NO_ENTRY,
        }
    }

    /// The text of an end, or of what is left of it if there are too many texts.
    fn end_number(&mut self, end: EndView<'_>) -> EntryNumber {
        let (dictionary, max) = (&mut self.dictionary, MAX_TEXTS);
        if let Some(number) = dictionary.number_of(&end, max) {
            return number;
        }
        self.is_shortened = true;
        let number = dictionary.number_of(&end.without_address(), max);
        number.unwrap_or(NO_ENTRY)
    }

    fn decision_number(&mut self, decision: Option<DecisionView<'_>>) -> EntryNumber {
        let number = decision.and_then(|decision| self.dictionary.number_of(&decision, MAX_TEXTS));
        number.unwrap_or(NO_ENTRY)
    }

    /// Adds to the row of a key, or of what is left of it if there are too many rows; that key.
    fn add_counts(
        &mut self,
        key: RowKey,
        ends: [&MonitorEndpoint; 2],
        counts: &RowCounts,
    ) -> RowKey {
        let mut row = key;
        let mut step = 0;
        while step < FOLDS && !self.has_room(&row, step) {
            step += 1;
            row = self.folded(&row, ends, step);
        }
        if std::mem::take(&mut self.is_shortened) || step > 0 {
            self.folded += counts.count;
        }
        let sum = self.rows.entry(row).or_insert(RowCounts {
            traffic: None,
            count: 0,
            ..*counts
        });
        sum.add(counts);
        self.is_changed = true;
        row
    }

    /// Whether there is a row of this key, or may be one; from each step of folding on there may be a tenth more.
    fn has_room(&self, key: &RowKey, step: usize) -> bool {
        self.rows.len() < self.max_keys + self.max_keys / 10 * step || self.rows.contains_key(key)
    }

    /// What is left of a key at this step.
    fn folded(&mut self, key: &RowKey, ends: [&MonitorEndpoint; 2], step: usize) -> RowKey {
        match step {
            1 => {
                let [source, destination] =
                    ends.map(|end| self.end_number(EndView::of(end).without_address()));
                RowKey {
                    source,
                    destination,
                    ..*key
                }
            }
            2 => RowKey {
                port: RowPort::Absent,
                ..*key
            },
            _ => RowKey {
                source: NO_ENTRY,
                destination: NO_ENTRY,
                port: RowPort::Absent,
                egress: NO_ENTRY,
                ingress: NO_ENTRY,
                ..*key
            },
        }
    }
}

/// The number of steps by which less and less of a key is left.
const FOLDS: usize = 3;

fn decision_of_flow(decision: &FlowDecision) -> DecisionView<'_> {
    DecisionView {
        reason: decision.reason,
        rule: decision.rule.as_ref(),
        policies: &decision.policies,
        audit: decision.audit.as_ref().map(|audit| audit.verdict),
    }
}

impl Default for Aggregate {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
