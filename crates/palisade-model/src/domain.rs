//! Domain names and the patterns by which policies name them.
//!
//! Promises: one spelling for each name (lower case, no final dot), so equal names are equal values; a pattern
//! matches the whole name, in time proportional to its length times that of the pattern.
//! Never: resolves a name, or knows which dialect a pattern comes from.

use crate::{ObjectId, ObjectKind, Str};
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// The longest name in characters, without the final dot. Source: RFC 1035, section 2.3.4 (255 octets on the wire).
const LONGEST_NAME: usize = 253;
/// The longest label in characters. Source: RFC 1035, section 2.3.4.
const LONGEST_LABEL: usize = 63;

/// A domain name: labels of letters, digits, `-` and `_` between dots, in lower case, without the final dot.
///
/// What is not ASCII has no form here but its A-labels (`xn--…`; RFC 5890).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Str", into = "Str")]
pub struct DomainName(Str);

/// Why a text is no domain name, or no pattern of domain names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainNameError {
    /// It is empty, or the root alone.
    Empty,
    /// There is nothing between two dots, or before the first.
    EmptyLabel,
    /// A label is too long.
    LongLabel,
    /// The name is too long.
    LongName,
    /// Characters outside of ASCII.
    NotAscii,
    /// Another character.
    Character,
}

impl fmt::Display for DomainNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DomainNameError::Empty => "a domain name has at least one label",
            DomainNameError::EmptyLabel => "a label of a domain name is empty",
            DomainNameError::LongLabel => "a label of a domain name has at most 63 characters",
            DomainNameError::LongName => "a domain name has at most 253 characters",
            DomainNameError::NotAscii => {
                "a domain name is written in ASCII, labels in other scripts in their form that begins with xn--"
            }
            DomainNameError::Character => {
                "a domain name has letters, digits, '-', '_' and dots"
            }
        })
    }
}

impl core::error::Error for DomainNameError {}

impl DomainName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the network set that has its addresses ([`crate::reserved::KIND_DOMAIN_NAME`]).
    pub fn network_set_id(&self) -> ObjectId {
        ObjectId {
            namespace: None,
            name: self.0.clone(),
            kind: ObjectKind::new("palisade.dev", "DomainName"),
        }
    }

    /// Its labels, from the left.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl FromStr for DomainName {
    type Err = DomainNameError;

    fn from_str(text: &str) -> Result<Self, DomainNameError> {
        canonical_text(text, is_label_byte).map(DomainName)
    }
}

impl TryFrom<Str> for DomainName {
    type Error = DomainNameError;

    fn try_from(text: Str) -> Result<Self, DomainNameError> {
        text.parse()
    }
}

impl From<DomainName> for Str {
    fn from(name: DomainName) -> Str {
        name.0
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A set of domain names.
///
/// Each dialect has a pattern language of its own; all are lowered to these forms. In a glob, `*` stands for any
/// number of characters of one label, none included.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DomainPattern {
    /// Every name.
    Any,
    /// The names that the glob matches label by label.
    Glob(Str),
    /// The names that end with what the glob matches, and have at least one more label in front.
    Below(Str),
}

impl DomainPattern {
    /// The names that a glob matches label by label; a glob without `*` matches one name.
    pub fn glob(text: &str) -> Result<Self, DomainNameError> {
        canonical_text(text, is_glob_byte).map(DomainPattern::Glob)
    }

    /// The names below those that a glob matches: one label more, or several.
    pub fn below(text: &str) -> Result<Self, DomainNameError> {
        canonical_text(text, is_glob_byte).map(DomainPattern::Below)
    }

    /// The name that it matches, if it matches exactly one.
    pub fn only_name(&self) -> Option<&str> {
        match self {
            DomainPattern::Glob(text) if !text.contains('*') => Some(text),
            _ => None,
        }
    }

