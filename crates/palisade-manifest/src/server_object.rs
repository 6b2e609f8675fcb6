//! Reads one object from the JSON text of a server.

use crate::builder::{DocumentBuilder, RemainingLimits};
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::field_filter::FieldFilterOfKind;
use crate::filtered_json::FilteredJsonReader;
use crate::json;
use crate::limits::Limits;
use crate::location::{Position, Problem};
use crate::object::{ListContext, RawObject, identify};
use std::sync::Arc;

/// The text of an object has no lines that anybody has written.
const START: Position = Position { line: 0, column: 0 };

/// Reads the object in `text`, with the fields that `filter` selects.
///
/// `resource` is the name of the resource for messages. `item_type` is the `apiVersion` and `kind` of an object
/// that has none, as the items of a list of a server.
///
/// # Errors
/// Everything that is wrong with it: it is not JSON, or it has no valid name. Other fields are not interpreted.
pub fn read_server_object(
    resource: &Arc<str>,
    text: &str,
    limits: &Limits,
    filter: FieldFilterOfKind,
    (api_version, kind): (&str, &str),
) -> Result<RawObject, Vec<Problem>> {
    let error = |error: DocumentError| vec![error.into_problem(resource)];
    if text.len() > limits.file_bytes {
        let kind = DocumentErrorKind::TooManyBytes(limits.file_bytes);
        return Err(error(DocumentError::new(START, kind)));
    }
    let depth = limits.effective_depth();
    let mut reader =
        FilteredJsonReader::new(text.as_bytes(), START, resource, depth).with_eof(true);
    let root = reader
        .peek_non_blank()
        .and_then(|_| reader.read_object(filter, Some(kind)));
    let Ok(root) = root else {
        let mut remaining = RemainingLimits::new(limits);
        let mut builder = DocumentBuilder::new(resource, limits, &mut remaining);
        let scanned = json::scan_from(text, START, &mut builder, &mut Vec::new());
        let what = "expected a value, found the end of the text".to_owned();
        let unexpected = DocumentError::new(START, DocumentErrorKind::JsonSyntax(what));
        return Err(error(scanned.err().unwrap_or(unexpected)));
    };
    let context = ListContext::item_of(api_version, kind);
    identify(root, &context).map(|object| *object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldFilter;

    fn read(text: &str) -> Result<RawObject, Vec<String>> {
        let all = |_: Option<&str>| -> &'static FieldFilter { &FieldFilter::All };
        let read = read_server_object(&"pods".into(), text, &Limits::default(), all, ("v1", "Pod"));
        read.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_object_has_its_own_type_or_that_of_its_list() {
        let pod = read(r#"{"metadata": {"name": "a", "namespace": "shop"}}"#).unwrap();
        assert_eq!((&*pod.api_version, &*pod.to_string()), ("v1", "Pod shop/a"));
        let node = read(r#"{"apiVersion": "v2", "kind": "Node", "metadata": {"name": "a"}}"#);
        let node = node.unwrap();
        assert_eq!((&*node.api_version, &*node.to_string()), ("v2", "Node a"));
    }

    #[test]
    fn what_is_wrong_is_reported_without_a_line() {
        for (text, expected) in [
            (
                r#"{"metadata": {"name": 5}}"#,
                "pods: metadata.name: expected text, found the number 5",
            ),
            (
                r#"{"metadata": {"name": "a"}"#,
                "pods: the document is not JSON: expected `,` or `}`, found the end of the text",
            ),
            (
                "",
                "pods: the document is not JSON: expected a value, found the end of the text",
            ),
            ("[]", "pods: expected an object, found an empty list"),
        ] {
            assert_eq!(read(text).unwrap_err(), [expected], "{text}");
        }
    }
}
