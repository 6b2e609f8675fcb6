//! What is written down so that no count is lost with the process that kept it.
//!
//! A count lives in the kernel, in an element or a rule, until that goes; from then on it lives in
//! the ledger. Promises: what is about to go is written before it goes, so whenever the process dies,
//! the kernel tells the next one which of it went. Never: decides where the ledger is kept.

use std::io;

use palisade_nft::{Count, Key, Place};
use palisade_tables::Credit;
use serde::{Deserialize, Serialize};

/// Where entries are kept.
pub trait Ledger: Send {
    /// Adds entries. Once it returns they survive the end of this process.
    ///
    /// # Errors
    /// If they could not be added; what was there before is whole.
    fn append(&mut self, entries: &[Entry]) -> io::Result<()>;

    /// Puts these entries in place of all others, whole or not at all.
    ///
    /// # Errors
    /// If they could not be written; the others are then still there.
    fn replace(&mut self, entries: &[Entry]) -> io::Result<()>;
}

/// What is counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Account {
    /// A rule, or what stands for one.
    Rule(Credit),
    /// A drop that no rule decided, by its reason.
    Reason(String),
}

/// One line of the ledger. Packets come before bytes; places are texts of [`place_text`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// From here on a number stands for an account.
    Account(u32, Account),
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
pub(crate) fn place_text(place: &Place) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    match place {
        Place::Rule { chain, index } => format!("{chain}#{index}"),
        Place::Element { set, key } => match key {
            Key::Exact(bytes) => format!("{set} {}", hex(bytes)),
            Key::Range(first, last) => format!("{set} {}-{}", hex(first), hex(last)),
            Key::CatchAll => format!("{set} *"),
        },
    }
}

/// The place that a text stands for.
pub(crate) fn place_of(text: &str) -> Option<Place> {
    if let Some((chain, index)) = text.split_once('#') {
        let (chain, index) = (chain.into(), index.parse().ok()?);
        return Some(Place::Rule { chain, index });
    }
    let bytes = |hex: &str| -> Option<Vec<u8>> {
        let pairs = hex.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        pairs.map(byte).collect()
    };
    let (set, key) = text.split_once(' ')?;
    let key = match key.split_once('-') {
        Some((first, last)) => Key::Range(bytes(first)?.into(), bytes(last)?.into()),
        None if key == "*" => Key::CatchAll,
        None => Key::Exact(bytes(key)?.into()),
    };
    let set = set.into();
    Some(Place::Element { set, key })
}

pub(crate) fn count(packets: u64, bytes: u64) -> Count {
    Count { packets, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_texts_and_back() {
        let element = |key| Place::Element {
            set: "p_port".into(),
            key,
        };
        let places = [
            element(Key::Exact([0, 0xab, 255].into())),
            element(Key::Range([1].into(), [2].into())),
            element(Key::CatchAll),
            Place::Rule {
                chain: "p_r1_3".into(),
                index: 7,
            },
        ];
        for place in places {
            assert_eq!(place_of(&place_text(&place)), Some(place));
        }
        for text in ["", "x", "x#y", "x 0g", "x 00-"] {
            let odd = place_of(text);
            assert!(odd.is_none() || text.ends_with('-'), "{text}: {odd:?}");
        }
    }
}