    /// Whether it matches a name, given in the spelling of [`DomainName`].
    pub fn matches(&self, name: &str) -> bool {
        match self {
            DomainPattern::Any => true,
            DomainPattern::Glob(glob) => matches_labels(glob, name),
            DomainPattern::Below(glob) => {
                let depth = glob.split('.').count();
                // The dot before the last `depth` labels.
                let dot = name.rmatch_indices('.').nth(depth - 1);
                dot.is_some_and(|(at, _)| matches_labels(glob, &name[at + 1..]))
            }
        }
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DomainPattern::Any => f.write_str("*"),
            // `*` alone stands for every name, as where policies write it.
            DomainPattern::Glob(glob) if glob == "*" => f.write_str("*."),
            DomainPattern::Glob(glob) => f.write_str(glob),
            DomainPattern::Below(glob) => write!(f, "**.{glob}"),
        }
    }
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

fn is_glob_byte(byte: u8) -> bool {
    is_label_byte(byte) || byte == b'*'
}

/// The text in lower case without the final dot, if its labels are of these bytes.
fn canonical_text(text: &str, is_allowed: impl Fn(u8) -> bool) -> Result<Str, DomainNameError> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        return Err(DomainNameError::Empty);
    }
    if !text.is_ascii() {
        return Err(DomainNameError::NotAscii);
    }
    if text.len() > LONGEST_NAME {
        return Err(DomainNameError::LongName);
    }
    for label in text.split('.') {
        if label.is_empty() {
            return Err(DomainNameError::EmptyLabel);
        }
        if label.len() > LONGEST_LABEL {
            return Err(DomainNameError::LongLabel);
        }
        if !label.bytes().all(&is_allowed) {
            return Err(DomainNameError::Character);
        }
    }
    Ok(text.chars().map(|c| c.to_ascii_lowercase()).collect())
}

/// Whether a glob matches a name label by label.
fn matches_labels(glob: &str, name: &str) -> bool {
    let (mut globs, mut labels) = (glob.split('.'), name.split('.'));
    loop {
        match (globs.next(), labels.next()) {
            (None, None) => return true,
            (Some(glob), Some(label)) if matches_label(glob.as_bytes(), label.as_bytes()) => {}
            _ => return false,
        }
    }
}

