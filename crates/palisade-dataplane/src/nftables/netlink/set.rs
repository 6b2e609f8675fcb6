//! Encodes and decodes sets, maps and their elements.
//!
//! Promises: what is written is read back equal, apart from counter values; ranges of one field are restored
//! from the kernel's element pairs.
//!
//! Never: drops what it does not understand; the declaration of a set records properties that are never
//! written here.

use std::collections::BTreeMap;

use palisade_nft::{
    Bytes, CounterValue, Element, ElementKey, FieldType, MapValue, MapValueType, SetDecl,
};
use palisade_sys::netlink::{AttrWriter, Attrs, WireError};
use palisade_sys::nfnetlink::nf_tables::*;

use super::expr;
use super::userdata;

/// Bits of each field's type in the key type of a concatenation.
const TYPE_BITS: u32 = 6;
const KNOWN_FLAGS: u32 = NFT_SET_INTERVAL | NFT_SET_MAP | NFT_SET_CONCAT | NFT_SET_EXPR;

/// Encodes a declaration; `id` identifies the set within its batch.
pub(super) fn write_decl(w: &mut AttrWriter<'_>, table: &str, set: &str, decl: &SetDecl, id: u32) {
    // The kernel wants field lengths only for concatenations of ranges.
    let fields_apart = decl.interval && decl.key.len() > 1;
    let mut flags = 0;
    if decl.interval {
        flags |= NFT_SET_INTERVAL;
    }
    if fields_apart {
        flags |= NFT_SET_CONCAT;
    }
    if decl.value_type.is_some() {
        flags |= NFT_SET_MAP;
    }
    let kind = decl
        .key
        .iter()
        .fold(0, |kind, field| kind << TYPE_BITS | field.id());
    w.text(NFTA_SET_TABLE, table)
        .text(NFTA_SET_NAME, set)
        .be32(NFTA_SET_FLAGS, flags)
        .be32(NFTA_SET_KEY_TYPE, kind)
        .be32(NFTA_SET_KEY_LEN, decl.key_len() as u32)
        .be32(NFTA_SET_ID, id);
    match decl.value_type {
        None => {}
        Some(MapValueType::Verdict) => {
            w.be32(NFTA_SET_DATA_TYPE, NFT_DATA_VERDICT)
                .be32(NFTA_SET_DATA_LEN, 0);
        }
        Some(MapValueType::Value(field)) => {
            w.be32(NFTA_SET_DATA_TYPE, field.id())
                .be32(NFTA_SET_DATA_LEN, field.len() as u32);
        }
    }
    if decl.size.is_some() || fields_apart {
        w.nest(NFTA_SET_DESC, |w| {
            if let Some(size) = decl.size {
                w.be32(NFTA_SET_DESC_SIZE, size);
            }
            if fields_apart {
                w.nest(NFTA_SET_DESC_CONCAT, |w| {
                    for field in &decl.key {
                        w.nest(NFTA_LIST_ELEM, |w| {
                            w.be32(NFTA_SET_FIELD_LEN, field.len() as u32);
                        });
                    }
                });
            }
        });
    }
    if decl.counter {
        w.nest(NFTA_SET_EXPR, |w| {
            w.text(NFTA_EXPR_NAME, "counter");
        });
    }
    let host_order = |field: &FieldType| matches!(field, FieldType::Mark | FieldType::IfName);
    let data_order = match &decl.value_type {
        Some(MapValueType::Value(field)) => Some(host_order(field)),
        _ => None,
    };
    let key_order = matches!(decl.key.as_slice(), [one] if host_order(one));
    w.bytes(
        NFTA_SET_USERDATA,
        &userdata::byte_orders(key_order, data_order),
    );
}

