//! The bytes of an entry: a header with the length and two checksums, then lengths, key, version and text.
//!
//! Promises: an entry that was written in part is told from one that is damaged, whatever byte is wrong.

use super::SnapshotError;
use std::collections::BTreeMap;
use std::path::Path;

/// Length, checksum of the content, checksum of both.
const HEADER: usize = 4 + 8 + 4;

/// An object in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry<'a> {
    /// Names the object within the source.
    pub key: &'a str,
    /// Its version, as the server writes it.
    pub version: &'a str,
    /// Its text.
    pub text: &'a str,
}

impl SnapshotEntry<'_> {
    pub(super) fn encoded_length(&self) -> usize {
        HEADER + 8 + self.key.len() + self.version.len() + self.text.len()
    }
}

/// Source: FNV-1a of 64 bits.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Adds an entry: its header, then the lengths of key and version (`u32::MAX` of an object that was removed),
/// key, version and text.
pub(super) fn encode(key: &str, value: Option<(&str, &str)>, out: &mut Vec<u8>) {
    let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
    let (version, text) = value.unwrap_or_default();
    let start = out.len();
    out.resize(start + HEADER, 0);
    out.extend(length(key).to_le_bytes());
    out.extend(value.map_or(u32::MAX, |_| length(version)).to_le_bytes());
    for part in [key, version, text] {
        out.extend(part.as_bytes());
    }
    let content = out.get(start + HEADER..).unwrap_or_default();
    let mut header = Vec::with_capacity(HEADER);
    header.extend(
        u32::try_from(content.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    header.extend(checksum(content).to_le_bytes());
    header.extend((checksum(&header) as u32).to_le_bytes());
    out[start..start + HEADER].copy_from_slice(&header);
}

/// The number at the beginning of a text, and the rest.
fn split_u32(text: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = text.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// The length of the content of the entry at the beginning, and its checksum; `None` if its header is damaged.
fn read_header(text: &[u8]) -> Option<(usize, u64)> {
    let header = text.first_chunk::<HEADER>()?;
    let (length, rest) = split_u32(header)?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (own, _) = split_u32(rest)?;
    let is_intact = checksum(header.get(..HEADER - 4)?) as u32 == own;
    is_intact.then_some((length as usize, u64::from_le_bytes(*sum)))
}

/// The length of the entries that were written whole. An entry that ends beyond the file was being written when
/// the process died.
pub(super) fn complete_length(text: &[u8], path: &Path) -> Result<usize, SnapshotError> {
    let mut at = 0;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        if rest.len() < HEADER {
            return Ok(at);
        }
        let Some((length, _)) = read_header(rest) else {
            return Err(damaged(path, at));
        };
        if rest.len() < HEADER + length {
            return Ok(at);
        }
        at += HEADER + length;
    }
}

fn damaged(path: &Path, at: usize) -> SnapshotError {
    SnapshotError::Damaged {
        path: path.to_path_buf(),
        at,
    }
}

/// The last entry of each key; `None` if it was removed.
pub(super) fn last_entries<'t>(
    text: &'t [u8],
    path: &Path,
) -> Result<BTreeMap<&'t str, Option<SnapshotEntry<'t>>>, SnapshotError> {
    let mut entries = BTreeMap::new();
    let mut at = 0;
    while at < text.len() {
        let rest = text.get(at..).unwrap_or_default();
        let read = read_header(rest).and_then(|(length, sum)| {
            let content = rest.get(HEADER..HEADER + length)?;
            let entry = decode(content).filter(|_| checksum(content) == sum)?;
            Some((length, entry))
        });
        let Some((length, (key, entry))) = read else {
            return Err(damaged(path, at));
        };
        entries.insert(key, entry);
        at += HEADER + length;
    }
    Ok(entries)
}

/// The key of an entry, and the entry unless it was removed.
fn decode(content: &[u8]) -> Option<(&str, Option<SnapshotEntry<'_>>)> {
    let (key, rest) = split_u32(content)?;
    let (version, rest) = split_u32(rest)?;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let (key, rest) = rest.split_at_checked(key as usize)?;
    let key = text(key)?;
    if version == u32::MAX {
        return rest.is_empty().then_some((key, None));
    }
    let (version, rest) = rest.split_at_checked(version as usize)?;
    let entry = SnapshotEntry {
        key,
        version: text(version)?,
        text: text(rest)?,
    };
    Some((key, Some(entry)))
}
