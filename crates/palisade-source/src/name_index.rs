//! The object names in a text that cannot be parsed completely.
//!
//! They are collected once for each text, so that checking many objects against many files costs one lookup
//! each. A name that the broken text contains is never reported as absent.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The maximum length of a Kubernetes object name in bytes.
const MAX_NAME_BYTES: usize = 253;

/// A text and the names in it.
#[derive(Clone, Debug)]
pub(crate) struct NameIndex {
    text: Arc<[u8]>,
    names: Arc<BTreeSet<Box<[u8]>>>,
}

impl NameIndex {
    /// Collects the names in a text.
    pub(crate) fn build(text: &[u8]) -> Self {
        let names = name_values(text).map(|value| {
            let end = value.iter().position(ends_name).unwrap_or(value.len());
            &value[..end]
        });
        let names = names
            .filter(|name| name.len() <= MAX_NAME_BYTES)
            .map(Box::from);
        NameIndex {
            names: Arc::new(names.collect()),
            text: text.into(),
        }
    }

    /// The names that end at a blank, a quote, or the end of a list or object.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|name| &**name)
    }

    /// Whether the text contains this as the value of a `name`.
    pub(crate) fn contains(&self, name: &str) -> bool {
        let name = name.as_bytes();
        if is_indexable(name) {
            return self.names.contains(name);
        }
        let text = &self.text;
        name_values(text).any(|value| {
            let after = value.strip_prefix(name);
            after.is_some_and(|after| after.first().is_none_or(ends_name))
        })
    }
}

/// Whether a name, wherever it occurs in a text, is one of [`NameIndex::names`].
pub(crate) fn is_indexable(name: &[u8]) -> bool {
    name.len() <= MAX_NAME_BYTES && !name.iter().any(ends_name)
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

fn ends_name(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || is_quote(*byte) || matches!(byte, b',' | b'}' | b'#')
}

/// The text after each `name:` or `"name":`, up to the end.
fn name_values(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let key = b"name";
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = text[from..].windows(key.len()).position(|w| w == key)?;
            from += at + key.len();
            let unquoted = |text: &[u8]| text.first().is_some_and(|byte| is_quote(*byte));
            let mut rest = &text[from..];
            rest = &rest[usize::from(unquoted(rest))..];
            let Some(value) = rest.trim_ascii_start().strip_prefix(b":") else {
                continue;
            };
            let value = value.trim_ascii_start();
            return Some(&value[usize::from(unquoted(value))..]);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_broken_text() {
        let cases = [
            ("metadata:\n  name: web\nspec: {", "web", true),
            ("{\"metadata\": {\"name\" : \"web\"}", "web", true),
            ("metadata: {name: 'web', x", "web", true),
            ("  name:   web", "web", true),
            ("  name: web-2\n", "web", false),
            ("  name: my-web\n", "web", false),
            ("  namespace: web\n", "web", false),
            ("# web\nkind: web\n", "web", false),
            ("", "web", false),
            ("name: 'my web', x", "my web", true),
            ("name: 'my web', x", "my", true),
        ];
        for (text, name, expected) in cases {
            assert_eq!(
                NameIndex::build(text.as_bytes()).contains(name),
                expected,
                "{text}"
            );
        }
    }
}