/// Decodes a set's name and declaration.
pub(super) fn read_decl(attrs: &Attrs<'_>) -> Result<(String, SetDecl), WireError> {
    let name = attrs.require(NFTA_SET_NAME, "set")?.text()?.to_owned();
    let number = |attr| -> Result<Option<u32>, WireError> {
        attrs.find(attr)?.map(|attr| attr.be32()).transpose()
    };
    let flags = number(NFTA_SET_FLAGS)?.unwrap_or(0);
    let kind = number(NFTA_SET_KEY_TYPE)?.unwrap_or(0);
    let len = number(NFTA_SET_KEY_LEN)?.unwrap_or(0);
    let mut unknown = Vec::new();
    if flags & !KNOWN_FLAGS != 0 {
        unknown.push(format!("flags {:#x}", flags & !KNOWN_FLAGS));
    }
    let data = if flags & NFT_SET_MAP == 0 {
        None
    } else {
        match number(NFTA_SET_DATA_TYPE)? {
            Some(NFT_DATA_VERDICT) => Some(MapValueType::Verdict),
            kind => Some(MapValueType::Value(field(
                kind.unwrap_or(0),
                number(NFTA_SET_DATA_LEN)?.unwrap_or(0),
            ))),
        }
    };
    for (attr, what) in [
        (NFTA_SET_TIMEOUT, "a timeout"),
        (NFTA_SET_EXPRESSIONS, "several expressions"),
        (NFTA_SET_OBJ_TYPE, "objects"),
    ] {
        if attrs.find(attr)?.is_some() {
            unknown.push(what.to_owned());
        }
    }
    let counter = match attrs.find(NFTA_SET_EXPR)? {
        None => false,
        Some(held) => {
            let name = held.nested().require(NFTA_EXPR_NAME, "set")?.text()?;
            if name != "counter" {
                unknown.push(format!("expression {name}"));
            }
            name == "counter"
        }
    };
    let size = match attrs.find(NFTA_SET_DESC)? {
        Some(desc) => desc
            .nested()
            .find(NFTA_SET_DESC_SIZE)?
            .map(|size| size.be32())
            .transpose()?,
        None => None,
    };
    let decl = SetDecl {
        key: fields(kind, len),
        value_type: data,
        interval: flags & NFT_SET_INTERVAL != 0,
        counter,
        size,
        unknown: (!unknown.is_empty()).then(|| unknown.join(", ").into()),
    };
    Ok((name, decl))
}

fn field(id: u32, len: u32) -> FieldType {
    FieldType::KNOWN
        .into_iter()
        .find(|field| field.id() == id && field.len() == len as usize)
        .unwrap_or(FieldType::Unknown { id, len })
}

/// The fields of a key type, if they add up to the key's length; otherwise one field.
fn fields(kind: u32, len: u32) -> Vec<FieldType> {
    let mut fields = Vec::new();
    let mut rest = kind;
    while rest > 0 {
        let id = rest & ((1 << TYPE_BITS) - 1);
        match FieldType::KNOWN.into_iter().find(|field| field.id() == id) {
            Some(field) => fields.push(field),
            None => return vec![field(kind, len)],
        }
        rest >>= TYPE_BITS;
    }
    fields.reverse();
    let padded: usize = fields.iter().map(|field| field.padded()).sum();
    if fields.len() > 1 && padded == len as usize {
        fields
    } else {
        vec![field(kind, len)]
    }
}

/// How a set encodes its ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeEncoding {
    /// No ranges, or one element with key and key end.
    SingleElement,
    /// Two elements: the first value, and one past the last.
    ElementPair,
}

impl RangeEncoding {
    pub(super) fn of(decl: &SetDecl) -> Self {
        if decl.interval && decl.key.len() == 1 {
            Self::ElementPair
        } else {
            Self::SingleElement
        }
    }
}

