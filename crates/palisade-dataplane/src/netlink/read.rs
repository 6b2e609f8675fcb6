//! Reading a table back.
//!
//! Promises: what is returned was in the kernel at one moment; if its state
//! never stands still, that is an error. What is not understood is told as
//! foreign, never left out.
//!
//! Never: reads tables of others.

use std::collections::BTreeMap;

use palisade_model::Str;
use palisade_nft::{Chain, Key, Rule, Ruleset, Set, SetDecl};
use palisade_sys::Errno;
use palisade_sys::netlink::{Attrs, WireError};
use palisade_sys::nfnetlink::nf_tables::*;
use palisade_sys::nfnetlink::{NFNL_SUBSYS_NFTABLES, Nfnetlink, Object, Query, QueryError};
use thiserror::Error;

use super::batch::INET;
use super::object;
use super::set::{self, ElementReader};

/// Number of the table attribute, the same in every kind of object.
const TABLE: u16 = 1;
/// A read during which the kernel's state changed is repeated at most so often.
const TRIES: usize = 32;

/// A table could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    /// The kernel refused.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// What the kernel sent cannot be read.
    #[error("reading {what} of table {table}: {error}")]
    Wire {
        /// The kind of object.
        what: &'static str,
        /// The table.
        table: String,
        /// What is wrong with it.
        error: WireError,
    },
    /// The ruleset changed during every one of several tries.
    #[error("table {table} could not be read: the kernel's ruleset did not stand still")]
    Restless {
        /// The table.
        table: String,
    },
}

/// Reads one table through an nfnetlink socket.
pub(super) struct Reader<'a, N> {
    nfnetlink: &'a mut N,
    table: &'a str,
}

impl<'a, N: Nfnetlink> Reader<'a, N> {
    pub(super) fn new(nfnetlink: &'a mut N, table: &'a str) -> Self {
        Self { nfnetlink, table }
    }

    /// The whole table; `None` if it is not there.
    pub(super) fn table(&mut self) -> Result<Option<Ruleset>, ReadError> {
        self.steadily(|this| {
            let Some(found) = this.get_table()? else {
                return Ok(None);
            };
            let mut ruleset = Ruleset::empty(this.table.into());
            (ruleset.comment, ruleset.flags) =
                this.wire("the table", object::read_table(&found.attrs()))?;
            ruleset.chains = this.chains(&mut ruleset.foreign)?;
            for (name, decl) in this.declarations()? {
                let elements = this.elements(&name, &decl)?;
                ruleset.sets.insert(name, Set { decl, elements });
            }
            for (kind, attr, what) in [
                (NFT_MSG_GETOBJ, NFTA_OBJ_NAME, "object"),
                (NFT_MSG_GETFLOWTABLE, NFTA_FLOWTABLE_NAME, "flowtable"),
            ] {
                for name in this.names(kind, attr, what)? {
                    ruleset.foreign.push(format!("{what} {name}").into());
                }
            }
            Ok(Some(ruleset))
        })
    }

