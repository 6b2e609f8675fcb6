//! The counter journal: a durable write-ahead log, so that no count is lost with the process.
//!
//! A count lives in the kernel, in an element or a rule, until that is deleted; from then on it is in the
//! journal. Promises: a deletion is journalled before it happens, so after a crash at any time the next
//! process can tell from the kernel which counters are gone. Never: decides where the journal is stored.

use std::io;

use palisade_nft::{CounterLocation, CounterValue, ElementKey};
use palisade_tables::Credit;
use serde::{Deserialize, Serialize};

/// Storage of journal entries.
pub trait CounterJournal: Send {
    /// Appends entries. Once it returns they survive the end of this process.
    ///
    /// # Errors
    /// If they could not be appended; earlier entries are intact.
    fn append(&mut self, entries: &[JournalEntry]) -> io::Result<()>;

    /// Atomically replaces all entries with these.
    ///
    /// # Errors
    /// If they could not be written; the old entries are then intact.
    fn replace(&mut self, entries: &[JournalEntry]) -> io::Result<()>;
}

/// What a count is credited to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JournalAccount {
    /// A rule, tier default or profile.
    Rule(Credit),
    /// A drop that no rule decided: its reason.
    Reason(String),
}

/// One entry of the journal. Numbers are packets, then bytes; locations are texts of [`format_location`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JournalEntry {
    /// Assigns a number to an account, for the entries that follow.
    Account(u32, JournalAccount),
    /// The accounts of a counter in the kernel.
    Place(String, Vec<u32>),
    /// A counter about to be deleted: its location, accounts and value.
    Going(String, Vec<u32>, u64, u64),
    /// All counters about to be deleted are gone.
    Gone,
    /// None of them was deleted.
    Stayed,
    /// Adds to the retired counts of an account.
    Add(u32, u64, u64),
    /// The total of an account that was reported last.
    Told(u32, u64, u64),
}

/// A counter location as text.
pub(crate) fn format_location(place: &CounterLocation) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    match place {
        CounterLocation::Rule { chain, index } => format!("{chain}#{index}"),
        CounterLocation::Element { set, key } => match key {
            ElementKey::Exact(bytes) => format!("{set} {}", hex(bytes)),
            ElementKey::Range(first, last) => format!("{set} {}-{}", hex(first), hex(last)),
            ElementKey::CatchAll => format!("{set} *"),
        },
    }
}

/// The counter location of a text; `None` if it is malformed.
pub(crate) fn parse_location(text: &str) -> Option<CounterLocation> {
    if let Some((chain, index)) = text.split_once('#') {
        let (chain, index) = (chain.into(), index.parse().ok()?);
        return Some(CounterLocation::Rule { chain, index });
    }
    let bytes = |hex: &str| -> Option<Vec<u8>> {
        let pairs = hex.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        pairs.map(byte).collect()
    };
    let (set, key) = text.split_once(' ')?;
    let key = match key.split_once('-') {
        Some((first, last)) => ElementKey::Range(bytes(first)?.into(), bytes(last)?.into()),
        None if key == "*" => ElementKey::CatchAll,
        None => ElementKey::Exact(bytes(key)?.into()),
    };
    let set = set.into();
    Some(CounterLocation::Element { set, key })
}

pub(crate) fn counter_value(packets: u64, bytes: u64) -> CounterValue {
    CounterValue { packets, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_texts_and_back() {
        let element = |key| CounterLocation::Element {
            set: "p_port".into(),
            key,
        };
        let places = [
            element(ElementKey::Exact([0, 0xab, 255].into())),
            element(ElementKey::Range([1].into(), [2].into())),
            element(ElementKey::CatchAll),
            CounterLocation::Rule {
                chain: "p_r1_3".into(),
                index: 7,
            },
        ];
        for place in places {
            assert_eq!(parse_location(&format_location(&place)), Some(place));
        }
        for text in ["", "x", "x#y", "x 0g", "x 00-"] {
            let odd = parse_location(text);
            assert!(odd.is_none() || text.ends_with('-'), "{text}: {odd:?}");
        }
    }
}
