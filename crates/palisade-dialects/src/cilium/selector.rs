//! Label selectors over labels with sources: a list of requirements that all have to hold.
//!
//! Never: decides which addresses a selector selects; `peer_kind` does.

use super::label_key::SourcedKey;
use crate::label_selector::{self, KNOWN, LabelTest, label_value};
use crate::report::ObjectReport;
use palisade_manifest::Field;

/// A requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabelRequirement {
    /// The label.
    pub(super) key: SourcedKey,
    /// Its test.
    pub(super) test: LabelTest,
    /// Whether it is written under `matchLabels`.
    pub(super) is_match_label: bool,
}

/// Reads a label selector. If errors were added to the report, the result must not be used.
pub(super) fn read(field: &Field<'_>, report: &mut ObjectReport) -> Vec<LabelRequirement> {
    let mut requirements = Vec::new();
    if !report.is_object(field) {
        return requirements;
    }
    report.check_fields(field, KNOWN, &[]);
    if let Some(map) = report.object(field, "matchLabels") {
        for (text, at) in map.entries().unwrap_or_default() {
            let key = SourcedKey::parse(text);
            report.key_errors(&map, text, key.errors());
            if let Some(value) = label_value(&at, report) {
                requirements.push(LabelRequirement {
                    key,
                    test: LabelTest::In(vec![value]),
                    is_match_label: true,
                });
            }
        }
    }
    for expression in report.items(field, "matchExpressions") {
        let key_of = |text: &str| {
            let key = SourcedKey::parse(text);
            let errors = key.errors();
            (key, errors)
        };
        let requirement = label_selector::read_requirement(&expression, key_of, report);
        requirements.extend(requirement.map(|(key, test)| LabelRequirement {
            key,
            test,
            is_match_label: false,
        }));
    }
    requirements
}
