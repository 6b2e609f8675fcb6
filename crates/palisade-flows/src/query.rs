//! Reads the record: merges the rows of all buckets that have everything but their time in common.
//!
//! Promises: the flows that were seen last come first; a flow that is in memory and on disk counts once. Memory is bounded
//! by [`MAX_MERGED`] flows, whatever the record has.
//!
//! Never: holds up who records.

use crate::block::BlockRows;
use crate::bucket::BucketSnapshot;
use crate::bucket_header::BucketHeader;
use crate::database::{BLOCKS, BUCKETS, TEXTS};
use crate::dictionary::{EntryNumber, NO_ENTRY};
use crate::filter::{EndMatch, FlowFilter, matches_ends};
use crate::row::{RowCounts, RowKey, RowPort, protocol_name};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use jiff::Timestamp;
use palisade_api::{
    FlowIcmp, MonitorVerdict, RecordedDecision, RecordedEnd, RecordedFlow, RecordedFlowList,
};
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, StorageError,
};
use serde::de::DeserializeOwned;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The greatest number of flows that a query tells apart: the ones that were seen last.
pub const MAX_MERGED: usize = 300_000;

/// With more rows of a dictionary than this, they are merged with those of other ones at once.
const MAX_OF_BASE: usize = 100_000;

/// The buckets that a query reads.
pub(crate) struct RecordView {
    /// The record on disk.
    pub(crate) database: Option<Arc<Database>>,
    /// The number on disk of the first bucket of this process.
    pub(crate) first_number: u64,
    /// Buckets that are in memory; on disk they are older.
    pub(crate) pending: BTreeMap<u64, Arc<BucketSnapshot>>,
}

/// The recorded flows of a filter.
pub(crate) fn read_flows(
    view: &RecordView,
    filter: &FlowFilter,
    node: &str,
) -> Result<RecordedFlowList, redb::Error> {
    let mut merge = FlowMerge::new(filter);
    for pending in view.pending.values().rev() {
        merge.see_bucket(pending.start, pending.last(), pending.lost);
        let mut texts = BaseTexts::default();
        let source = |number| pending.text(number).map(<[u8]>::to_vec);
        let rows = pending.rows.iter();
        for (key, counts) in rows.filter(|(key, counts)| filter.matches_row(key, counts)) {
            merge.add(key, counts, &mut texts, &mut |number| Ok(source(number)))?;
        }
    }
    if let Some(database) = &view.database {
        let read = database.begin_read()?;
        merge.add_disk(&read, view)?;
    }
    Ok(merge.finish(node))
}

/// The rows of a query, by key; the texts of these keys are numbered anew.
struct FlowMerge<'a> {
    filter: &'a FlowFilter,
    rows: HashMap<RowKey, RowCounts, FixedState>,
    ends: TextNumbers<(RecordedEnd, EndMatch)>,
    decisions: TextNumbers<RecordedDecision>,
    no_end: EndMatch,
    since: Option<u64>,
    lost: u64,
    is_truncated: bool,
}

/// Different texts, parsed; equal ones of different dictionaries are one.
struct TextNumbers<T> {
    numbers: HashMap<Vec<u8>, EntryNumber, FixedState>,
    parsed: Vec<T>,
}

/// The numbers in the merge of the texts of one dictionary, by their numbers there; [`NO_ENTRY`] if not known yet.
#[derive(Default)]
struct BaseTexts {
    ends: Vec<EntryNumber>,
    decisions: Vec<EntryNumber>,
}

/// The rows of a dictionary on disk, of several buckets.
#[derive(Default)]
struct BaseRows {
    /// What is added to its numbers.
    base: u64,
    sums: HashMap<RowKey, RowCounts, FixedState>,
    texts: BaseTexts,
}

impl BaseRows {
    fn add(&mut self, key: &RowKey, counts: &RowCounts) {
        match self.sums.get_mut(key) {
            Some(sum) => sum.add(counts),
            None => {
                self.sums.insert(*key, *counts);
            }
        }
    }
}