/// Encodes the list entries of one element; `element` is `None` for a deletion.
pub(super) fn write_element(
    w: &mut AttrWriter<'_>,
    ranges: RangeEncoding,
    key: &ElementKey,
    element: Option<&Element>,
) {
    let content = |w: &mut AttrWriter<'_>| {
        let Some(element) = element else { return };
        match &element.data {
            None => {}
            Some(MapValue::Value(value)) => {
                w.nest(NFTA_SET_ELEM_DATA, |w| expr::write_value(w, value));
            }
            Some(MapValue::Verdict(verdict)) => {
                w.nest(NFTA_SET_ELEM_DATA, |w| expr::write_verdict(w, verdict));
            }
        }
        // The set's own expression creates a counter at zero.
        if let Some(count) = element
            .counter
            .filter(|count| *count != CounterValue::default())
        {
            w.nest(NFTA_SET_ELEM_EXPR, |w| {
                w.text(NFTA_EXPR_NAME, "counter")
                    .nest(NFTA_EXPR_DATA, |w| expr::write_count(w, count));
            });
        }
        if let Some(comment) = &element.comment {
            w.bytes(NFTA_SET_ELEM_USERDATA, &userdata::comment(comment));
        }
    };
    match (key, ranges) {
        (ElementKey::Exact(value), _) => {
            w.nest(NFTA_LIST_ELEM, |w| {
                w.nest(NFTA_SET_ELEM_KEY, |w| expr::write_value(w, value));
                content(w);
            });
        }
        (ElementKey::CatchAll, _) => {
            w.nest(NFTA_LIST_ELEM, |w| {
                w.be32(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_CATCHALL);
                content(w);
            });
        }
        (ElementKey::Range(first, last), RangeEncoding::SingleElement) => {
            w.nest(NFTA_LIST_ELEM, |w| {
                w.nest(NFTA_SET_ELEM_KEY, |w| expr::write_value(w, first))
                    .nest(NFTA_SET_ELEM_KEY_END, |w| expr::write_value(w, last));
                content(w);
            });
        }
        (ElementKey::Range(first, last), RangeEncoding::ElementPair) => {
            w.nest(NFTA_LIST_ELEM, |w| {
                w.nest(NFTA_SET_ELEM_KEY, |w| expr::write_value(w, first));
                content(w);
            });
            if let Some(past) = successor(last) {
                w.nest(NFTA_LIST_ELEM, |w| {
                    w.nest(NFTA_SET_ELEM_KEY, |w| expr::write_value(w, &past))
                        .be32(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
                });
            }
        }
    }
}

/// The next value of the same length; `None` after the last.
fn successor(value: &[u8]) -> Option<Bytes> {
    let mut next: Bytes = value.into();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

fn predecessor(value: &[u8]) -> Bytes {
    let mut previous: Bytes = value.into();
    for byte in previous.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != 0xff {
            break;
        }
    }
    previous
}

/// Collects the elements of one set from the kernel's messages.
#[derive(Debug)]
pub(super) struct ElementReader {
    interval: bool,
    range_encoding: RangeEncoding,
    counter: bool,
    elements: BTreeMap<ElementKey, Element>,
    /// For [`RangeEncoding::ElementPair`]: (value, whether a range starts there), ordered so that an end
    /// comes before a start at the same value.
    bounds: BTreeMap<(Bytes, bool), Element>,
}

impl ElementReader {
    pub(super) fn new(decl: &SetDecl) -> Self {
        Self {
            interval: decl.interval,
            range_encoding: RangeEncoding::of(decl),
            counter: decl.counter,
            elements: BTreeMap::new(),
            bounds: BTreeMap::new(),
        }
    }

    /// Adds the elements of one message.
    pub(super) fn read_list(&mut self, message: &Attrs<'_>) -> Result<(), WireError> {
        let Some(list) = message.find(NFTA_SET_ELEM_LIST_ELEMENTS)? else {
            return Ok(());
        };
        for entry in list.nested() {
            self.read_entry(&entry?.nested())?;
        }
        Ok(())
    }

