//! Encodes a step's operations as one netlink batch.
//!
//! Promises: the batch has the operations in their order; a refusal of one message, or of one element in it,
//! is mapped to its operation.
//!
//! Never: an element list longer than a netlink attribute (64 KiB); long ones are split into several
//! messages of the same batch.

use palisade_model::Str;
use palisade_nft::{ChainType, Element, ElementKey, Expr, FieldType, Op, SetDecl};
use palisade_sys::netlink::{AttrWriter, KernelError, WireError};
use palisade_sys::nfnetlink::nf_tables::*;
use palisade_sys::nfnetlink::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NfBatch};
use thiserror::Error;

use super::object;
use super::set::{self, RangeEncoding};
use super::userdata::MAX_COMMENT;

/// Family `inet`.
pub(super) const INET: u8 = 1;
/// Limit of an element list, below the 64 KiB of an attribute.
const LIST_BYTES: usize = 60_000;

/// An operation that cannot be encoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// It has a property seen in the kernel that is never written.
    #[error("cannot encode {0}: not supported")]
    Unwritable(String),
    /// It does not fit into a message.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// A batch, and the operations of its messages.
#[derive(Debug)]
pub(super) struct EncodedBatch {
    pub(super) batch: NfBatch,
    /// For each message, the operations in it with the offset at which each begins.
    operations: Vec<Vec<(u32, usize)>>,
}

impl EncodedBatch {
    /// The operation that the kernel refused.
    pub(super) fn operation(&self, message: usize, error: &KernelError) -> Option<usize> {
        let operations = self.operations.get(message)?;
        let at = match error.offset {
            Some(offset) => operations.partition_point(|(start, _)| *start <= offset),
            // Without an offset the error is about the whole message: known only if it has one operation.
            None => usize::from(operations.len() == 1),
        };
        operations.get(at.checked_sub(1)?).map(|(_, op)| *op)
    }
}

/// Elements collected for one message.
struct ElementList {
    set: Str,
    delete: bool,
    list: Vec<u8>,
    offsets: Vec<(u32, usize)>,
}

struct BatchEncoder<'a> {
    table: &'a str,
    encoded: EncodedBatch,
    pending: Option<ElementList>,
}

/// Encodes `ops` on `table`; on failure, returns which of them cannot be encoded.
pub(super) fn encode(
    table: &str,
    ops: &[Op],
    ranges: &mut dyn FnMut(&str) -> RangeEncoding,
) -> Result<EncodedBatch, (usize, EncodeError)> {
    let mut encoder = BatchEncoder {
        table,
        encoded: EncodedBatch {
            batch: NfBatch::nf_tables(),
            operations: Vec::new(),
        },
        pending: None,
    };
    for (index, op) in ops.iter().enumerate() {
        let at = |error| (index, error);
        check_writable(op).map_err(at)?;
        match op {
            Op::AddElement { set, key, element } => {
                let ranges = ranges(set);
                encoder.push_element(index, set, ranges, key, Some(element))
            }
            Op::DeleteElement { set, key } => {
                let ranges = ranges(set);
                encoder.push_element(index, set, ranges, key, None)
            }
            _ => encoder
                .flush_elements()
                .and_then(|()| encoder.push_object(index, op)),
        }
        .map_err(at)?;
    }
    encoder
        .flush_elements()
        .map_err(|error| (ops.len().saturating_sub(1), error))?;
    Ok(encoder.encoded)
}

