//! Table ownership: which socket may change a table, and the lock against a second agent.
//!
//! A table with an owner (`NFT_TABLE_F_OWNER`) can be changed only through its owner's netlink socket: the
//! kernel refuses changes by others, and their `flush ruleset` skips the table. A table that is persistent
//! as well stays when that socket is closed, and another socket can take it over. A second, empty table that
//! is owned and *not* persistent is a lock: the kernel removes it when its owner's socket is closed, for
//! whatever reason.
//!
//! Promises: queries change nothing. Never: takes a table from an open socket.

use palisade_model::Str;
use palisade_nft::table_flag;
use palisade_sys::Errno;
use palisade_sys::netlink::{AttrWriter, WireError};
use palisade_sys::nfnetlink::nf_tables::*;
use palisade_sys::nfnetlink::{
    BatchError, NFNL_SUBSYS_NFTABLES, NLM_F_CREATE, NLM_F_EXCL, NfBatch, NfRequest, NfRequestError,
    Nfnetlink,
};
use thiserror::Error;

use super::batch::INET;
use super::object;

/// A table cannot be taken over.
#[derive(Debug, Error)]
pub enum OwnerError {
    /// It is owned by an open socket.
    #[error(
        "table inet {table} is owned by another running agent (netlink port {port}, usually its process \
         ID): stop it, or configure another `table` for this one"
    )]
    OwnedByOther {
        /// The table.
        table: Str,
        /// The netlink port of the owner's socket.
        port: u32,
    },
    /// Its owner could not be queried.
    #[error("asking who owns table inet {table}")]
    Query {
        /// The table.
        table: Str,
        /// The error.
        source: NfRequestError,
    },
    /// A message about the table could not be encoded or decoded.
    #[error("asking who owns table inet {table}")]
    Wire {
        /// The table.
        table: Str,
        /// The error.
        source: WireError,
    },
    /// The kernel refused.
    #[error("taking over table inet {table}")]
    Batch {
        /// The table.
        table: Str,
        /// The error.
        source: BatchError,
    },
}

/// The flags and owner of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableOwnership {
    flags: u32,
    owner: Option<u32>,
}

/// The name of the lock table of `table`.
fn lock_table_name(table: &str) -> Str {
    format!("{table}_lock").as_str().into()
}

/// Whether this kernel supports tables that are owned and persistent: asks it to create one in a transaction
/// that always fails, so nothing is created.
pub(crate) fn is_supported(
    nfnetlink: &mut impl Nfnetlink,
    table: &Str,
) -> Result<bool, OwnerError> {
    let name = format!("{table}_probe");
    let mut batch = NfBatch::nf_tables();
    for _ in 0..2 {
        push_table_message(&mut batch, NFT_MSG_NEWTABLE, |w| {
            object::write_table(w, &name, None, table_flag::OWNED);
        })
        .map_err(|source| wire_error(table, source))?;
    }
    match nfnetlink.commit(&batch) {
        // The second message fails because the table exists by then, so the first was accepted.
        Err(BatchError::Refused { index: Some(1), .. }) => Ok(true),
        Err(BatchError::Refused {
            index: Some(0),
            error,
            ..
        }) if is_unsupported_flag(error.errno) => Ok(false),
        Err(source) => Err(batch_error(table, source)),
        Ok(()) => Ok(false),
    }
}

/// Whether this is the error for a table flag that the kernel does not know.
fn is_unsupported_flag(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::EINVAL)
}

/// Fails if an open socket other than this one owns the table or its lock table.
pub(crate) fn check_owner(nfnetlink: &mut impl Nfnetlink, table: &Str) -> Result<(), OwnerError> {
    for name in [table.clone(), lock_table_name(table)] {
        table_ownership(nfnetlink, &name)?;
    }
    Ok(())
}

