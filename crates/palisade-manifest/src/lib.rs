//! YAML and JSON documents in which every value has its file, line and column.
//!
//! Parses manifests and dumps into Kubernetes objects as `kubectl` does, so that later messages can name the
//! exact location of a value.
//!
//! Promises: no input causes a panic; no input causes more memory use than [`Limits`] allow; a broken
//! document affects neither the documents before it nor those after it; everything that was not read is
//! reported as a [`Problem`].
//!
//! Stricter than kubectl, where two parsers could read the same text differently: a duplicate key, a merge
//! key after a field of the object that it would override, a second document after `...`, Unicode line
//! breaks, binary data that is not UTF-8 and unpaired surrogates are problems. More lenient: directives, tabs
//! between tokens, and `:` at the beginning or `?` inside of text in flow style are read as in YAML 1.2.
//!
//! Never: opens a file, guesses between two readings of a text, or interprets policy.

mod builder;
mod describe;
mod document_error;
mod field;
mod field_filter;
mod filtered_json;
mod json;
mod limits;
mod location;
mod node;
mod object;
mod parse;
mod path;
mod scalar;
mod server_object;
mod split;
mod stream;
mod to_json;
mod to_yaml;
mod window;
mod yaml;

pub use describe::{bounded_name, quote, quote_up_to, shorten};
pub use field::{Field, FieldError, IntOrString, Mismatch};
pub use field_filter::{FieldFilter, FieldFilterOfKind};
pub use limits::Limits;
pub use location::{Location, Problem};
pub use node::{ManifestMap, ManifestNode, ManifestValue, MapEntry};
pub use object::{ObjectSink, ParsedObjects, RawObject, extract_objects};
pub use parse::{Document, ParsedFile, parse, parse_json};
pub use path::FieldPath;
pub use server_object::read_server_object;
pub use stream::read_stream;
pub use to_json::to_json;
pub use to_yaml::to_yaml;
