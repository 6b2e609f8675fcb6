//! YAML and JSON documents whose every value knows its file, line and column.
//!
//! For: turning the text of a manifest or a dump into Kubernetes-shaped objects, in the reading
//! that `kubectl` gives it, so that a later message can point at the very character it is about.
//!
//! Promises: no input makes it panic; no input makes it use more memory than [`Limits`] allow; a
//! broken document loses neither the documents before it nor those after it; whatever was not
//! read is named by a [`Problem`].
//!
//! Where it is stricter than kubectl, because two readers of the same text could disagree: a key
//! written twice, a merge key after an own field that it would override, a second document after
//! `...`, Unicode's line breaks, binary data that is not UTF-8 and half surrogate pairs are
//! problems. Where it is laxer: directives, tabs between tokens, and `:` at the beginning
//! or `?` inside of text in flow style are read as YAML 1.2 has them.
//!
//! Never: opens a file, guesses between two readings of one text, or knows what a policy is.

mod builder;
mod describe;
mod document_error;
mod field;
mod field_filter;
mod filtered_json;
mod json;
mod json_list;
mod limits;
mod list;
mod location;
mod node;
mod object;
mod parse;
mod path;
mod scalar;
mod split;
mod stream;
mod to_json;
mod window;
mod yaml;
mod yaml_list;

pub use describe::{bounded_name, quote, quote_up_to, shorten};
pub use field::{Field, FieldError, IntOrString, Mismatch};
pub use field_filter::{FieldFilter, FieldFilterOfKind};
pub use limits::Limits;
pub use location::{Location, Problem};
pub use node::{ManifestMap, ManifestNode, ManifestValue, MapEntry};
pub use object::{ObjectSink, ParsedObjects, RawObject, extract_objects};
pub use parse::{Document, ParsedFile, parse};
pub use path::FieldPath;
pub use stream::read_stream;
pub use to_json::to_json;
