//! The file by which the proxy knows which names may be asked for.
//!
//! Promises: the proxy finds all of it as of one moment. Never: allows a name that the tables do not.

use palisade_dataplane::DnsRuleStore;
use palisade_proxy::RuleSets;
use palisade_tables::DnsRules;
use palisade_text::error_chain;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The name of the file in the state directory.
pub const RULE_SET_FILE: &str = "dns-rules.json";

/// The file of rule sets.
#[derive(Debug)]
pub struct RuleSetStore {
    path: PathBuf,
}

impl RuleSetStore {
    /// The file with this path.
    pub fn new(path: PathBuf) -> Self {
        RuleSetStore { path }
    }
}

impl DnsRuleStore for RuleSetStore {
    fn load(&mut self) -> BTreeMap<u32, Arc<DnsRules>> {
        RuleSets::read(&self.path).unwrap_or_default().all()
    }

    fn store(&mut self, rules: &BTreeMap<u32, Arc<DnsRules>>) -> io::Result<()> {
        RuleSets::new(rules.clone())
            .write(&self.path)
            .map_err(|error| io::Error::other(error_chain(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::DomainPattern;
    use palisade_tables::Verdict;

    #[test]
    fn rules_are_loaded_as_they_were_stored() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = RuleSetStore::new(dir.path().join(RULE_SET_FILE));
        assert_eq!(store.load(), BTreeMap::new());
        let rules = |glob: &str, default| {
            Arc::new(DnsRules {
                names: [DomainPattern::glob(glob).unwrap()].into(),
                default,
            })
        };
        let both = BTreeMap::from([
            (1, rules("a.example", Verdict::Deny)),
            (7, rules("*.b.example", Verdict::Allow)),
        ]);
        store.store(&both).unwrap();
        assert_eq!(store.load(), both);
    }
}
