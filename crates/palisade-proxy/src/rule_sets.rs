//! Rule sets: which names the workloads of a class may ask for; the content of the file that the agent writes.
//!
//! Promises: a reader of the file has all of it as of one moment; a query whose rule set is not known is refused.
//!
//! Never: asks which workload a query is from: the number of the rule set in the packet's mark says all.

use crate::RuleSetsError;
use palisade_model::{DomainName, DomainPattern};
use palisade_sys::atomic_file::write_atomically;
use palisade_tables::{DnsRules, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The version of the file.
const VERSION: u32 = 1;

/// All rule sets of a node, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSets {
    rule_sets: BTreeMap<u32, IndexedRuleSet>,
}

/// What a rule set says about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameVerdict {
    /// It may be asked for.
    Allowed,
    /// It may not.
    Refused,
    /// There is no such rule set: it may not.
    UnknownRuleSet,
}

/// A rule set in which a name is found by value, as most patterns are one name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IndexedRuleSet {
    rules: Arc<DnsRules>,
    single_names: BTreeSet<String>,
    patterns: Vec<DomainPattern>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleSetsDocument<R> {
    version: u32,
    rule_sets: BTreeMap<u32, R>,
}

/// The field that every version of the file has.
#[derive(Deserialize)]
struct DocumentVersion {
    version: u32,
}

impl RuleSets {
    /// These rule sets.
    #[must_use]
    pub fn new(rule_sets: impl IntoIterator<Item = (u32, Arc<DnsRules>)>) -> Self {
        let rule_sets = rule_sets.into_iter();
        RuleSets {
            rule_sets: rule_sets
                .map(|(number, rules)| (number, IndexedRuleSet::new(rules)))
                .collect(),
        }
    }

    /// Reads the file of rule sets.
    ///
    /// # Errors
    /// If it cannot be read, or its content is of another version or form.
    pub fn read(path: &Path) -> Result<Self, RuleSetsError> {
        let bytes = std::fs::read(path).map_err(|source| RuleSetsError::Read {
            path: path.to_owned(),
            source,
        })?;
        let parse_error = |source| RuleSetsError::Parse {
            path: path.to_owned(),
            source,
        };
        let DocumentVersion { version } = serde_json::from_slice(&bytes).map_err(parse_error)?;
        if version != VERSION {
            return Err(RuleSetsError::Version {
                path: path.to_owned(),
                version,
                expected: VERSION,
            });
        }
        let document: RuleSetsDocument<DnsRules> =
            serde_json::from_slice(&bytes).map_err(parse_error)?;
        let rule_sets = document.rule_sets.into_iter();
        Ok(RuleSets::new(
            rule_sets.map(|(number, rules)| (number, Arc::new(rules))),
        ))
    }

    /// Replaces the file of rule sets as a whole.
    ///
    /// # Errors
    /// If it cannot be replaced; it is then unchanged.
    pub fn write(&self, path: &Path) -> Result<(), RuleSetsError> {
        let rule_sets = self.rule_sets.iter();
        let document = RuleSetsDocument {
            version: VERSION,
            rule_sets: rule_sets
                .map(|(number, indexed)| (*number, &*indexed.rules))
                .collect(),
        };
        let bytes = serde_json::to_vec(&document).map_err(|source| RuleSetsError::Format {
            path: path.to_owned(),
            source,
        })?;
        write_atomically(path, &bytes).map_err(RuleSetsError::Write)
    }

    /// What the rule set of a number says about a name; `None` is a name that no pattern can express.
    #[must_use]
    pub fn judge(&self, number: u32, name: Option<&DomainName>) -> NameVerdict {
        let Some(indexed) = self.rule_sets.get(&number) else {
            return NameVerdict::UnknownRuleSet;
        };
        let is_allowed = indexed.rules.default == Verdict::Allow
            || name.is_some_and(|name| indexed.has(name.as_str()));
        if is_allowed {
            NameVerdict::Allowed
        } else {
            NameVerdict::Refused
        }
    }

