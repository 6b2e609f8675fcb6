//! A cursor over a value that keeps its path, so that every error names field and location.

use crate::location::{Location, Problem};
use crate::node::describe;
use crate::node::{ManifestMap, ManifestNode, ManifestValue};
use crate::path::FieldPath;
use std::sync::Arc;

/// A value and its path.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    /// The value.
    pub node: &'a ManifestNode,
    /// The path from the object's root.
    pub path: FieldPath,
}

/// A value where Kubernetes allows a number or a string, as for ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    /// An integer.
    Int(i64),
    /// A string.
    String(&'a str),
}

/// A value that does not fit its field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {}{mismatch}", prefix(.path))]
pub struct FieldError {
    /// The location of the value, or of the object that lacks it.
    pub location: Location,
    /// The path of the field.
    pub path: FieldPath,
    /// The reason.
    pub mismatch: Mismatch,
}

/// Why a value does not fit its field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The field is required and must not be `null`.
    #[error("is required, but missing")]
    Missing,
    /// The value has another type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// The expected type.
        expected: &'static str,
        /// The value in words.
        found: String,
    },
}

/// The path as a prefix of a message; empty for the root.
fn prefix(path: &FieldPath) -> String {
    if path.is_root() {
        return String::new();
    }
    format!("{path}: ")
}

impl FieldError {
    /// The error as a problem of `object`.
    #[must_use]
    pub fn into_problem(self, object: Option<String>) -> Problem {
        Problem {
            location: self.location,
            object,
            field: self.path.to_string(),
            reason: self.mismatch.to_string(),
        }
    }
}

impl<'a> Field<'a> {
    /// The root of an object.
    #[must_use]
    pub fn root(node: &'a ManifestNode) -> Self {
        Self {
            node,
            path: FieldPath::root(),
        }
    }

    /// The location of the value.
    #[must_use]
    pub fn location(&self) -> &'a Location {
        &self.node.location
    }

    /// The field `key` of this object. `null` counts as absent, as in Kubernetes.
    ///
    /// # Errors
    /// If this is not an object.
    pub fn get(&self, key: &str) -> Result<Option<Field<'a>>, FieldError> {
        let entry = self.as_map()?.entry(key);
        Ok(entry
            .filter(|entry| !entry.value.is_null())
            .map(|entry| Field {
                node: &entry.value,
                path: self.path.key(Arc::clone(&entry.key)),
            }))
    }

    /// The required field `key` of this object, which must not be `null`.
    ///
    /// # Errors
    /// If this is not an object or has no such field.
    pub fn require(&self, key: &str) -> Result<Field<'a>, FieldError> {
        self.get(key)?.ok_or_else(|| FieldError {
            path: self.path.key(key),
            ..self.error(Mismatch::Missing)
        })
    }

    /// The items of this list.
    ///
    /// # Errors
    /// If this is not a list.
    pub fn items(&self) -> Result<Vec<Field<'a>>, FieldError> {
        let items = self.as_list()?.iter().enumerate();
        Ok(items
            .map(|(index, node)| Field {
                node,
                path: self.path.index(index),
            })
            .collect())
    }

    /// The fields of this object with their keys, including those that are `null`.
    ///
    /// # Errors
    /// If this is not an object.
    pub fn entries(&self) -> Result<Vec<(&'a str, Field<'a>)>, FieldError> {
        let entries = self.as_map()?.iter();
        Ok(entries
            .map(|entry| {
                let path = self.path.key(Arc::clone(&entry.key));
                let node = &entry.value;
                (&*entry.key, Field { node, path })
            })
            .collect())
    }

    /// The object.
    ///
    /// # Errors
    /// If this is not an object.
    pub fn as_map(&self) -> Result<&'a ManifestMap, FieldError> {
        self.node
            .as_map()
            .ok_or_else(|| self.type_error("an object"))
    }

    /// The list.
    ///
    /// # Errors
    /// If this is not a list.
    pub fn as_list(&self) -> Result<&'a [ManifestNode], FieldError> {
        self.node.as_list().ok_or_else(|| self.type_error("a list"))
    }

    /// The string.
    ///
    /// # Errors
    /// If this is not a string.
    pub fn as_str(&self) -> Result<&'a str, FieldError> {
        self.node.as_str().ok_or_else(|| self.type_error("text"))
    }

    /// The boolean.
    ///
    /// # Errors
    /// If this is not a boolean.
    pub fn as_bool(&self) -> Result<bool, FieldError> {
        self.node
            .as_bool()
            .ok_or_else(|| self.type_error("true or false"))
    }

    /// The integer.
    ///
    /// # Errors
    /// If this is not a 64-bit integer.
    pub fn as_i64(&self) -> Result<i64, FieldError> {
        self.node
            .as_i64()
            .ok_or_else(|| self.type_error("a whole number"))
    }

    /// The integer or string.
    ///
    /// # Errors
    /// If this is neither an integer nor a string.
    pub fn as_int_or_string(&self) -> Result<IntOrString<'a>, FieldError> {
        match &self.node.value {
            ManifestValue::Int(value) => Ok(IntOrString::Int(*value)),
            ManifestValue::String(text) => Ok(IntOrString::String(text)),
            _ => Err(self.type_error("a whole number or text")),
        }
    }

    /// The value in words, for a message: `the number 64 (written `0x40`)`.
    #[must_use]
    pub fn describe(&self) -> String {
        describe(self.node)
    }

    /// A problem of `object` at this value.
    #[must_use]
    pub fn problem(&self, object: Option<String>, reason: impl Into<String>) -> Problem {
        Problem {
            location: self.node.location.clone(),
            object,
            field: self.path.to_string(),
            reason: reason.into(),
        }
    }

    fn type_error(&self, expected: &'static str) -> FieldError {
        self.error(Mismatch::WrongType {
            expected,
            found: describe(self.node),
        })
    }

    /// An error about this value.
    pub(crate) fn error(&self, mismatch: Mismatch) -> FieldError {
        FieldError {
            location: self.node.location.clone(),
            path: self.path.clone(),
            mismatch,
        }
    }
}