/// Whether a glob without dots matches a label. After a mismatch the last `*` takes one byte more; an earlier one
/// never needs to.
fn matches_label(glob: &[u8], label: &[u8]) -> bool {
    let (mut at_glob, mut at_label) = (0, 0);
    // Behind the last `*`, and where it ended its match.
    let mut retry = None;
    while at_label < label.len() {
        match glob.get(at_glob) {
            Some(b'*') => {
                at_glob += 1;
                retry = Some((at_glob, at_label));
            }
            Some(byte) if *byte == label[at_label] => {
                at_glob += 1;
                at_label += 1;
            }
            _ => {
                let Some((behind, end)) = retry else {
                    return false;
                };
                retry = Some((behind, end + 1));
                (at_glob, at_label) = (behind, end + 1);
            }
        }
    }
    glob[at_glob..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    fn glob(text: &str) -> DomainPattern {
        DomainPattern::glob(text).unwrap()
    }

    fn below(text: &str) -> DomainPattern {
        DomainPattern::below(text).unwrap()
    }

    #[test]
    fn a_name_has_one_spelling() {
        let name: DomainName = "API.Example.com.".parse().unwrap();
        assert_eq!(name.as_str(), "api.example.com");
        assert_eq!(name, "api.example.com".parse().unwrap());
        assert_eq!(name.labels().count(), 3);
        assert_eq!(
            "_sip._tcp.a".parse::<DomainName>().unwrap().to_string(),
            "_sip._tcp.a"
        );
    }

    #[test]
    fn what_is_no_name_is_refused_with_a_reason() {
        let label = "a".repeat(64);
        let name = ["a".repeat(63).as_str(); 4].join(".");
        for (text, error) in [
            ("", DomainNameError::Empty),
            (".", DomainNameError::Empty),
            ("a..b", DomainNameError::EmptyLabel),
            (".a", DomainNameError::EmptyLabel),
            ("a..", DomainNameError::EmptyLabel),
            (&label, DomainNameError::LongLabel),
            (&name, DomainNameError::LongName),
            ("bücher.example", DomainNameError::NotAscii),
            ("a b", DomainNameError::Character),
            ("*.a", DomainNameError::Character),
        ] {
            assert_eq!(text.parse::<DomainName>(), Err(error), "{text:?}");
        }
        assert_eq!(DomainPattern::glob("a/*"), Err(DomainNameError::Character));
    }

    #[test]
    fn a_star_stays_within_its_label() {
        let pattern = glob("*.cilium.io");
        assert!(pattern.matches("sub.cilium.io"));
        assert!(!pattern.matches("cilium.io"));
        assert!(!pattern.matches("a.b.cilium.io"));
        let pattern = glob("a*b*c.x");
        for (name, matched) in [
            ("abc.x", true),
            ("a1b2bc.x", true),
            ("abcd.x", false),
            ("abc", false),
            ("ac.x", false),
        ] {
            assert_eq!(pattern.matches(name), matched, "{name}");
        }
        assert!(glob("sub*.cilium.io").matches("sub.cilium.io"));
        assert!(glob("*").matches("a") && !glob("*").matches("a.b"));
        assert!(glob("**.a").matches("b.a") && !glob("**.a").matches("c.b.a"));
    }

    #[test]
    fn below_is_one_label_or_several() {
        let pattern = below("example.com");
        for (name, matched) in [
            ("example.com", false),
            ("a.example.com", true),
            ("b.a.example.com", true),
            ("aexample.com", false),
            ("com", false),
        ] {
            assert_eq!(pattern.matches(name), matched, "{name}");
        }
        assert!(below("*.com").matches("x.y.com") && !below("*.com").matches("y.com"));
        assert!(DomainPattern::Any.matches("a.b.c"));
    }

    /// The same by trying everything: a star is nothing, or a character other than a dot and the star again.
    fn naive_matches(glob: &[u8], name: &[u8]) -> bool {
        match glob {
            [] => name.is_empty(),
            [b'*', rest @ ..] => {
                naive_matches(rest, name)
                    || name.first().is_some_and(|byte| *byte != b'.')
                        && naive_matches(glob, &name[1..])
            }
            [byte, rest @ ..] => name.first() == Some(byte) && naive_matches(rest, &name[1..]),
        }
    }

    /// Every text of at most so many of these characters.
    fn texts(characters: &[u8], longest: u32) -> impl Iterator<Item = String> {
        let count = characters.len();
        (1..=longest).flat_map(move |length| {
            (0..count.pow(length)).map(move |number| {
                let character = |at| char::from(characters[number / count.pow(at) % count]);
                (0..length).map(character).collect()
            })
        })
    }

    #[test]
    fn all_short_patterns_match_as_a_naive_reading() {
        let names: Vec<String> = texts(b"ab.", 6)
            .filter(|text| text.parse::<DomainName>().is_ok())
            .collect();
        let mut matched = 0;
        for text in texts(b"ab.*", 5) {
            // What ends with a dot is another spelling of what does not.
            let Ok(pattern) = DomainPattern::glob(&text) else {
                continue;
            };
            let below = DomainPattern::below(&text).unwrap();
            let text = text.strip_suffix('.').unwrap_or(&text);
            for name in names.iter().filter(|name| !name.ends_with('.')) {
                let is_match = naive_matches(text.as_bytes(), name.as_bytes());
                assert_eq!(pattern.matches(name), is_match, "{text} {name}");
                let mut ends = name.match_indices('.').map(|(at, _)| &name[at + 1..]);
                let is_below = ends.any(|end| naive_matches(text.as_bytes(), end.as_bytes()));
                assert_eq!(below.matches(name), is_below, "{below} {name}");
                matched += usize::from(is_match);
            }
        }
        assert!(matched > 1_000, "{matched}");
    }

    #[test]
    fn one_name_is_told_from_patterns() {
        assert_eq!(glob("A.b.").only_name(), Some("a.b"));
        for pattern in [glob("*.b"), below("b"), DomainPattern::Any] {
            assert_eq!(pattern.only_name(), None);
        }
    }

    #[test]
    fn patterns_are_printed_as_they_are_written() {
        for (pattern, text) in [
            (DomainPattern::Any, "*"),
            (glob("*"), "*."),
            (glob("a.*"), "a.*"),
            (below("a"), "**.a"),
        ] {
            assert_eq!(pattern.to_string(), text);
        }
    }

    #[test]
    fn a_hostile_pattern_costs_its_length() {
        let pattern = glob(&"*a".repeat(31));
        assert!(!pattern.matches(&"a".repeat(30)));
        assert!(pattern.matches(&"a".repeat(63)));
        assert!(!pattern.matches(&[&"a".repeat(62), "b"].concat()));
    }
}