/// What finds the text of a number in a dictionary.
type TextSource<'a> = &'a mut dyn FnMut(EntryNumber) -> Result<Option<Vec<u8>>, StorageError>;

impl<T> TextNumbers<T> {
    /// The number of a text that has this number in its dictionary.
    fn resolve(
        &mut self,
        known: &mut Vec<EntryNumber>,
        number: EntryNumber,
        text: TextSource<'_>,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<EntryNumber, StorageError> {
        if number == NO_ENTRY {
            return Ok(NO_ENTRY);
        }
        let at = number as usize;
        if let Some(found) = known.get(at).filter(|found| **found != NO_ENTRY) {
            return Ok(*found);
        }
        let Some(text) = text(number)? else {
            return Ok(NO_ENTRY);
        };
        let found = match self.numbers.get(&text) {
            Some(found) => *found,
            None => {
                let Some(parsed) = parse(&text) else {
                    return Ok(NO_ENTRY);
                };
                self.parsed.push(parsed);
                let new = self.parsed.len() as EntryNumber;
                self.numbers.insert(text, new);
                new
            }
        };
        if known.len() <= at {
            known.resize(at + 1, NO_ENTRY);
        }
        if let Some(slot) = known.get_mut(at) {
            *slot = found;
        }
        Ok(found)
    }

    fn get(&self, number: EntryNumber) -> Option<&T> {
        self.parsed.get((number as usize).checked_sub(1)?)
    }
}

impl<T> Default for TextNumbers<T> {
    fn default() -> Self {
        TextNumbers {
            numbers: HashMap::default(),
            parsed: Vec::new(),
        }
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    serde_json::from_slice(text).ok()
}

impl<'a> FlowMerge<'a> {
    fn new(filter: &'a FlowFilter) -> Self {
        FlowMerge {
            filter,
            rows: HashMap::default(),
            ends: TextNumbers::default(),
            decisions: TextNumbers::default(),
            no_end: filter.match_end(&RecordedEnd::default()),
            since: None,
            lost: 0,
            is_truncated: false,
        }
    }

    /// Takes a bucket into account, whatever its rows are; whether they may be asked for.
    fn see_bucket(&mut self, start: u64, last: u64, lost: u64) -> bool {
        self.since = Some(self.since.map_or(start, |since| since.min(start)));
        let overlaps = self.filter.overlaps(start, last);
        if overlaps {
            self.lost = self.lost.saturating_add(lost);
        }
        overlaps
    }

    /// Adds the buckets on disk, the newest first.
    fn add_disk(&mut self, read: &ReadTransaction, view: &RecordView) -> Result<(), redb::Error> {
        let buckets = read.open_table(BUCKETS)?;
        let blocks = read.open_table(BLOCKS)?;
        let table = read.open_table(TEXTS)?;
        let mut rows = BaseRows::default();
        for entry in buckets.iter()?.rev() {
            let (number, header) = entry?;
            let number = number.value();
            let Some(header) = BucketHeader::decode(header.value()) else {
                continue;
            };
            let own = number.checked_sub(view.first_number);
            if own.is_some_and(|own| view.pending.contains_key(&own))
                || !self.see_bucket(header.start, header.last, header.lost)
            {
                continue;
            }
            if header.text_base != rows.base {
                self.add_base(&mut rows, &table)?;
                rows = BaseRows {
                    base: header.text_base,
                    ..BaseRows::default()
                };
            }
            for block in blocks.range((number, 0)..=(number, u32::MAX))? {
                let (_, block) = block?;
                for (key, counts) in BlockRows::new(block.value(), header.start) {
                    if self.filter.matches_row(&key, &counts) {
                        rows.add(&key, &counts);
                    }
                }
            }
            if rows.sums.len() >= MAX_OF_BASE {
                self.add_base(&mut rows, &table)?;
            }
        }
        Ok(self.add_base(&mut rows, &table)?)
    }

