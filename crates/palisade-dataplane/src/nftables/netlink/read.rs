//! Reads a table from the kernel.
//!
//! Promises: the result was in the kernel at one moment; if the ruleset keeps changing, that is an error.
//! What is not understood is reported as foreign, never left out.
//!
//! Never: reads other tables.

use std::collections::BTreeMap;

use palisade_model::Str;
use palisade_nft::{Chain, Element, ElementKey, NftRule, NftSet, Ruleset, SetDecl};
use palisade_sys::Errno;
use palisade_sys::netlink::{Attrs, WireError};
use palisade_sys::nfnetlink::nf_tables::*;
use palisade_sys::nfnetlink::{
    NFNL_SUBSYS_NFTABLES, NfMessage, NfRequest, NfRequestError, Nfnetlink,
};
use thiserror::Error;

use super::batch::INET;
use super::object;
use super::set::{self, ElementReader};

/// Number of the table attribute, the same in every kind of object.
const TABLE: u16 = 1;
/// Attempts of a read during which the ruleset changes.
const MAX_READ_ATTEMPTS: usize = 32;

/// A table could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TableReadError {
    /// The kernel refused the query.
    #[error(transparent)]
    Query(#[from] NfRequestError),
    /// A message of the kernel could not be decoded.
    #[error("reading {what} of table {table}: {error}")]
    Wire {
        /// The kind of object.
        what: &'static str,
        /// The table.
        table: String,
        /// The error.
        error: WireError,
    },
    /// The ruleset changed during every attempt.
    #[error("table {table} could not be read: the ruleset kept changing while it was read")]
    Unstable {
        /// The table.
        table: String,
    },
}

/// Reads one table through an nfnetlink socket.
pub(super) struct TableReader<'a, N> {
    nfnetlink: &'a mut N,
    table: &'a str,
}

impl<'a, N: Nfnetlink> TableReader<'a, N> {
    pub(super) fn new(nfnetlink: &'a mut N, table: &'a str) -> Self {
        Self { nfnetlink, table }
    }

