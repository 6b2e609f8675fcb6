//! A table of nf_tables as the kernel dumps it: kept as text, a message a line, and written again as it was.
//!
//! Never: interprets what is in it, beyond what only the kernel may say (handles, use counts, owners).

use palisade_sys::netns::NetNs;
use palisade_sys::nfnetlink::nf_tables::*;
use palisade_sys::nfnetlink::{
    KernelNfnetlink, NFNL_SUBSYS_NFTABLES, NLM_F_APPEND, NLM_F_CREATE, NfBatch, NfRequest,
    Nfnetlink,
};
use std::fmt::{Display, Formatter};

const INET: u8 = 1;
const NFT_MSG_NEWOBJ: u8 = 18;
/// The table, in messages about what is in it.
const TABLE: u16 = 1;

/// What is listed, in the order in which it is written: a rule names sets, an element names chains and objects.
const LISTINGS: [u8; 5] = [
    NFT_MSG_GETTABLE,
    NFT_MSG_GETCHAIN,
    NFT_MSG_GETOBJ,
    NFT_MSG_GETSET,
    NFT_MSG_GETRULE,
];

/// A message without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordedMessage {
    kind: u8,
    attributes: Vec<u8>,
}

/// The messages of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedTable {
    messages: Vec<RecordedMessage>,
}

impl RecordedTable {
    /// Dumps a table of family inet.
    pub(super) fn read(netns: &NetNs, table: &str) -> Self {
        let mut nf = KernelNfnetlink::open(netns).unwrap();
        let mut messages = Vec::new();
        for listing in LISTINGS {
            let found = dump(&mut nf, listing, table, None);
            let sets = found.iter().filter(|m| m.kind == NFT_MSG_NEWSET);
            let names: Vec<String> = sets.map(|m| text(&m.attributes, NFTA_SET_NAME)).collect();
            messages.extend(found);
            for name in names {
                messages.extend(dump(&mut nf, NFT_MSG_GETSETELEM, table, Some(&name)));
            }
        }
        RecordedTable { messages }
    }

    /// Reads what was kept.
    pub(super) fn parse(kept: &str) -> Self {
        let byte = |pair: &[u8]| {
            let digits = str::from_utf8(pair).unwrap();
            u8::from_str_radix(digits, 16).unwrap()
        };
        let message = |line: &str| {
            let (kind, attributes) = line.split_once(' ').unwrap();
            RecordedMessage {
                kind: kind.parse().unwrap(),
                attributes: attributes.as_bytes().chunks(2).map(byte).collect(),
            }
        };
        RecordedTable {
            messages: kept.lines().map(message).collect(),
        }
    }

    /// Writes another name of the same length in place of one, such as that of an interface.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len(), "{from} {to}");
        for message in &mut self.messages {
            let bytes = &mut message.attributes;
            let mut at = 0;
            while at + from.len() <= bytes.len() {
                if &bytes[at..at + from.len()] == from.as_bytes() {
                    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
                }
                at += 1;
            }
        }
    }

    /// Makes the table, in one transaction.
    pub(super) fn write(&self, netns: &NetNs) {
        let mut batch = NfBatch::nf_tables();
        for (number, message) in self.messages.iter().enumerate() {
            let flags = match message.kind {
                NFT_MSG_NEWRULE => NLM_F_CREATE | NLM_F_APPEND,
                _ => NLM_F_CREATE,
            };
            let kept = without(&message.attributes, said_by_the_kernel(message.kind));
            let number = u32::try_from(number).unwrap();
            batch
                .push(message.kind, flags, INET, |writer| {
                    writer.append_encoded(&kept);
                    if message.kind == NFT_MSG_NEWSET {
                        writer.be32(NFTA_SET_ID, number);
                    }
                })
                .unwrap();
        }
        let mut nf = KernelNfnetlink::open(netns).unwrap();
        let result = nf.commit(&batch);
        if let Err(error) = result {
            panic!("{error}");
        }
    }
}

impl Display for RecordedTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for message in &self.messages {
            write!(f, "{} ", message.kind)?;
            for byte in &message.attributes {
                write!(f, "{byte:02x}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// The attributes of a kind of message that are the kernel's alone.
fn said_by_the_kernel(kind: u8) -> &'static [u16] {
    match kind {
        // Use, handle, owner.
        NFT_MSG_NEWTABLE => &[3, 4, 7],
        // Handle, use.
        NFT_MSG_NEWCHAIN => &[2, 6],
        // Handle, position.
        NFT_MSG_NEWRULE => &[3, 6],
        // Handle, kind of its memory, count.
        NFT_MSG_NEWSET => &[16, 19, 20],
        // Use, handle.
        NFT_MSG_NEWOBJ => &[5, 6],
        _ => &[],
    }
}

/// The attributes, encoded, one at a time with their numbers.
fn split(mut encoded: &[u8]) -> Vec<(u16, &[u8])> {
    let mut attributes = Vec::new();
    while let [l0, l1, k0, k1, ..] = *encoded {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let padded = length.next_multiple_of(4).min(encoded.len());
        let kind = u16::from_ne_bytes([k0, k1]) & 0x3fff;
        attributes.push((kind, &encoded[..padded]));
        encoded = &encoded[padded..];
    }
    attributes
}

fn without(encoded: &[u8], kinds: &[u16]) -> Vec<u8> {
    let attributes = split(encoded);
    let kept = attributes.iter().filter(|(kind, _)| !kinds.contains(kind));
    kept.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
}

/// The text of an attribute.
fn text(encoded: &[u8], wanted: u16) -> String {
    let attributes = split(encoded);
    let found = attributes.iter().find(|(kind, _)| *kind == wanted);
    let text = &found.unwrap().1[4..];
    let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
    str::from_utf8(&text[..end]).unwrap().to_owned()
}

/// What a listing has of a table, or of a set in it.
fn dump(
    nf: &mut KernelNfnetlink,
    listing: u8,
    table: &str,
    set: Option<&str>,
) -> Vec<RecordedMessage> {
    let query = NfRequest::new("recording", NFNL_SUBSYS_NFTABLES, listing, INET, |writer| {
        if let Some(set) = set {
            writer
                .text(NFTA_SET_ELEM_LIST_TABLE, table)
                .text(NFTA_SET_ELEM_LIST_SET, set);
        }
    });
    let messages = nf.dump(&query.unwrap()).unwrap();
    messages
        .into_iter()
        .map(|message| RecordedMessage {
            kind: message.kind,
            attributes: message.attributes,
        })
        .filter(|message| text(&message.attributes, TABLE) == table)
        .collect()
}