/// Takes the lock on a table; it lasts as long as this socket. No-op on a kernel without table owners
/// (before 5.12).
pub(crate) fn acquire_lock(nfnetlink: &mut impl Nfnetlink, table: &Str) -> Result<(), OwnerError> {
    let name = lock_table_name(table);
    let mut batch = NfBatch::nf_tables();
    let mut add = |kind, flags: Option<u32>| {
        let written = push_table_message(&mut batch, kind, |w| match flags {
            Some(flags) => {
                object::write_table(w, &name, Some("held by the agent that runs"), flags);
            }
            None => drop(w.text(NFTA_TABLE_NAME, &name)),
        });
        written.map_err(|source| wire_error(table, source))
    };
    match table_ownership(nfnetlink, &name)? {
        Some(TableOwnership { owner: Some(_), .. }) => return Ok(()),
        // A table without an owner locks nothing: it is replaced.
        Some(_) => add(NFT_MSG_DELTABLE, None)?,
        None => {}
    }
    add(NFT_MSG_NEWTABLE, Some(table_flag::OWNER))?;
    match nfnetlink.commit(&batch) {
        Err(BatchError::Refused {
            index: Some(_),
            error,
            ..
        }) if is_unsupported_flag(error.errno) => Ok(()),
        Err(source) => {
            // Another agent was faster.
            table_ownership(nfnetlink, &name)?;
            Err(batch_error(table, source))
        }
        Ok(()) => Ok(()),
    }
}

/// Fails if another socket owns the table; takes over an orphaned table if `owned` is set. A table that does
/// not exist, is not persistent, or is owned by this socket stays as it is.
pub(crate) fn take_ownership(
    nfnetlink: &mut impl Nfnetlink,
    table: &Str,
    owned: bool,
) -> Result<(), OwnerError> {
    let orphan =
        |entry: TableOwnership| entry.owner.is_none() && entry.flags == table_flag::PERSIST;
    if !table_ownership(nfnetlink, table)?.is_some_and(orphan) || !owned {
        return Ok(());
    }
    let mut batch = NfBatch::nf_tables();
    let message = batch.push(NFT_MSG_NEWTABLE, 0, INET, |w| {
        object::write_table(w, table, None, table_flag::OWNED);
    });
    message.map_err(|source| wire_error(table, source))?;
    match nfnetlink.commit(&batch) {
        Ok(()) => Ok(()),
        Err(source) => {
            table_ownership(nfnetlink, table)?;
            Err(batch_error(table, source))
        }
    }
}

/// The flags and owner of a table; `None` if it does not exist.
fn table_ownership(
    nfnetlink: &mut impl Nfnetlink,
    table: &Str,
) -> Result<Option<TableOwnership>, OwnerError> {
    let what = format!("reading table {table}");
    let query = NfRequest::new(what, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE, INET, |w| {
        w.text(NFTA_TABLE_NAME, table);
    });
    let query = query.map_err(|source| wire_error(table, source))?;
    let reply = nfnetlink.get(&query).map_err(|source| OwnerError::Query {
        table: table.clone(),
        source,
    })?;
    let Some(reply) = reply else { return Ok(None) };
    let number = |attr| {
        reply
            .attrs()
            .find(attr)?
            .map(|attr| attr.be32())
            .transpose()
    };
    let flags = number(NFTA_TABLE_FLAGS).map_err(|source| wire_error(table, source))?;
    let owner = number(NFTA_TABLE_OWNER).map_err(|source| wire_error(table, source))?;
    match owner {
        Some(port) if port != nfnetlink.portid() => Err(OwnerError::OwnedByOther {
            table: table.clone(),
            port,
        }),
        owner => Ok(Some(TableOwnership {
            flags: flags.unwrap_or_default(),
            owner,
        })),
    }
}

fn push_table_message(
    batch: &mut NfBatch,
    kind: u8,
    body: impl FnOnce(&mut AttrWriter<'_>),
) -> Result<(), WireError> {
    let flags = match kind {
        NFT_MSG_NEWTABLE => NLM_F_CREATE | NLM_F_EXCL,
        _ => 0,
    };
    batch.push(kind, flags, INET, body).map(drop)
}

fn wire_error(table: &Str, source: WireError) -> OwnerError {
    OwnerError::Wire {
        table: table.clone(),
        source,
    }
}

fn batch_error(table: &Str, source: BatchError) -> OwnerError {
    OwnerError::Batch {
        table: table.clone(),
        source,
    }
}
