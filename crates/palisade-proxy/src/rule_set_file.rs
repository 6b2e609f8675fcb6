//! The file of rule sets, read again when it changed.
//!
//! Promises: a change is noticed within a tenth of a second, and at once for a rule set that was not known before; a
//! file that cannot be read leaves the rule sets as they were.
//!
//! Never: writes the file.

use crate::counts::SharedCounts;
use crate::rule_sets::{NameVerdict, RuleSets};
use palisade_model::DomainName;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// After how many milliseconds a change of the file is looked for.
const PERIOD: u64 = 100;

/// What tells one content of the file from another: its inode, its length, and when its inode changed, in
/// seconds and nanoseconds.
type FileStamp = (u64, u64, i64, i64);

/// The rule sets of a file.
#[derive(Debug)]
pub(crate) struct RuleSetFile {
    path: PathBuf,
    rule_sets: RuleSets,
    /// That of the content that was read last, whether it could be parsed or not.
    stamp: Option<FileStamp>,
    /// In milliseconds.
    next_look: u64,
    counts: SharedCounts,
}

impl RuleSetFile {
    /// The file at a path, which need not exist yet.
    pub(crate) fn new(path: PathBuf, counts: SharedCounts) -> Self {
        let mut file = RuleSetFile {
            path,
            rule_sets: RuleSets::default(),
            stamp: None,
            next_look: 0,
            counts,
        };
        file.refresh();
        file
    }

    /// What the rule set of a number says about a name at a time in milliseconds.
    pub(crate) fn judge(
        &mut self,
        number: u32,
        name: Option<&DomainName>,
        now: u64,
    ) -> NameVerdict {
        if now >= self.next_look || !self.rule_sets.contains(number) {
            self.next_look = now + PERIOD;
            self.refresh();
        }
        self.rule_sets.judge(number, name)
    }

    fn refresh(&mut self) {
        let stamp = std::fs::metadata(&self.path).ok().map(|metadata| {
            let (seconds, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
            (metadata.ino(), metadata.len(), seconds, nanoseconds)
        });
        // The file may be gone for a moment, or for good: the rule sets in force are those read last.
        if stamp.is_none() || stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match RuleSets::read(&self.path) {
            Ok(rule_sets) => self.rule_sets = rule_sets,
            Err(error) => {
                self.counts.update(|counts| counts.broken_rule_sets += 1);
                let reason = std::error::Error::source(&error).map(ToString::to_string);
                let reason = reason.unwrap_or_default();
                tracing::error!(%error, %reason, "the former rule sets stay in force");
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write broken files")]
mod tests {
    use super::*;
    use crate::rule_sets::tests::rule_set;

    #[test]
    fn a_change_is_noticed_and_a_broken_file_is_not_taken() {
        use NameVerdict::{Allowed, Refused, UnknownRuleSet};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rule-sets.json");
        let counts = SharedCounts::default();
        let mut file = RuleSetFile::new(path.clone(), counts.clone());
        let [a, b] = ["a.example", "b.example"].map(|name| name.parse::<DomainName>().unwrap());
        assert_eq!(file.judge(1, Some(&a), 0), UnknownRuleSet);
        let write = |glob: &str| RuleSets::new([(1, rule_set(glob))]).write(&path).unwrap();
        write("a.example");
        assert_eq!(file.judge(1, Some(&a), 1), Allowed, "at once");
        write("b.example");
        assert_eq!(file.judge(1, Some(&a), 100), Allowed, "not looked for yet");
        assert_eq!(file.judge(1, Some(&a), 101), Refused);
        assert_eq!(file.judge(1, Some(&b), 101), Allowed);
        std::fs::write(&path, "{").unwrap();
        for now in [300, 500] {
            assert_eq!(file.judge(1, Some(&b), now), Allowed, "the last good one");
        }
        assert_eq!(counts.snapshot().broken_rule_sets, 1, "once, not each time");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.judge(1, Some(&b), 700), Allowed, "the file is gone");
        write("a.example");
        assert_eq!(file.judge(1, Some(&b), 900), Refused);
    }
}