    /// Adds the rows of a dictionary on disk, and takes them out.
    fn add_base(
        &mut self,
        rows: &mut BaseRows,
        table: &ReadOnlyTable<u64, &'static [u8]>,
    ) -> Result<(), StorageError> {
        let base = rows.base;
        let mut source = |number: EntryNumber| {
            let text = table.get(base + u64::from(number))?;
            Ok(text.map(|text| text.value().to_vec()))
        };
        for (key, counts) in rows.sums.drain() {
            self.add(&key, &counts, &mut rows.texts, &mut source)?;
        }
        Ok(())
    }

    /// Adds a row of a dictionary.
    fn add(
        &mut self,
        key: &RowKey,
        counts: &RowCounts,
        texts: &mut BaseTexts,
        source: TextSource<'_>,
    ) -> Result<(), StorageError> {
        let filter = self.filter;
        let parse_end = |text: &[u8]| {
            let end: RecordedEnd = parse(text)?;
            let matched = filter.match_end(&end);
            // One of which nothing is left is none.
            (end != RecordedEnd::default()).then_some((end, matched))
        };
        let mut key = *key;
        for number in [&mut key.source, &mut key.destination] {
            *number = (self.ends).resolve(&mut texts.ends, *number, source, parse_end)?;
        }
        let matched = |number| {
            self.ends
                .get(number)
                .map_or(self.no_end, |(_, found)| *found)
        };
        if !matches_ends(matched(key.source), matched(key.destination)) {
            return Ok(());
        }
        for number in [&mut key.egress, &mut key.ingress] {
            *number = (self.decisions).resolve(&mut texts.decisions, *number, source, parse)?;
        }
        if let Some(sum) = self.rows.get_mut(&key) {
            sum.add(counts);
        } else if self.rows.len() < MAX_MERGED {
            self.rows.insert(key, *counts);
        } else {
            self.is_truncated = true;
        }
        Ok(())
    }

    fn finish(self, node: &str) -> RecordedFlowList {
        let limit = self.filter.limit;
        let mut rows: Vec<(RowKey, RowCounts)> = Vec::with_capacity(self.rows.len());
        rows.extend(self.rows.iter().map(|(key, counts)| (*key, *counts)));
        let order = |(key, counts): &(RowKey, RowCounts)| {
            (Reverse(counts.last), Reverse(counts.count), *key)
        };
        let is_truncated = self.is_truncated || rows.len() > limit;
        if rows.len() > limit {
            rows.select_nth_unstable_by_key(limit, order);
            rows.truncate(limit);
        }
        rows.sort_unstable_by_key(order);
        let flows = rows.iter().map(|(key, counts)| self.flow(key, counts));
        RecordedFlowList {
            api_version: palisade_api::api_version(),
            node: node.to_owned(),
            since: self.since.map(time_text),
            flows: flows.collect(),
            lost: self.lost,
            truncated: is_truncated,
        }
    }

    fn flow(&self, key: &RowKey, counts: &RowCounts) -> RecordedFlow {
        let end = |number| {
            let end = self.ends.get(number).map(|(end, _)| end.clone());
            end.unwrap_or_default()
        };
        let (port, icmp) = match key.port {
            RowPort::Absent => (None, None),
            RowPort::Port(port) => (Some(port), None),
            RowPort::Icmp(kind, code) => (None, Some(FlowIcmp { kind, code })),
        };
        RecordedFlow {
            source: end(key.source),
            destination: end(key.destination),
            protocol: protocol_name(key.protocol),
            port,
            icmp,
            verdict: if key.is_denied {
                MonitorVerdict::Denied
            } else {
                MonitorVerdict::Allowed
            },
            egress: self.decisions.get(key.egress).cloned(),
            ingress: self.decisions.get(key.ingress).cloned(),
            first: time_text(counts.first),
            last: time_text(counts.last),
            count: counts.count,
            traffic: counts.traffic,
        }
    }
}

/// A time in seconds since the epoch as RFC 3339; after the year 9999 that year's end.
fn time_text(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    format!("{time:.0}")
}
