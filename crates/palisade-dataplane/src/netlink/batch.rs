//! A step's operations as one netlink batch.
//!
//! Promises: the batch does what the operations say, in their order; a refusal
//! of one of its messages, or of one element in it, is led back to the
//! operation that asked for it.
//!
//! Never: an element list longer than an attribute can say; long ones are cut
//! into several messages of the same batch.

use palisade_model::Str;
use palisade_nft::{ChainKind, Element, Expr, Field, Key, Op, SetDecl};
use palisade_sys::netlink::{AttrWriter, KernelError, WireError};
use palisade_sys::nfnetlink::nf_tables::*;
use palisade_sys::nfnetlink::{Batch, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use thiserror::Error;

use super::object;
use super::set::{self, Ranges};
use super::userdata::MAX_COMMENT;

/// Family `inet`.
pub(super) const INET: u8 = 1;
/// Element lists end well before the 64 KiB an attribute can say.
const LIST_BYTES: usize = 60_000;

/// An operation that cannot be written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// Something observed in the kernel that is never written here.
    #[error("it holds {0}, which is never written")]
    Unwritable(String),
    /// It does not fit into a message.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// A batch and where its messages come from.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) batch: Batch,
    /// For each message, the operations in it with the offset at which each begins.
    origins: Vec<Vec<(u32, usize)>>,
}

impl Encoded {
    /// The operation a refusal is about.
    pub(super) fn operation(&self, message: usize, error: &KernelError) -> Option<usize> {
        let operations = self.origins.get(message)?;
        let at = match error.offset {
            Some(offset) => operations.partition_point(|(start, _)| *start <= offset),
            // Without a place, it is about the whole if that is one.
            None => usize::from(operations.len() == 1),
        };
        operations.get(at.checked_sub(1)?).map(|(_, op)| *op)
    }
}

/// Elements on their way into one message.
struct Pending {
    set: Str,
    delete: bool,
    list: Vec<u8>,
    starts: Vec<(u32, usize)>,
}

struct Encoder<'a> {
    table: &'a str,
    encoded: Encoded,
    pending: Option<Pending>,
}

/// Encodes `ops` on `table`; on failure, says which of them cannot be written.
pub(super) fn encode(
    table: &str,
    ops: &[Op],
    ranges: &mut dyn FnMut(&str) -> Ranges,
) -> Result<Encoded, (usize, EncodeError)> {
    let mut encoder = Encoder {
        table,
        encoded: Encoded {
            batch: Batch::nf_tables(),
            origins: Vec::new(),
        },
        pending: None,
    };
    for (index, op) in ops.iter().enumerate() {
        let at = |error| (index, error);
        check(op).map_err(at)?;
        match op {
            Op::AddElement { set, key, element } => {
                let ranges = ranges(set);
                encoder.element(index, set, ranges, key, Some(element))
            }
            Op::DeleteElement { set, key } => {
                let ranges = ranges(set);
                encoder.element(index, set, ranges, key, None)
            }
            _ => encoder.flush().and_then(|()| encoder.object(index, op)),
        }
        .map_err(at)?;
    }
    encoder
        .flush()
        .map_err(|error| (ops.len().saturating_sub(1), error))?;
    Ok(encoder.encoded)
}

impl Encoder<'_> {
    fn message(
        &mut self,
        operations: Vec<(u32, usize)>,
        kind: u8,
        flags: u16,
        body: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<(), EncodeError> {
        self.encoded.batch.push(kind, flags, INET, body)?;
        self.encoded.origins.push(operations);
        Ok(())
    }

    fn object(&mut self, index: usize, op: &Op) -> Result<(), EncodeError> {
        let table = self.table;
        let whole = vec![(0, index)];
        let create = NLM_F_CREATE | NLM_F_EXCL;
        match op {
            Op::AddTable { comment, flags } => self.message(whole, NFT_MSG_NEWTABLE, create, |w| {
                object::write_table(w, table, comment.as_deref(), *flags);
            }),
            Op::DeleteTable => self.message(whole, NFT_MSG_DELTABLE, 0, |w| {
                w.text(NFTA_TABLE_NAME, table);
            }),
            Op::AddSet { set, decl } => {
                let id = index as u32 + 1;
                self.message(whole, NFT_MSG_NEWSET, create, |w| {
                    set::write_decl(w, table, set, decl, id);
                })
            }
            Op::DeleteSet { set } => self.message(whole, NFT_MSG_DELSET, 0, |w| {
                w.text(NFTA_SET_TABLE, table).text(NFTA_SET_NAME, set);
            }),
            Op::AddChain { chain, base } => self.message(whole, NFT_MSG_NEWCHAIN, create, |w| {
                object::write_chain(w, table, chain, base.as_ref());
            }),
            Op::DeleteChain { chain } => self.message(whole, NFT_MSG_DELCHAIN, 0, |w| {
                w.text(NFTA_CHAIN_TABLE, table).text(NFTA_CHAIN_NAME, chain);
            }),
            Op::AddRule { chain, rule } => {
                let flags = NLM_F_CREATE | NLM_F_APPEND;
                self.message(whole, NFT_MSG_NEWRULE, flags, |w| {
                    object::write_rule(w, table, chain, rule);
                })
            }
            // Without a handle, all rules of the chain are meant.
            Op::FlushChain { chain } => self.message(whole, NFT_MSG_DELRULE, 0, |w| {
                w.text(NFTA_RULE_TABLE, table).text(NFTA_RULE_CHAIN, chain);
            }),
            Op::AddElement { .. } | Op::DeleteElement { .. } => Ok(()),
        }
    }

    fn element(
        &mut self,
        index: usize,
        set: &Str,
        ranges: Ranges,
        key: &Key,
        element: Option<&Element>,
    ) -> Result<(), EncodeError> {
        let delete = element.is_none();
        let fits = self.pending.as_ref().is_some_and(|pending| {
            pending.set == *set && pending.delete == delete && pending.list.len() < LIST_BYTES
        });
        if !fits {
            self.flush()?;
        }
        let pending = self.pending.get_or_insert_with(|| Pending {
            set: set.clone(),
            delete,
            list: Vec::new(),
            starts: Vec::new(),
        });
        pending.starts.push((pending.list.len() as u32, index));
        let mut writer = AttrWriter::new(&mut pending.list);
        set::write_element(&mut writer, ranges, key, element);
        Ok(writer.finish()?)
    }

    fn flush(&mut self) -> Result<(), EncodeError> {
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
                    w.written(&pending.list);
                });
        })?;
        for (start, _) in &mut pending.starts {
            *start += list_start as u32;
        }
        self.encoded.origins.push(pending.starts);
        Ok(())
    }
}

/// Refuses what was only ever observed, and what the kernel or `nft` would not take back.
fn check(op: &Op) -> Result<(), EncodeError> {
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
        Op::AddSet { decl, .. } => match unknown_in(decl) {
            Some(what) => unwritable(what),
            None => Ok(()),
        },
        Op::AddChain {
            base: Some(base), ..
        } if base.kind == ChainKind::Other => {
            unwritable("a base chain of another type than filter and nat".to_owned())
        }
        _ => Ok(()),
    }
}

fn unknown_in(decl: &SetDecl) -> Option<String> {
    let field = |field: &Field| match field {
        Field::Unknown { id, .. } => Some(format!("a field of the unknown type {id}")),
        _ => None,
    };
    let data = match &decl.data {
        Some(palisade_nft::Data::Value(value)) => field(value),
        _ => None,
    };
    decl.unknown
        .as_ref()
        .map(ToString::to_string)
        .or_else(|| decl.key.iter().find_map(field))
        .or(data)
}
