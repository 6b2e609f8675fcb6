//! What is decided of the DNS queries of a flow.
//!
//! Promises: a query is decided by its name alone. Never: reads a query, or knows which flow it is of.

use crate::Verdict;
use alloc::collections::BTreeSet;
use palisade_model::{DomainName, DomainPattern};
use serde::{Deserialize, Serialize};

/// The verdict of each DNS query, by the name that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DnsRules {
    /// Queries for a name that one of these matches are allowed.
    pub names: BTreeSet<DomainPattern>,
    /// The verdict of other queries.
    pub default: Verdict,
}

impl DnsRules {
    /// The verdict of a query; the name is `None` where no policy can name it.
    pub fn judge(&self, name: Option<&DomainName>) -> Verdict {
        let is_named = name.is_some_and(|name| {
            let mut patterns = self.names.iter();
            patterns.any(|pattern| pattern.matches(name.as_str()))
        });
        if is_named {
            Verdict::Allow
        } else {
            self.default
        }
    }

    /// Whether `other` allows every query that these allow. Patterns are compared as they are written.
    pub(crate) fn is_subset_of(&self, other: &DnsRules) -> bool {
        other.default == Verdict::Allow
            || self.default <= other.default && self.names.is_subset(&other.names)
    }

    /// Rules that allow no query that one of both does not allow.
    pub(crate) fn intersect(&self, other: &DnsRules) -> DnsRules {
        let names = match (self.default, other.default) {
            (Verdict::Allow, _) => other.names.clone(),
            (_, Verdict::Allow) => self.names.clone(),
            _ => self.names.intersection(&other.names).cloned().collect(),
        };
        DnsRules {
            names,
            default: self.default.min(other.default),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &[&str], default: Verdict) -> DnsRules {
        let pattern = |name: &&str| DomainPattern::glob(name).unwrap();
        DnsRules {
            names: names.iter().map(pattern).collect(),
            default,
        }
    }

    #[test]
    fn a_query_is_judged_by_its_name() {
        let restricted = rules(&["a.example", "*.b.example"], Verdict::Deny);
        let judge = |name: &str| restricted.judge(Some(&name.parse().unwrap()));
        assert_eq!(judge("A.example."), Verdict::Allow);
        assert_eq!(judge("x.b.example"), Verdict::Allow);
        assert_eq!(judge("x.y.b.example"), Verdict::Deny);
        assert_eq!(restricted.judge(None), Verdict::Deny);
        let observed = rules(&["a.example"], Verdict::Allow);
        assert_eq!(observed.judge(None), Verdict::Allow);
    }

    #[test]
    fn an_intersection_is_a_subset_of_both() {
        let all = [
            rules(&[], Verdict::Deny),
            rules(&["a"], Verdict::Deny),
            rules(&["a", "b"], Verdict::Deny),
            rules(&["b", "c"], Verdict::Deny),
            rules(&["a"], Verdict::Allow),
        ];
        for a in &all {
            for b in &all {
                let both = a.intersect(b);
                assert!(both.is_subset_of(a) && both.is_subset_of(b), "{a:?} {b:?}");
                for name in ["a", "b", "c", "d"] {
                    let name = name.parse().unwrap();
                    let judge = |rules: &DnsRules| rules.judge(Some(&name));
                    assert!(judge(&both) <= judge(a).min(judge(b)));
                    let is_subset = a.is_subset_of(b) || b.is_subset_of(a);
                    assert!(!is_subset || judge(&both) == judge(a).min(judge(b)));
                    assert!(!a.is_subset_of(b) || judge(a) <= judge(b));
                }
            }
        }
        assert!(!all[2].is_subset_of(&all[1]) && !all[4].is_subset_of(&all[1]));
    }
}
