//! A log line: collects its fields and formats them as text or JSON. Untrusted values are escaped, so
//! they can neither begin a new line nor send control sequences to a terminal.

use palisade_node::clock::rfc3339_micros;
use palisade_text::{is_unprintable, printable, printable_json};
use serde_json::{Map, Value};
use std::fmt::{Debug, Write};
use std::time::Duration;
use tracing::Level;
use tracing::field::{Field, Visit};

/// The content of an event: a message, and fields in their original order.
#[derive(Debug, Default)]
pub(super) struct LogFields {
    message: String,
    fields: Map<String, Value>,
}

impl LogFields {
    /// A message without fields.
    pub(super) fn with_message(message: String) -> Self {
        LogFields {
            message,
            fields: Map::new(),
        }
    }

    /// Adds a numeric field.
    pub(super) fn add_number(&mut self, name: &str, value: u64) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// The message.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.insert(field, text),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.insert(field, value),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }
}

/// One line.
pub(super) struct LogLine<'a> {
    /// Time since 1970.
    pub(super) time: Duration,
    pub(super) level: Level,
    pub(super) component: &'a str,
    pub(super) fields: &'a LogFields,
}

impl LogLine<'_> {
    /// `TIME LEVEL component: message name=value…`, with a line break.
    pub(super) fn text(&self) -> String {
        let time = rfc3339_micros(self.time);
        let mut text = format!("{time} {} {}: ", self.level, self.component);
        text.push_str(&printable(&self.fields.message));
        for (name, value) in &self.fields.fields {
            // Writing to a `String` cannot fail.
            let _ = match value {
                Value::String(plain) if is_plain(plain) => write!(text, " {name}={plain}"),
                other => write!(text, " {name}={}", printable_json(&other.to_string())),
            };
        }
        text.push('\n');
        text
    }

    /// One JSON object, with a line break.
    pub(super) fn json(&self) -> String {
        let mut object = Map::new();
        let level = self.level.as_str().to_lowercase();
        object.insert("time".to_owned(), rfc3339_micros(self.time).into());
        object.insert("level".to_owned(), level.into());
        object.insert("component".to_owned(), self.component.into());
        object.insert("message".to_owned(), self.fields.message.clone().into());
        object.insert("fields".to_owned(), self.fields.fields.clone().into());
        let json = Value::Object(object).to_string();
        format!("{}\n", printable_json(&json))
    }
}

/// Whether a value is unambiguous without quotes.
fn is_plain(value: &str) -> bool {
    let special = |c: char| c.is_whitespace() || is_unprintable(c) || matches!(c, '"' | '=');
    !value.is_empty() && !value.contains(special)
}