    /// All, by number.
    #[must_use]
    pub fn all(&self) -> BTreeMap<u32, Arc<DnsRules>> {
        let rule_sets = self.rule_sets.iter();
        rule_sets
            .map(|(number, indexed)| (*number, Arc::clone(&indexed.rules)))
            .collect()
    }

    /// The rule set of a number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&DnsRules> {
        Some(&self.rule_sets.get(&number)?.rules)
    }

    /// Whether there is a rule set of this number.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.rule_sets.contains_key(&number)
    }
}

impl IndexedRuleSet {
    fn new(rules: Arc<DnsRules>) -> Self {
        let single_name = |pattern: &DomainPattern| pattern.only_name().map(str::to_owned);
        let single_names = rules.names.iter().filter_map(single_name).collect();
        let patterns = rules.names.iter();
        let patterns = patterns.filter(|pattern| pattern.only_name().is_none());
        IndexedRuleSet {
            single_names,
            patterns: patterns.cloned().collect(),
            rules,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.single_names.contains(name)
            || self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write broken files")]
pub(crate) mod tests {
    use super::*;

    /// A rule set of one name or glob.
    pub(crate) fn rule_set(glob: &str) -> Arc<DnsRules> {
        Arc::new(DnsRules {
            names: [DomainPattern::glob(glob).unwrap()].into(),
            default: Verdict::Deny,
        })
    }

    fn name(text: &str) -> DomainName {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_judged_by_the_rule_set_of_the_number() {
        let mut open = rule_set("a.example");
        Arc::make_mut(&mut open).default = Verdict::Allow;
        let mut wide = rule_set("b.example");
        Arc::make_mut(&mut wide).names.extend([
            DomainPattern::glob("*.b.example").unwrap(),
            DomainPattern::below("c.example").unwrap(),
        ]);
        let rule_sets = RuleSets::new([(1, rule_set("a.example")), (2, open), (3, wide)]);
        use NameVerdict::{Allowed, Refused, UnknownRuleSet};
        for (number, text, verdict) in [
            (1, "a.example", Allowed),
            (1, "b.a.example", Refused),
            (1, "b.example", Refused),
            (2, "a.example", Allowed),
            (2, "b.example", Allowed),
            (3, "b.example", Allowed),
            (3, "x.b.example", Allowed),
            (3, "y.x.b.example", Refused),
            (3, "y.x.c.example", Allowed),
            (3, "c.example", Refused),
            (4, "a.example", UnknownRuleSet),
        ] {
            let judged = rule_sets.judge(number, Some(&name(text)));
            assert_eq!(judged, verdict, "{number} {text}");
        }
        let nameless = [1, 2, 3, 4].map(|number| rule_sets.judge(number, None));
        assert_eq!(nameless, [Refused, Allowed, Refused, UnknownRuleSet]);
    }

    #[test]
    fn the_file_has_the_documented_form() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rule-sets.json");
        let rule_sets = RuleSets::new([(7, rule_set("a.example"))]);
        rule_sets.write(&path).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            r#"{"version":1,"rule_sets":{"7":{"names":[{"Glob":"a.example"}],"default":"Deny"}}}"#
        );
        assert_eq!(RuleSets::read(&path).unwrap(), rule_sets);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_another_form_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rule-sets.json");
        assert!(matches!(
            RuleSets::read(&path),
            Err(RuleSetsError::Read { .. })
        ));
        for (text, is_version) in [
            ("", false),
            ("{\"version\":1}", false),
            ("{\"version\":2,\"rule_sets\":[]}", true),
            ("{\"version\":1,\"rule_sets\":{},\"more\":1}", false),
            ("{\"version\":1,\"rule_sets\":{\"x\":{}}}", false),
        ] {
            std::fs::write(&path, text).unwrap();
            match RuleSets::read(&path).unwrap_err() {
                RuleSetsError::Version { version: 2, .. } => assert!(is_version, "{text}"),
                RuleSetsError::Parse { .. } => assert!(!is_version, "{text}"),
                error => panic!("{text}: {error}"),
            }
        }
    }
}
