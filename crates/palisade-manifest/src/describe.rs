//! What a value is called in a message.

use crate::node::{Node, Value};

/// How much of a text a message quotes.
const QUOTED: usize = 60;

/// The value in words, with what the file says where that differs.
pub(crate) fn describe(node: &Node) -> String {
    let what = match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Int(value) => format!("the number {value}"),
        Value::Float(value) => format!("the number {value}"),
        Value::String(text) => format!("the text {}", quote(text)),
        Value::List(items) if items.is_empty() => "an empty list".to_owned(),
        Value::List(_) => "a list".to_owned(),
        Value::Map(map) if map.is_empty() => "an empty object".to_owned(),
        Value::Map(_) => "an object".to_owned(),
    };
    match &node.source_text {
        Some(source) if !source.is_empty() && !what.ends_with(&format!(" {source}")) => {
            format!("{what} (written `{}`)", shorten(source))
        }
        _ => what,
    }
}

/// A text in quotes, control characters made visible, long ones cut.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", shorten(text))
}

fn shorten(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(QUOTED)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(QUOTED).is_some() {
        shown.push('…');
    }
    shown
}
