//! A hash of the content of an object, and of its rules.

use palisade_manifest::{ManifestNode, ManifestValue, MapEntry};
use std::collections::BTreeMap;
use std::fmt;

/// Identifies the content of an object: equal for equal values, whatever the file, line, order of fields or
/// notation. The same in every run and build. Not resistant to deliberate collisions.
// Kept for every object of a cluster: aligned as a word, it takes no padding beside other fields.
#[repr(Rust, packed(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub u128);

impl ContentHash {
    /// The hash of a value.
    #[must_use]
    pub fn of(node: &ManifestNode) -> Self {
        // Source: FNV-1a of 128 bits, its offset basis.
        let mut hash = ContentHasher(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        hash.node(node);
        ContentHash(hash.0)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", { self.0 })
    }
}

/// The fingerprints of the rules of one direction ([`palisade_model::RuleOrigin::fingerprint`]).
#[derive(Debug, Default)]
pub(crate) struct RuleFingerprints {
    /// How many rules of each content were added.
    counts: BTreeMap<ContentHash, u32>,
}

impl RuleFingerprints {
    /// A hash of the next rule as written: never 0, and not the hash of an equal rule before it.
    pub(crate) fn add(&mut self, rule: &ManifestNode) -> u64 {
        let content = ContentHash::of(rule);
        let earlier = self.counts.entry(content).or_default();
        let number = (content.0 as u64).wrapping_add(u64::from(*earlier)).max(1);
        *earlier += 1;
        number
    }
}

// Source: FNV-1a of 128 bits, its prime.
const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;

struct ContentHasher(u128);

impl ContentHasher {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }

    /// Hashes the eight bytes of a number, lowest first. A zero byte only multiplies, so those of a small
    /// number, as most are, take one step.
    fn number(&mut self, number: u64) {
        const PRIME_TO_THE_EIGHTH: u128 = PRIME.wrapping_pow(8);
        match u8::try_from(number) {
            Ok(byte) => self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(PRIME_TO_THE_EIGHTH),
            Err(_) => self.bytes(&number.to_le_bytes()),
        }
    }

    /// Hashes the type of a value and its length: without both, `["a", "b"]` and `["ab"]` would have equal
    /// hashes.
    fn value_header(&mut self, tag: u8, length: usize) {
        self.bytes(&[tag]);
        self.number(length as u64);
    }

    fn text(&mut self, text: &str) {
        self.value_header(b's', text.len());
        self.bytes(text.as_bytes());
    }

    fn entry(&mut self, entry: &MapEntry) {
        self.text(&entry.key);
        self.node(&entry.value);
    }

    fn node(&mut self, node: &ManifestNode) {
        match &node.value {
            ManifestValue::Null => self.value_header(b'n', 0),
            ManifestValue::Bool(value) => self.value_header(b'b', usize::from(*value)),
            ManifestValue::Int(value) => {
                self.value_header(b'i', 0);
                self.bytes(&value.to_le_bytes());
            }
            ManifestValue::Float(value) => {
                self.value_header(b'f', 0);
                self.bytes(&value.to_bits().to_le_bytes());
            }
            ManifestValue::String(text) => self.text(text),
            ManifestValue::List(items) => {
                self.value_header(b'l', items.len());
                for item in items {
                    self.node(item);
                }
            }
            ManifestValue::Map(map) => {
                self.value_header(b'm', map.len());
                if map.iter().is_sorted_by(|a, b| a.key <= b.key) {
                    return map.iter().for_each(|entry| self.entry(entry));
                }
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by(|a, b| a.key.cmp(&b.key));
                entries.into_iter().for_each(|entry| self.entry(entry));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_manifest::{Limits, parse};

    fn hash(text: &str) -> ContentHash {
        let reading = parse("x.yaml", text.as_bytes(), &Limits::default());
        ContentHash::of(&reading.documents[0].root)
    }

    #[test]
    fn the_bytes_of_a_number_are_hashed_in_one_step() {
        for number in [0, 1, 255, 256, 1 << 40, u64::MAX] {
            let (mut all, mut each) = (ContentHasher(7), ContentHasher(7));
            all.number(number);
            each.bytes(&number.to_le_bytes());
            assert_eq!(all.0, each.0, "{number}");
        }
    }

    #[test]
    fn equal_for_equal_content_and_only_then() {
        assert_eq!(
            hash("a: 1\nb: [p, q]"),
            hash("{\"b\": [\"p\",\"q\"],\n\n \"a\": 1}")
        );
        let different = [
            "a: [p, q]",
            "a: [q, p]",
            "a: [pq]",
            "a: [p, [q]]",
            "a: 1",
            "a: '1'",
            "a: true",
            "a: ",
            "a: {}",
            "a: []",
            "b: 1",
            "a: 1.5",
        ];
        let hashes: std::collections::BTreeSet<_> = different.iter().map(|t| hash(t)).collect();
        assert_eq!(hashes.len(), different.len());
    }
}