    /// The whole table; `None` if it does not exist.
    pub(super) fn table(&mut self) -> Result<Option<Ruleset>, TableReadError> {
        self.read_consistently(|this| {
            let Some(reply) = this.get_table()? else {
                return Ok(None);
            };
            let mut ruleset = Ruleset::empty(this.table.into());
            (ruleset.comment, ruleset.flags) =
                this.map_wire_error("the table", object::read_table(&reply.attrs()))?;
            ruleset.chains = this.chains(&mut ruleset.foreign)?;
            for (name, decl) in this.declarations()? {
                let elements = this.elements(&name, &decl)?;
                ruleset.sets.insert(name, NftSet { decl, elements });
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

    /// Repeats `read` until the ruleset generation is the same before and after it.
    fn read_consistently<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, TableReadError>,
    ) -> Result<T, TableReadError> {
        for _ in 0..MAX_READ_ATTEMPTS {
            let before = self.nfnetlink.generation()?;
            let result = read(self);
            let steady = self.nfnetlink.generation()? == before;
            match result {
                // An object may have been deleted between two queries.
                Err(TableReadError::Query(error))
                    if !steady && error.error.errno == Errno::ENOENT => {}
                Err(error) => return Err(error),
                Ok(content) if steady => return Ok(content),
                Ok(_) => {}
            }
        }
        Err(TableReadError::Unstable {
            table: self.table.to_owned(),
        })
    }

    fn map_wire_error<T>(
        &self,
        what: &'static str,
        read: Result<T, WireError>,
    ) -> Result<T, TableReadError> {
        read.map_err(|error| TableReadError::Wire {
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
    ) -> Result<NfRequest, TableReadError> {
        let query = NfRequest::new(
            format!("listing {what} of table {}", self.table),
            NFNL_SUBSYS_NFTABLES,
            kind,
            INET,
            |w| {
                w.text(TABLE, self.table);
                more(w);
            },
        );
        self.map_wire_error(what, query)
    }

    fn get_table(&mut self) -> Result<Option<NfMessage>, TableReadError> {
        let query = self.query("the table", NFT_MSG_GETTABLE, |_| {})?;
        Ok(self.nfnetlink.get(&query)?)
    }

    /// The objects of one kind; none if the table does not exist.
    fn list_objects(
        &mut self,
        what: &'static str,
        kind: u8,
    ) -> Result<Vec<NfMessage>, TableReadError> {
        let query = self.query(what, kind, |_| {})?;
        let mut objects = self.nfnetlink.dump(&query)?;
        // Not every kernel filters every kind of object by table.
        let mut unreadable = None;
        objects.retain(
            |object| match belongs_to_table(&object.attrs(), self.table) {
                Ok(ours) => ours,
                Err(error) => {
                    unreadable = Some(error);
                    false
                }
            },
        );
        match unreadable {
            Some(error) => self.map_wire_error(what, Err(error)),
            None => Ok(objects),
        }
    }

    fn names(
        &mut self,
        kind: u8,
        attr: u16,
        what: &'static str,
    ) -> Result<Vec<String>, TableReadError> {
        let objects = match self.list_objects(what, kind) {
            // A kernel built without this kind of object has none.
            Err(TableReadError::Query(error)) if error.error.errno == Errno::EOPNOTSUPP => {
                return Ok(Vec::new());
            }
            other => other?,
        };
        let names = objects.iter().map(|object| {
            let name = object.attrs().require(attr, what)?.text()?;
            Ok(name.to_owned())
        });
        let names = names.collect();
        self.map_wire_error(what, names)
    }

    /// All chains with their rules; rules without a chain are reported as foreign.
    pub(super) fn chains(
        &mut self,
        foreign: &mut Vec<Str>,
    ) -> Result<BTreeMap<Str, Chain>, TableReadError> {
        let mut chains = BTreeMap::new();
        for object in self.list_objects("chains", NFT_MSG_GETCHAIN)? {
            let (name, chain) =
                self.map_wire_error("chains", object::read_chain(&object.attrs()))?;
            chains.insert(name, chain);
        }
        for object in self.list_objects("rules", NFT_MSG_GETRULE)? {
            let (name, rule) = self.map_wire_error("rules", object::read_rule(&object.attrs()))?;
            match chains.get_mut(&name) {
                Some(chain) => chain.rules.push(rule),
                None => foreign.push(format!("a rule of unknown chain {name}").into()),
            }
        }
        Ok(chains)
    }

    /// The rules of one chain, in order.
    pub(super) fn rules(&mut self, chain: &str) -> Result<Vec<NftRule>, TableReadError> {
        let query = self.query("rules", NFT_MSG_GETRULE, |w| {
            w.text(NFTA_RULE_CHAIN, chain);
        })?;
        let mut rules = Vec::new();
        for object in self.nfnetlink.dump(&query)? {
            let (name, rule) = self.map_wire_error("rules", object::read_rule(&object.attrs()))?;
            if &*name == chain {
                rules.push(rule);
            }
        }
        Ok(rules)
    }

    /// The declarations of all sets.
    pub(super) fn declarations(&mut self) -> Result<BTreeMap<Str, SetDecl>, TableReadError> {
        let mut declarations = BTreeMap::new();
        for object in self.list_objects("sets", NFT_MSG_GETSET)? {
            let (name, decl) = self.map_wire_error("sets", set::read_decl(&object.attrs()))?;
            declarations.insert(name.into(), decl);
        }
        Ok(declarations)
    }

    /// All elements of a set.
    ///
    /// The kernel lists a hash table bucket by bucket. The table grows in the background, also after the
    /// transaction that filled it is over, and a listing at that time omits elements that moved. So the
    /// number of listed elements is compared with the kernel's own count; if the kernel reports no count,
    /// two successive listings must have the same keys.
    pub(super) fn elements(
        &mut self,
        set: &str,
        decl: &SetDecl,
    ) -> Result<BTreeMap<ElementKey, Element>, TableReadError> {
        // Ranges are kept in trees, which are listed completely.
        if decl.interval {
            return self.list_elements(set, decl);
        }
        let mut before: Option<BTreeMap<ElementKey, Element>> = None;
        for _ in 0..MAX_READ_ATTEMPTS {
            let elements = self.list_elements(set, decl)?;
            let whole = match (self.element_count(set)?, &before) {
                (Some(count), _) => {
                    let catch_all = usize::from(elements.contains_key(&ElementKey::CatchAll));
                    elements.len() - catch_all == count as usize
                }
                (None, Some(before)) => before.keys().eq(elements.keys()),
                (None, None) => elements.is_empty(),
            };
            if whole {
                return Ok(elements);
            }
            if before.replace(elements).is_some() {
                wait_for_growth();
            }
        }
        Err(TableReadError::Unstable {
            table: self.table.to_owned(),
        })
    }

    /// One listing of a set's elements.
    fn list_elements(
        &mut self,
        set: &str,
        decl: &SetDecl,
    ) -> Result<BTreeMap<ElementKey, Element>, TableReadError> {
        let query = self.query("elements", NFT_MSG_GETSETELEM, |w| {
            w.text(NFTA_SET_ELEM_LIST_SET, set);
        })?;
        let mut reader = ElementReader::new(decl);
        for object in self.nfnetlink.dump(&query)? {
            self.map_wire_error("elements", reader.read_list(&object.attrs()))?;
        }
        Ok(reader.finish())
    }

    /// The kernel's element count of a set, without a catch-all element.
    fn element_count(&mut self, set: &str) -> Result<Option<u32>, TableReadError> {
        let query = self.query("a set", NFT_MSG_GETSET, |w| {
            w.text(NFTA_SET_NAME, set);
        })?;
        let Some(object) = self.nfnetlink.get(&query)? else {
            return Ok(None);
        };
        let count = object
            .attrs()
            .find(NFTA_SET_COUNT)
            .and_then(|count| count.map(|count| count.be32()).transpose());
        self.map_wire_error("a set", count)
    }

    /// One element of a set without ranges; `None` if it does not exist.
    pub(super) fn element(
        &mut self,
        set: &str,
        decl: &SetDecl,
        key: &ElementKey,
    ) -> Result<Option<Element>, TableReadError> {
        let query = self.query("an element", NFT_MSG_GETSETELEM, |w| {
            w.text(NFTA_SET_ELEM_LIST_SET, set)
                .nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                    set::write_element(w, set::RangeEncoding::of(decl), key, None);
                });
        })?;
        let Some(object) = self.nfnetlink.get(&query)? else {
            return Ok(None);
        };
        let mut reader = ElementReader::new(decl);
        self.map_wire_error("an element", reader.read_list(&object.attrs()))?;
        Ok(reader.finish().remove(key))
    }
}

/// Gives the kernel's worker time to finish growing a hash table; there is no notification.
#[allow(
    clippy::disallowed_methods,
    reason = "the kernel sends no event to wait for"
)]
fn wait_for_growth() {
    std::thread::sleep(std::time::Duration::from_millis(1));
}

fn belongs_to_table(attrs: &Attrs<'_>, table: &str) -> Result<bool, WireError> {
    // The names of other tables need not be UTF-8.
    Ok(attrs.require(TABLE, "object")?.until_nul() == table.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_nft::FieldType;
    use palisade_sys::netlink::AttrWriter;
    use palisade_sys::nfnetlink::{BatchError, NfBatch};
    use std::collections::VecDeque;

    /// A kernel with one set: the listings of its elements, of which the last repeats, and the set itself.
    struct FakeNfnetlink {
        listings: VecDeque<Vec<NfMessage>>,
        set: NfMessage,
    }

    impl Nfnetlink for FakeNfnetlink {
        fn dump(&mut self, query: &NfRequest) -> Result<Vec<NfMessage>, NfRequestError> {
            assert_eq!(query.kind, NFT_MSG_GETSETELEM);
            match self.listings.len() {
                0 => Ok(Vec::new()),
                1 => Ok(self.listings[0].clone()),
                _ => Ok(self.listings.pop_front().unwrap()),
            }
        }

        fn get(&mut self, query: &NfRequest) -> Result<Option<NfMessage>, NfRequestError> {
            assert_eq!(query.kind, NFT_MSG_GETSET);
            Ok(Some(self.set.clone()))
        }

        fn commit(&mut self, _batch: &NfBatch) -> Result<(), BatchError> {
            unreachable!("a reader changes nothing")
        }

        fn change(&mut self, _query: &NfRequest, _flags: u16) -> Result<(), NfRequestError> {
            unreachable!("a reader changes nothing")
        }

        fn generation(&mut self) -> Result<u32, NfRequestError> {
            Ok(0)
        }

        fn portid(&self) -> u32 {
            0
        }
    }

    fn object(write: impl FnOnce(&mut AttrWriter<'_>)) -> NfMessage {
        let mut attributes = Vec::new();
        let mut w = AttrWriter::new(&mut attributes);
        write(&mut w);
        w.finish().unwrap();
        NfMessage {
            kind: 0,
            family: INET,
            generation: 0,
            attributes,
        }
    }

    fn key(n: u32) -> ElementKey {
        ElementKey::Exact(n.to_ne_bytes().as_slice().into())
    }

    /// A listing with these keys.
    fn listing(keys: &[ElementKey]) -> Vec<NfMessage> {
        let decl = decl();
        vec![object(|w| {
            w.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                for key in keys {
                    set::write_element(
                        w,
                        set::RangeEncoding::of(&decl),
                        key,
                        Some(&Element::default()),
                    );
                }
            });
        })]
    }

    fn decl() -> SetDecl {
        SetDecl {
            key: vec![FieldType::Mark],
            value_type: None,
            interval: false,
            counter: false,
            size: None,
            unknown: None,
        }
    }

    /// The result of a read if the kernel returns `listings` one after the other.
    fn read(
        count: Option<u32>,
        listings: &[&[ElementKey]],
    ) -> Result<Vec<ElementKey>, TableReadError> {
        let set = object(|w| {
            if let Some(count) = count {
                w.be32(NFTA_SET_COUNT, count);
            }
        });
        let listings = listings.iter().map(|keys| listing(keys)).collect();
        let mut fake = FakeNfnetlink { listings, set };
        let elements = TableReader::new(&mut fake, "t").elements("s", &decl())?;
        Ok(elements.into_keys().collect())
    }

    #[test]
    fn a_listing_that_lost_elements_is_repeated() {
        let (one, two) = (key(1), key(2));
        let all = [one.clone(), two.clone(), ElementKey::CatchAll];
        let lost = [two.clone(), ElementKey::CatchAll];
        // With the kernel's count, which excludes a catch-all.
        assert_eq!(read(Some(2), &[&all]), Ok(all.to_vec()));
        assert_eq!(read(Some(2), &[&lost, &all]), Ok(all.to_vec()));
        // Without a count: the same keys twice.
        assert_eq!(read(None, &[&lost, &all]), Ok(all.to_vec()));
        assert_eq!(read(None, &[&all, &all]), Ok(all.to_vec()));
        assert_eq!(read(None, &[&[]]), Ok(Vec::new()));
        // Listings that never agree are an error.
        let table = "t".to_owned();
        assert_eq!(
            read(Some(5), &[&all]),
            Err(TableReadError::Unstable { table })
        );
    }
}