impl BatchEncoder<'_> {
    fn push_message(
        &mut self,
        operations: Vec<(u32, usize)>,
        kind: u8,
        flags: u16,
        body: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<(), EncodeError> {
        self.encoded.batch.push(kind, flags, INET, body)?;
        self.encoded.operations.push(operations);
        Ok(())
    }

    fn push_object(&mut self, index: usize, op: &Op) -> Result<(), EncodeError> {
        let table = self.table;
        let whole = vec![(0, index)];
        let create = NLM_F_CREATE | NLM_F_EXCL;
        match op {
            Op::AddTable { comment, flags } => {
                self.push_message(whole, NFT_MSG_NEWTABLE, create, |w| {
                    object::write_table(w, table, comment.as_deref(), *flags);
                })
            }
            Op::DeleteTable => self.push_message(whole, NFT_MSG_DELTABLE, 0, |w| {
                w.text(NFTA_TABLE_NAME, table);
            }),
            Op::AddSet { set, decl } => {
                let id = index as u32 + 1;
                self.push_message(whole, NFT_MSG_NEWSET, create, |w| {
                    set::write_decl(w, table, set, decl, id);
                })
            }
            Op::DeleteSet { set } => self.push_message(whole, NFT_MSG_DELSET, 0, |w| {
                w.text(NFTA_SET_TABLE, table).text(NFTA_SET_NAME, set);
            }),
            Op::AddChain {
                chain,
                base_chain: base,
            } => self.push_message(whole, NFT_MSG_NEWCHAIN, create, |w| {
                object::write_chain(w, table, chain, base.as_ref());
            }),
            Op::DeleteChain { chain } => self.push_message(whole, NFT_MSG_DELCHAIN, 0, |w| {
                w.text(NFTA_CHAIN_TABLE, table).text(NFTA_CHAIN_NAME, chain);
            }),
            Op::AddRule { chain, rule } => {
                let flags = NLM_F_CREATE | NLM_F_APPEND;
                self.push_message(whole, NFT_MSG_NEWRULE, flags, |w| {
                    object::write_rule(w, table, chain, rule);
                })
            }
            // Without a handle, the kernel deletes all rules of the chain.
            Op::FlushChain { chain } => self.push_message(whole, NFT_MSG_DELRULE, 0, |w| {
                w.text(NFTA_RULE_TABLE, table).text(NFTA_RULE_CHAIN, chain);
            }),
            Op::AddElement { .. } | Op::DeleteElement { .. } => Ok(()),
        }
    }

    fn push_element(
        &mut self,
        index: usize,
        set: &Str,
        ranges: RangeEncoding,
        key: &ElementKey,
        element: Option<&Element>,
    ) -> Result<(), EncodeError> {
        let delete = element.is_none();
        let fits = self.pending.as_ref().is_some_and(|pending| {
            pending.set == *set && pending.delete == delete && pending.list.len() < LIST_BYTES
        });
        if !fits {
            self.flush_elements()?;
        }
        let pending = self.pending.get_or_insert_with(|| ElementList {
            set: set.clone(),
            delete,
            list: Vec::new(),
            offsets: Vec::new(),
        });
        pending.offsets.push((pending.list.len() as u32, index));
        let mut writer = AttrWriter::new(&mut pending.list);
        set::write_element(&mut writer, ranges, key, element);
        Ok(writer.finish()?)
    }

    fn flush_elements(&mut self) -> Result<(), EncodeError> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        let (kind, flags) = if pending.delete {
            (NFT_MSG_DELSETELEM, 0)
        } else {
            (NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL)
        };
        let table = self.table;
        let message_start = self.encoded.batch.byte_len();
        let mut list_start = 0;
        self.encoded.batch.push(kind, flags, INET, |w| {
            w.text(NFTA_SET_ELEM_LIST_TABLE, table)
                .text(NFTA_SET_ELEM_LIST_SET, &pending.set)
                .nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                    list_start = w.position() - message_start;
                    w.append_encoded(&pending.list);
                });
        })?;
        for (start, _) in &mut pending.offsets {
            *start += list_start as u32;
        }
        self.encoded.operations.push(pending.offsets);
        Ok(())
    }
}

/// Refuses properties that are only ever observed, and what the kernel or `nft` would not accept.
fn check_writable(op: &Op) -> Result<(), EncodeError> {
    let unwritable = |what: String| Err(EncodeError::Unwritable(what));
    let comment = match op {
        Op::AddTable { comment, .. } => comment,
        Op::AddRule { rule, .. } => &rule.comment,
        Op::AddElement { element, .. } => &element.comment,
        _ => &None,
    };
    if comment.as_ref().is_some_and(|c| c.len() > MAX_COMMENT) {
        return unwritable(format!("a comment of more than {MAX_COMMENT} bytes"));
    }
    match op {
        Op::AddRule { rule, .. } => {
            let unknown = rule.exprs.iter().find_map(|expr| match expr {
                Expr::Unknown(name) => Some(name),
                _ => None,
            });
            match unknown {
                Some(name) => unwritable(format!("expression {name}")),
                None => Ok(()),
            }
        }
        Op::AddSet { decl, .. } => match unknown_property(decl) {
            Some(what) => unwritable(what),
            None => Ok(()),
        },
        Op::AddChain {
            base_chain: Some(base),
            ..
        } if base.chain_type == ChainType::Other => {
            unwritable("a base chain whose type is not filter, nat or route".to_owned())
        }
        _ => Ok(()),
    }
}

fn unknown_property(decl: &SetDecl) -> Option<String> {
    let field = |field: &FieldType| match field {
        FieldType::Unknown { id, .. } => Some(format!("a field of unknown type {id}")),
        _ => None,
    };
    let data = match &decl.value_type {
        Some(palisade_nft::MapValueType::Value(value)) => field(value),
        _ => None,
    };
    decl.unknown
        .as_ref()
        .map(ToString::to_string)
        .or_else(|| decl.key.iter().find_map(field))
        .or(data)
}