    fn read_entry(&mut self, entry: &Attrs<'_>) -> Result<(), WireError> {
        let flags = match entry.find(NFTA_SET_ELEM_FLAGS)? {
            Some(flags) => flags.be32()?,
            None => 0,
        };
        let element = self.read_content(entry)?;
        if flags & NFT_SET_ELEM_CATCHALL != 0 {
            self.elements.insert(ElementKey::CatchAll, element);
            return Ok(());
        }
        let key_at = |attr| -> Result<Option<Bytes>, WireError> {
            match entry.find(attr)? {
                Some(attr) => expr::read_value(&attr),
                None => Ok(None),
            }
        };
        let key = key_at(NFTA_SET_ELEM_KEY)?.ok_or(WireError::Missing {
            what: "element",
            attr: NFTA_SET_ELEM_KEY,
        })?;
        if self.range_encoding == RangeEncoding::ElementPair {
            let begins = flags & NFT_SET_ELEM_INTERVAL_END == 0;
            self.bounds.insert((key, begins), element);
        } else if self.interval {
            let last = key_at(NFTA_SET_ELEM_KEY_END)?.unwrap_or_else(|| key.clone());
            self.elements.insert(ElementKey::Range(key, last), element);
        } else {
            self.elements.insert(ElementKey::Exact(key), element);
        }
        Ok(())
    }

    fn read_content(&self, entry: &Attrs<'_>) -> Result<Element, WireError> {
        let data = match entry.find(NFTA_SET_ELEM_DATA)? {
            None => None,
            Some(content) => match expr::read_value(&content)? {
                Some(value) => Some(MapValue::Value(value)),
                None => expr::read_verdict(&content)?.map(MapValue::Verdict),
            },
        };
        let counter = match entry.find(NFTA_SET_ELEM_EXPR)? {
            None => None,
            Some(expression) => {
                let expression = expression.nested();
                let name = expression.require(NFTA_EXPR_NAME, "element")?.text()?;
                match expression.find(NFTA_EXPR_DATA)? {
                    Some(data) if name == "counter" => Some(expr::read_count(&data.nested())?),
                    _ => None,
                }
            }
        };
        let comment = entry
            .find(NFTA_SET_ELEM_USERDATA)?
            .and_then(|data| userdata::read_comment(data.payload));
        Ok(Element {
            data,
            counter: counter.or(self.counter.then(CounterValue::default)),
            comment,
        })
    }

    /// All elements, with ranges joined.
    pub(super) fn finish(mut self) -> BTreeMap<ElementKey, Element> {
        let mut open: Option<(Bytes, Element)> = None;
        for ((value, begins), element) in self.bounds {
            // A start without an end extends to the next start.
            if let Some((first, element)) = open.take() {
                let last = predecessor(&value);
                self.elements
                    .insert(ElementKey::Range(first, last), element);
            }
            if begins {
                open = Some((value, element));
            }
        }
        if let Some((first, element)) = open {
            let last = vec![0xff; first.len()].into();
            self.elements
                .insert(ElementKey::Range(first, last), element);
        }
        self.elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_step_up_and_down() {
        let table: [(&[u8], Option<&[u8]>); 4] = [
            (&[0, 0], Some(&[0, 1])),
            (&[0, 255], Some(&[1, 0])),
            (&[255, 254], Some(&[255, 255])),
            (&[255, 255], None),
        ];
        for (value, next) in table {
            assert_eq!(successor(value).as_deref(), next);
            if let Some(next) = next {
                assert_eq!(&*predecessor(next), value);
            }
        }
    }

    #[test]
    fn key_types_split_into_fields() {
        let table: [(&[FieldType], u32); 4] = [
            (&[FieldType::Mark], 4),
            (&[FieldType::IfName, FieldType::Ipv6], 32),
            (&[FieldType::Mark, FieldType::Proto, FieldType::Port], 12),
            (
                &[
                    FieldType::Mark,
                    FieldType::Proto,
                    FieldType::IcmpType,
                    FieldType::IcmpCode,
                ],
                16,
            ),
        ];
        for (key, len) in table {
            let kind = key.iter().fold(0, |kind, f| kind << TYPE_BITS | f.id());
            assert_eq!(fields(kind, len), key);
        }
        let odd = vec![FieldType::Unknown { id: 7, len: 16 }];
        assert_eq!(fields(7, 16), odd);
    }
}
