//! Field masks: what of a flow a client wants.
//!
//! Promises: every field of a flow can be named, at any depth, as Cilium's server allows it; a path that names no field
//! is refused.
//!
//! Never: lists the fields by hand; it works on the encoded message, by the published definitions.

use crate::descriptors::{Descriptors, FLOW};
use crate::limits::MAX_MASK_PATHS;
use crate::proto::flow::Flow;
use crate::wire::{push_value, wire_fields};
use prost::Message;
use std::collections::BTreeMap;

/// The fields of a message that are sent, by number; those of a field without any are all of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldMask(BTreeMap<u64, FieldMask>);

impl FieldMask {
    /// A mask, or nothing if everything is wanted.
    ///
    /// # Errors
    /// A path that names no field.
    pub(crate) fn new(paths: &[String]) -> Result<Option<Self>, String> {
        if paths.len() > MAX_MASK_PATHS {
            return Err(format!("a field mask has at most {MAX_MASK_PATHS} paths"));
        }
        let mut mask = FieldMask::default();
        for path in paths {
            let numbers = resolve(path)
                .ok_or_else(|| format!("invalid fieldmask: {path:?} is no field of a flow"))?;
            mask.add(&numbers);
        }
        Ok((!paths.is_empty()).then_some(mask))
    }

    fn add(&mut self, path: &[u64]) {
        let Some((first, rest)) = path.split_first() else {
            // All of it, whatever else was named of it.
            self.0.clear();
            return;
        };
        match self.0.get_mut(first) {
            // All of it already.
            Some(inner) if inner.0.is_empty() => {}
            Some(inner) => inner.add(rest),
            None => self.0.entry(*first).or_default().add(rest),
        }
    }

    /// Whether this field of a flow is sent.
    pub(crate) fn has(&self, name: &str) -> bool {
        let field = Descriptors::get().by_name(FLOW, name);
        field.is_some_and(|field| self.0.contains_key(&field.number))
    }

    /// A flow with these fields alone.
    pub(crate) fn apply(&self, flow: &Flow) -> Flow {
        let bytes = self.select(&flow.encode_to_vec());
        // What was encoded here is read again.
        Flow::decode(bytes.as_slice()).unwrap_or_default()
    }

    fn select(&self, bytes: &[u8]) -> Vec<u8> {
        let mut selected = Vec::new();
        for field in wire_fields(bytes) {
            match (self.0.get(&field.number), field.value) {
                (Some(inner), Some(value)) if !inner.0.is_empty() => {
                    push_value(&mut selected, field.number, &inner.select(value));
                }
                (Some(_), _) => selected.extend_from_slice(field.whole),
                (None, _) => {}
            }
        }
        selected
    }
}

/// The numbers of the fields of a path.
fn resolve(path: &str) -> Option<Vec<u64>> {
    let mut message = Some(FLOW);
    let mut numbers = Vec::new();
    for name in path.split('.') {
        let field = Descriptors::get().by_name(message?, name)?;
        numbers.push(field.number);
        // Nothing is named within a list.
        message = field.message.as_deref().filter(|_| !field.repeated);
    }
    Some(numbers)
}

#[cfg(test)]
#[allow(deprecated, reason = "a field as any other")]
mod tests {
    use super::*;
    use crate::proto::flow::{Endpoint, Workload};

    fn flow() -> Flow {
        let source = Endpoint {
            identity: 7,
            namespace: "shop".to_owned(),
            workloads: vec![Workload::default(); 2],
            ..Endpoint::default()
        };
        Flow {
            uuid: "u".to_owned(),
            source: Some(source),
            summary: "s".to_owned(),
            ..Flow::default()
        }
    }

    fn masked(paths: &[&str]) -> Result<Flow, String> {
        let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
        let mask = FieldMask::new(&paths)?;
        Ok(mask.map_or_else(flow, |mask| mask.apply(&flow())))
    }

    #[test]
    fn a_mask_selects_fields() {
        assert_eq!(masked(&[]), Ok(flow()));
        let source = |endpoint| Flow {
            source: Some(endpoint),
            ..Flow::default()
        };
        let namespace = Endpoint {
            namespace: "shop".to_owned(),
            ..Endpoint::default()
        };
        assert_eq!(masked(&["source.namespace"]), Ok(source(namespace)));
        let whole = Flow {
            source: flow().source,
            ..Flow::default()
        };
        assert_eq!(masked(&["source.namespace", "source"]), Ok(whole.clone()));
        assert_eq!(masked(&["source", "source.namespace"]), Ok(whole));
        assert_eq!(masked(&["l7.dns.query", "verdict"]), Ok(Flow::default()));
        let mask = FieldMask::new(&["Summary".to_owned()]).unwrap().unwrap();
        assert!(mask.has("Summary") && !mask.has("extensions"));
    }

    #[test]
    fn a_path_that_names_no_field_is_refused() {
        for path in [
            "",
            "nothing",
            "source.nothing",
            "source.workloads.name",
            "uuid.x",
            "source.",
        ] {
            assert!(masked(&["uuid", path]).is_err(), "{path}");
        }
        let many = vec!["uuid".to_owned(); MAX_MASK_PATHS + 1];
        assert!(FieldMask::new(&many).is_err());
    }
}
