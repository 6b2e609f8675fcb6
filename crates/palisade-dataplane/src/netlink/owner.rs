//! Who may change a table, and that one agent at a time does.
//!
//! A table with an owner (`NFT_TABLE_F_OWNER`) can be changed through its owner's netlink socket alone:
//! what others try is refused, and their `flush ruleset` leaves it out. One that is persistent as well
//! stays when that socket is closed, and whoever comes next takes it over. A second, empty table that
//! is owned and *not* persistent is a lock: the kernel removes it with its holder's socket, however
//! that ends.
//!
//! Promises: asking changes nothing. Never: takes a table from a socket that is open.

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
    /// It is owned through a socket that is open.
    #[error(
        "table inet {table} belongs to another agent that runs (netlink port {port}, which is most \
         often the number of its process): stop it, or give this one another `table`"
    )]
    OwnedByOther {
        /// The table.
        table: Str,
        /// The port of the owner's socket.
        port: u32,
    },
    /// Its owner cannot be asked for.
    #[error("asking who owns table inet {table}")]
    Query {
        /// The table.
        table: Str,
        /// What happened.
        source: NfRequestError,
    },
    /// The kernel's answer, or the question, cannot be put into words.
    #[error("asking who owns table inet {table}")]
    Wire {
        /// The table.
        table: Str,
        /// What is wrong.
        source: WireError,
    },
    /// The kernel refused.
    #[error("taking over table inet {table}")]
    Batch {
        /// The table.
        table: Str,
        /// What happened.
        source: BatchError,
    },
}

/// What the kernel says of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableOwnership {
    flags: u32,
    owner: Option<u32>,
}

/// The table that is a lock on `table`.
fn lock_table_name(table: &str) -> Str {
    format!("{table}_lock").as_str().into()
}

/// Whether this kernel knows tables that are owned and persistent: it is asked to make one in a
/// transaction that cannot succeed, so nothing comes of it.
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
        // The second is one too many, so the first was none.
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

/// How a kernel refuses a flag that it does not know.
fn is_unsupported_flag(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::EINVAL)
}

/// Refuses if an open socket other than this one owns the table, or holds its lock.
pub(crate) fn check_owner(nfnetlink: &mut impl Nfnetlink, table: &Str) -> Result<(), OwnerError> {
    for name in [table.clone(), lock_table_name(table)] {
        table_ownership(nfnetlink, &name)?;
    }
    Ok(())
}

/// Takes the lock on a table, which lasts as long as this socket. A kernel without owners (before
/// 5.12) has none.
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
        // Nobody's, so it locks nothing.
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
            // Somebody was faster.
            table_ownership(nfnetlink, &name)?;
            Err(batch_error(table, source))
        }
        Ok(()) => Ok(()),
    }
}

/// Refuses a table that is another's; takes over one that outlived its owner, where it is to be
/// `owned`. One that is not there, is not persistent, or is this socket's already stays as it is.
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

/// What the kernel says of a table; `None` if it is not there.
fn table_ownership(
    nfnetlink: &mut impl Nfnetlink,
    table: &Str,
) -> Result<Option<TableOwnership>, OwnerError> {
    let what = format!("reading table {table}");
    let query = NfRequest::new(what, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE, INET, |w| {
        w.text(NFTA_TABLE_NAME, table);
    });
    let query = query.map_err(|source| wire_error(table, source))?;
    let found = nfnetlink.get(&query).map_err(|source| OwnerError::Query {
        table: table.clone(),
        source,
    })?;
    let Some(found) = found else { return Ok(None) };
    let number = |attr| {
        found
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
