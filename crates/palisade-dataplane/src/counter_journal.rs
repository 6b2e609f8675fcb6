//! What is written down so that no count is lost with the process that kept it.
//!
//! A count lives in the kernel, in an element or a rule, until that goes; from then on it lives in
//! the ledger. Promises: what is about to go is written before it goes, so whenever the process dies,
//! the kernel tells the next one which of it went. Never: decides where the ledger is kept.

use std::io;

use palisade_nft::{CounterLocation, CounterValue, ElementKey};
use palisade_tables::Credit;
use serde::{Deserialize, Serialize};

/// Where entries are kept.
pub trait CounterJournal: Send {
    /// Adds entries. Once it returns they survive the end of this process.
    ///
    /// # Errors
    /// If they could not be added; what was there before is whole.
    fn append(&mut self, entries: &[JournalEntry]) -> io::Result<()>;

    /// Puts these entries in place of all others, whole or not at all.
    ///
    /// # Errors
    /// If they could not be written; the others are then still there.
    fn replace(&mut self, entries: &[JournalEntry]) -> io::Result<()>;
}

/// What is counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JournalAccount {
    /// A rule, or what stands for one.
    Rule(Credit),
    /// A drop that no rule decided, by its reason.
    Reason(String),
}

/// One line of the ledger. Packets come before bytes; places are texts of [`format_location`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JournalEntry {
    /// From here on a number stands for an account.
    Account(u32, JournalAccount),
    /// What a place in the kernel counts for.
    Place(String, Vec<u32>),
    /// A place that is about to go, what it counts for, and what it held.
    Going(String, Vec<u32>, u64, u64),
    /// Everything that was about to go is gone.
    Gone,
    /// Nothing of what was about to go is.
    Stayed,
    /// To be added to what an account has from places that are gone.
    Add(u32, u64, u64),
    /// An account's total as it was told last.
    Told(u32, u64, u64),
}

/// A place as text.
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

/// The place that a text stands for.
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