    /// Runs `read` until the generation is the same before and after it.
    fn steadily<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        for _ in 0..TRIES {
            let before = self.nfnetlink.generation()?;
            let found = read(self);
            let steady = self.nfnetlink.generation()? == before;
            match found {
                // An object may have gone between two queries.
                Err(ReadError::Query(error)) if !steady && error.error.errno == Errno::ENOENT => {}
                Err(error) => return Err(error),
                Ok(found) if steady => return Ok(found),
                Ok(_) => {}
            }
        }
        Err(ReadError::Restless {
            table: self.table.to_owned(),
        })
    }

    fn wire<T>(&self, what: &'static str, read: Result<T, WireError>) -> Result<T, ReadError> {
        read.map_err(|error| ReadError::Wire {
            what,
            table: self.table.to_owned(),
            error,
        })
    }

    fn query(
        &self,
        what: &'static str,
        kind: u8,
        more: impl FnOnce(&mut palisade_sys::netlink::AttrWriter<'_>),
    ) -> Result<Query, ReadError> {
        let query = Query::new(
            format!("listing {what} of table {}", self.table),
            NFNL_SUBSYS_NFTABLES,
            kind,
            INET,
            |w| {
                w.text(TABLE, self.table);
                more(w);
            },
        );
        self.wire(what, query)
    }

    fn get_table(&mut self) -> Result<Option<Object>, ReadError> {
        let query = self.query("the table", NFT_MSG_GETTABLE, |_| {})?;
        Ok(self.nfnetlink.get(&query)?)
    }

    /// The objects of one kind; a table that went away has none.
    fn list(&mut self, what: &'static str, kind: u8) -> Result<Vec<Object>, ReadError> {
        let query = self.query(what, kind, |_| {})?;
        let mut objects = self.nfnetlink.dump(&query)?;
        // Not every kernel filters every kind of object by table.
        let mut unreadable = None;
        objects.retain(|object| match of_table(&object.attrs(), self.table) {
            Ok(ours) => ours,
            Err(error) => {
                unreadable = Some(error);
                false
            }
        });
        match unreadable {
            Some(error) => self.wire(what, Err(error)),
            None => Ok(objects),
        }
    }

    fn names(&mut self, kind: u8, attr: u16, what: &'static str) -> Result<Vec<String>, ReadError> {
        let objects = match self.list(what, kind) {
            // A kernel built without such objects has none.
            Err(ReadError::Query(error)) if error.error.errno == Errno::EOPNOTSUPP => {
                return Ok(Vec::new());
            }
            other => other?,
        };
        let names = objects.iter().map(|object| {
            let name = object.attrs().need(attr, what)?.text()?;
            Ok(name.to_owned())
        });
        let names = names.collect();
        self.wire(what, names)
    }

    /// All chains with their rules; rules without a chain are told as foreign.
    pub(super) fn chains(
        &mut self,
        foreign: &mut Vec<Str>,
    ) -> Result<BTreeMap<Str, Chain>, ReadError> {
        let mut chains = BTreeMap::new();
        for object in self.list("chains", NFT_MSG_GETCHAIN)? {
            let (name, chain) = self.wire("chains", object::read_chain(&object.attrs()))?;
            chains.insert(name, chain);
        }
        for object in self.list("rules", NFT_MSG_GETRULE)? {
            let (name, rule) = self.wire("rules", object::read_rule(&object.attrs()))?;
            match chains.get_mut(&name) {
                Some(chain) => chain.rules.push(rule),
                None => foreign.push(format!("a rule of the unknown chain {name}").into()),
            }
        }
        Ok(chains)
    }

    /// The rules of one chain, in order.
    pub(super) fn rules(&mut self, chain: &str) -> Result<Vec<Rule>, ReadError> {
        let query = self.query("rules", NFT_MSG_GETRULE, |w| {
            w.text(NFTA_RULE_CHAIN, chain);
        })?;
        let mut rules = Vec::new();
        for object in self.nfnetlink.dump(&query)? {
            let (name, rule) = self.wire("rules", object::read_rule(&object.attrs()))?;
            if &*name == chain {
                rules.push(rule);
            }
        }
        Ok(rules)
    }

    /// The declarations of all sets.
    pub(super) fn declarations(&mut self) -> Result<BTreeMap<Str, SetDecl>, ReadError> {
        let mut declarations = BTreeMap::new();
        for object in self.list("sets", NFT_MSG_GETSET)? {
            let (name, decl) = self.wire("sets", set::read_decl(&object.attrs()))?;
            declarations.insert(name.into(), decl);
        }
        Ok(declarations)
    }

    /// All elements of a set.
    pub(super) fn elements(
        &mut self,
        set: &str,
        decl: &SetDecl,
    ) -> Result<BTreeMap<Key, palisade_nft::Element>, ReadError> {
        let query = self.query("elements", NFT_MSG_GETSETELEM, |w| {
            w.text(NFTA_SET_ELEM_LIST_SET, set);
        })?;
        let mut reader = ElementReader::new(decl);
        for object in self.nfnetlink.dump(&query)? {
            self.wire("elements", reader.read_list(&object.attrs()))?;
        }
        Ok(reader.finish())
    }

    /// One element of a set without ranges; `None` if it is not there.
    pub(super) fn element(
        &mut self,
        set: &str,
        decl: &SetDecl,
        key: &Key,
    ) -> Result<Option<palisade_nft::Element>, ReadError> {
        let query = self.query("an element", NFT_MSG_GETSETELEM, |w| {
            w.text(NFTA_SET_ELEM_LIST_SET, set)
                .nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                    set::write_element(w, set::Ranges::of(decl), key, None);
                });
        })?;
        let Some(object) = self.nfnetlink.get(&query)? else {
            return Ok(None);
        };
        let mut reader = ElementReader::new(decl);
        self.wire("an element", reader.read_list(&object.attrs()))?;
        Ok(reader.finish().remove(key))
    }
}

fn of_table(attrs: &Attrs<'_>, table: &str) -> Result<bool, WireError> {
    Ok(attrs.need(TABLE, "object")?.text()? == table)
}
