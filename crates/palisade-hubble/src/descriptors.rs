//! The fields of Hubble's messages by name and number, from the published definitions.
//!
//! Promises: every field of every message is there, also of those that a message has within it.
//!
//! Never: depends on the generated types.

use crate::proto;
use crate::wire::wire_fields;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The message that flows are sent as.
pub(crate) const FLOW: &str = "flow.Flow";

/// The message of filters: what is not known in it is refused.
const FILTER: &str = "flow.FlowFilter";

/// A field of a message.
#[derive(Debug)]
pub(crate) struct MessageField {
    /// Its number.
    pub(crate) number: u64,
    /// Its name.
    pub(crate) name: String,
    /// The message that it has, if it has one.
    pub(crate) message: Option<String>,
    /// Whether it may be there several times.
    pub(crate) repeated: bool,
}

/// The fields of each message, by the full name of the message.
#[derive(Debug)]
pub(crate) struct Descriptors(BTreeMap<String, Vec<MessageField>>);

static DESCRIPTORS: LazyLock<Descriptors> = LazyLock::new(|| {
    // They are made together with this program.
    let files = FileDescriptorSet::decode(proto::DESCRIPTORS).unwrap_or_default();
    Descriptors::new(&files)
});

impl Descriptors {
    /// Those of Hubble's messages.
    pub(crate) fn get() -> &'static Self {
        &DESCRIPTORS
    }

    fn new(files: &FileDescriptorSet) -> Self {
        let mut all = Descriptors(BTreeMap::new());
        for file in &files.file {
            for message in &file.message_type {
                all.add(file.package(), message);
            }
        }
        all
    }

    fn add(&mut self, scope: &str, message: &DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for nested in &message.nested_type {
            self.add(&name, nested);
        }
        let fields = message.field.iter().map(|field| MessageField {
            number: u64::try_from(field.number()).unwrap_or_default(),
            name: field.name().to_owned(),
            message: (field.r#type() == Type::Message)
                .then(|| field.type_name().trim_start_matches('.').to_owned()),
            repeated: field.label() == Label::Repeated,
        });
        self.0.insert(name, fields.collect());
    }

    /// A field by its name.
    pub(crate) fn by_name(&self, message: &str, name: &str) -> Option<&MessageField> {
        let fields = self.0.get(message)?;
        fields.iter().find(|field| field.name == name)
    }

    /// What an encoded message has within a filter that is not known: the message and the number of the field.
    pub(crate) fn unknown_filter(&self, message: &str, bytes: &[u8]) -> Option<(String, u64)> {
        let fields = self.0.get(message)?;
        for field in wire_fields(bytes) {
            let Some(known) = fields.iter().find(|known| known.number == field.number) else {
                if message.starts_with(FILTER) {
                    return Some((message.to_owned(), field.number));
                }
                continue;
            };
            if let (Some(inner), Some(value)) = (&known.message, field.value)
                && let Some(unknown) = self.unknown_filter(inner, value)
            {
                return Some(unknown);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::push_value;

    #[test]
    fn fields_have_the_published_numbers() {
        let descriptors = Descriptors::get();
        let number = |name| descriptors.by_name(FLOW, name).map(|field| field.number);
        assert_eq!(number("Summary"), Some(100_000));
        assert_eq!(number("policy_log"), Some(21006));
        assert_eq!(number("nothing"), None);
        let field = descriptors.by_name(FLOW, "source").unwrap();
        assert_eq!(field.message.as_deref(), Some("flow.Endpoint"));
        assert!(
            descriptors
                .by_name("flow.FlowFilter.Experimental", "cel_expression")
                .unwrap()
                .repeated
        );
    }

    #[test]
    fn an_unknown_filter_is_found() {
        let mut filter = Vec::new();
        push_value(&mut filter, 1, b"10.0.0.1");
        let mut request = Vec::new();
        push_value(&mut request, 6, &filter);
        push_value(&mut request, 4242, b"another version's");
        let unknown =
            |bytes: &[u8]| Descriptors::get().unknown_filter("observer.GetFlowsRequest", bytes);
        assert_eq!(unknown(&request), None);
        push_value(&mut filter, 77, b"x");
        push_value(&mut request, 6, &filter);
        assert_eq!(unknown(&request), Some((FILTER.to_owned(), 77)));
    }
}
