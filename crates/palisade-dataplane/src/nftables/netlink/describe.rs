//! Describes an operation for error messages.
//!
//! Promises: names the object. Never: prints the whole content.

use std::fmt::{self, Write as _};

use palisade_nft::{ElementKey, Op};

/// The operation as a gerund phrase.
pub(super) fn describe(op: &Op) -> String {
    match op {
        Op::AddTable { .. } => "creating the table".to_owned(),
        Op::DeleteTable => "deleting the table".to_owned(),
        Op::AddSet { set, .. } => format!("creating set {set}"),
        Op::DeleteSet { set } => format!("deleting set {set}"),
        Op::AddChain { chain, .. } => format!("creating chain {chain}"),
        Op::DeleteChain { chain } => format!("deleting chain {chain}"),
        Op::AddRule { chain, .. } => format!("adding a rule to chain {chain}"),
        Op::FlushChain { chain } => format!("deleting the rules of chain {chain}"),
        Op::AddElement { set, key, .. } => format!("adding element {} to {set}", KeyDisplay(key)),
        Op::DeleteElement { set, key } => {
            format!("deleting element {} from {set}", KeyDisplay(key))
        }
    }
}

struct KeyDisplay<'a>(&'a ElementKey);

impl fmt::Display for KeyDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ElementKey::Exact(value) => hex(f, value),
            ElementKey::Range(first, last) => {
                hex(f, first)?;
                f.write_char('-')?;
                hex(f, last)
            }
            ElementKey::CatchAll => f.write_char('*'),
        }
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
