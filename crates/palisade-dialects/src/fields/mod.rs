//! The fields of every policy kind, and what becomes of each.
//!
//! Promises: the tables say what the dialects do: a test lowers a sample for each row, compares the known fields of
//! each object with its rows, and compares the rows with the schemas that the projects publish. `docs/dialects.md` is
//! made from them.
//!
//! Never: reads an object.

pub(crate) mod common;

use crate::closed_part::ClosedReason;

/// A kind of policy that is read, and its fields.
#[derive(Clone, Copy, Debug)]
pub struct PolicyKind {
    /// The API group.
    pub group: &'static str,
    /// The version that is read.
    pub version: &'static str,
    /// The name of the kind.
    pub kind: &'static str,
    /// The name of the resource.
    pub plural: &'static str,
    /// The short names that kubectl has for it.
    pub short_names: &'static [&'static str],
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// The fields of an object.
    pub fields: &'static [FieldRow],
    /// What a reader of the table should know besides, one paragraph each.
    pub notes: &'static [&'static str],
}

/// A field, and the fields inside.
#[derive(Clone, Copy, Debug)]
pub struct FieldRow {
    /// Its name; with `[]` if it is a list. [`ANY_OTHER`] stands for every field that has no row.
    pub name: &'static str,
    /// What becomes of it.
    pub support: FieldSupport,
    /// Its values, defaults and limits, where they need a word.
    pub note: &'static str,
    /// The fields inside; empty for a value, and for an object whose content does not matter.
    pub fields: &'static [FieldRow],
}

/// The name of the row for every field that has none.
pub const ANY_OTHER: &str = "*";

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSupport {
    /// It is enforced as written.
    Enforced,
    /// It is accepted, and held closed.
    HeldClosed(ClosedReason),
    /// It is an error.
    Refused,
    /// It is accepted, and has no effect on traffic.
    NoEffect,
}

impl FieldRow {
    /// A field that is enforced.
    pub(crate) const fn enforced(name: &'static str, note: &'static str) -> Self {
        FieldRow {
            name,
            support: FieldSupport::Enforced,
            note,
            fields: &[],
        }
    }

    /// A field without effect.
    pub(crate) const fn no_effect(name: &'static str, note: &'static str) -> Self {
        FieldRow {
            support: FieldSupport::NoEffect,
            ..FieldRow::enforced(name, note)
        }
    }

    /// A field that is held closed.
    pub(crate) const fn closed(
        name: &'static str,
        reason: ClosedReason,
        note: &'static str,
    ) -> Self {
        FieldRow {
            support: FieldSupport::HeldClosed(reason),
            ..FieldRow::enforced(name, note)
        }
    }

    /// A field that is an error.
    pub(crate) const fn refused(name: &'static str, note: &'static str) -> Self {
        FieldRow {
            support: FieldSupport::Refused,
            ..FieldRow::enforced(name, note)
        }
    }

    /// The same field, with these inside.
    pub(crate) const fn with(self, fields: &'static [FieldRow]) -> Self {
        FieldRow { fields, ..self }
    }

    /// The name without the mark of a list.
    #[must_use]
    pub fn key(&self) -> &'static str {
        self.name.strip_suffix("[]").unwrap_or(self.name)
    }
}

impl PolicyKind {
    /// Every row with its path, such as `spec.ingress[].from[].podSelector`, a field before those inside.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, &'static FieldRow)> {
        let mut rows = Vec::new();
        add_rows("", self.fields, &mut rows);
        rows
    }
}

fn add_rows(
    parent: &str,
    fields: &'static [FieldRow],
    rows: &mut Vec<(String, &'static FieldRow)>,
) {
    for row in fields {
        let path = match parent {
            "" => row.name.to_owned(),
            parent => format!("{parent}.{}", row.name),
        };
        rows.push((path.clone(), row));
        add_rows(&path, row.fields, rows);
    }
}
