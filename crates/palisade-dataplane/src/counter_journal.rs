//! The format of the counter journal: a durable write-ahead log, so that no count is lost with the process.
//!
//! A count lives in a driver's counter until that is deleted; from then on it is in the journal. The first
//! line is a header with the schema and the driver that made the keys; then follows one entry a line, as
//! JSON. A line without its end was being written when the process died.
//!
//! Promises: a deletion is journalled before it happens, so after a crash at any time the next process can
//! tell from the counters that are left which are gone. Never: decides where the journal is stored.

use std::io;

use palisade_tables::{AuditComparison, VerdictCause};
use serde::{Deserialize, Serialize};

use palisade_layout::CounterKey;

/// The schema that is written.
const SCHEMA: u32 = 3;
/// The schema before: the same entries, some under other names, and no driver in the header.
const UNNAMED_DRIVER_SCHEMA: u32 = 2;
/// The driver of journals that name none: there was no other.
const UNNAMED_DRIVER: &str = "nftables";

/// Storage of the journal's text.
pub trait CounterJournal: Send {
    /// Appends text. Once it returns it survives the end of this process.
    ///
    /// # Errors
    /// If it could not be appended; earlier text is intact.
    fn append(&mut self, text: &[u8]) -> io::Result<()>;

    /// Atomically replaces the whole text.
    ///
    /// # Errors
    /// If it could not be written; the old text is then intact.
    fn replace(&mut self, text: &[u8]) -> io::Result<()>;
}

/// Why a journal was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A line is invalid; the lines before it were read.
    #[error("line {line} is damaged")]
    Damaged {
        /// The line number, from 1.
        line: usize,
        /// The cause.
        source: serde_json::Error,
    },
    /// Another version of Palisade wrote it.
    #[error(
        "schema {schema} is not supported (this build reads schemas {UNNAMED_DRIVER_SCHEMA} and {SCHEMA})"
    )]
    Schema {
        /// The schema that it has.
        schema: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct JournalHeader {
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
}

/// What a count is attributed to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum JournalAccount {
    /// A rule, tier default or profile.
    Rule(VerdictCause),
    /// A drop that no rule decided: the reason's name.
    Reason(String),
    /// Packets judged where something in audit applies, by their verdicts.
    Audit(AuditComparison),
}

/// One entry of the journal. Numbers are accounts, then packets and bytes. The aliases are schema 2's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum JournalEntry {
    /// Assigns a number to an account, for the entries that follow.
    Account(u32, JournalAccount),
    /// The accounts of a counter that exists.
    #[serde(alias = "place")]
    Counter(CounterKey, Vec<u32>),
    /// A counter about to be deleted: its key, accounts and value.
    #[serde(alias = "going")]
    Retiring(CounterKey, Vec<u32>, u64, u64),
    /// All counters about to be deleted are deleted.
    #[serde(alias = "gone")]
    Deleted,
    /// Whether they were deleted has been read from the counters.
    #[serde(alias = "stayed")]
    Reconciled,
    /// Adds to the retired counts of an account.
    Add(u32, u64, u64),
    /// The total of an account that was reported last.
    #[serde(alias = "told")]
    Total(u32, u64, u64),
}

/// The content of a journal.
#[derive(Debug, Default)]
pub(crate) struct JournalContent {
    /// The driver that made the keys; `None` for an empty journal.
    pub(crate) driver: Option<String>,
    pub(crate) entries: Vec<JournalEntry>,
    /// Why reading ended early.
    pub(crate) error: Option<JournalError>,
}

/// Reads a journal.
pub(crate) fn decode(text: &[u8]) -> JournalContent {
    let mut content = JournalContent::default();
    let complete = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = text[..complete].split(|byte| *byte == b'\n');
    for (line, text) in (1..).zip(lines).filter(|(_, text)| !text.is_empty()) {
        let read = match line {
            1 => serde_json::from_slice(text).map(|header: JournalHeader| {
                content.driver = match header.schema {
                    SCHEMA => header.driver,
                    UNNAMED_DRIVER_SCHEMA => Some(UNNAMED_DRIVER.to_owned()),
                    schema => {
                        content.error = Some(JournalError::Schema { schema });
                        None
                    }
                };
            }),
            _ => serde_json::from_slice(text).map(|entry| content.entries.push(entry)),
        };
        if let Err(source) = read {
            content.error = Some(JournalError::Damaged { line, source });
        }
        if content.error.is_some() {
            break;
        }
    }
    content
}

/// The text of a whole journal.
pub(crate) fn encode(driver: &str, entries: &[JournalEntry]) -> io::Result<Vec<u8>> {
    let header = JournalHeader {
        schema: SCHEMA,
        driver: Some(driver.to_owned()),
    };
    let mut text = serde_json::to_vec(&header)?;
    text.push(b'\n');
    encode_entries(entries, &mut text)?;
    Ok(text)
}

/// Adds the text of entries.
pub(crate) fn encode_entries(entries: &[JournalEntry], text: &mut Vec<u8>) -> io::Result<()> {
    for entry in entries {
        serde_json::to_writer(&mut *text, entry)?;
        text.push(b'\n');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{Direction, ObjectId, ObjectKind, PolicyId, RuleOrigin};
    use palisade_tables::Verdict;

    fn entries() -> Vec<JournalEntry> {
        let rule = VerdictCause::Rule {
            policy: PolicyId {
                object: ObjectId {
                    namespace: Some("shop".into()),
                    name: "web".into(),
                    kind: ObjectKind::new("", "Pod"),
                },
                part: 0,
            },
            direction: Direction::Ingress,
            origin: RuleOrigin {
                index: 3,
                name: Some("n".into()),
                fingerprint: u64::MAX,
                line: None,
            },
        };
        let key = CounterKey::new("p_port 00ab");
        vec![
            JournalEntry::Account(0, JournalAccount::Rule(rule)),
            JournalEntry::Account(1, JournalAccount::Reason("spoofed".to_owned())),
            JournalEntry::Counter(key.clone(), vec![0]),
            JournalEntry::Retiring(key, vec![0, 1], 1, u64::MAX),
            JournalEntry::Deleted,
            JournalEntry::Reconciled,
            JournalEntry::Add(0, 1, 2),
            JournalEntry::Total(1, 3, 4),
        ]
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut text = encode("fake", &entries()).unwrap();
        encode_entries(&entries()[3..], &mut text).unwrap();
        let content = decode(&text);
        assert_eq!(content.driver.as_deref(), Some("fake"));
        assert_eq!(content.entries, [&entries()[..], &entries()[3..]].concat());
        assert!(content.error.is_none());
        let nothing = decode(b"");
        assert!(nothing.entries.is_empty() && nothing.driver.is_none() && nothing.error.is_none());
    }

    #[test]
    fn causes_keep_their_stored_names() {
        let line = r#"{"account":[7,{"rule":{"Audit":{"verdict":"Deny","credit":{"PassEnd":{"direction":"Ingress"}}}}}]}"#;
        let cause = VerdictCause::Audit {
            verdict: Verdict::Deny,
            cause: Box::new(VerdictCause::StageEnd {
                direction: Direction::Ingress,
            }),
        };
        let entry = JournalEntry::Account(7, JournalAccount::Rule(cause));
        assert_eq!(serde_json::to_string(&entry).unwrap(), line);
        let text = format!("{{\"schema\":3,\"driver\":\"fake\"}}\n{line}\n");
        assert_eq!(decode(text.as_bytes()).entries, [entry]);
    }

    #[test]
    fn what_is_damaged_costs_only_what_comes_after() {
        for header in ["{\"schema\":2}", "{\"schema\":3,\"driver\":\"nftables\"}"] {
            let good = format!("{header}\n\"gone\"\n");
            let torn = decode(format!("{good}{{\"add\":[0,").as_bytes());
            assert_eq!(torn.entries, [JournalEntry::Deleted]);
            assert_eq!(torn.driver.as_deref(), Some("nftables"));
            assert!(torn.error.is_none());
            let damaged = decode(format!("{good}{{\"add\":[0]}}\n\"gone\"\n").as_bytes());
            assert_eq!(damaged.entries, [JournalEntry::Deleted]);
            assert!(matches!(
                damaged.error,
                Some(JournalError::Damaged { line: 3, .. })
            ));
        }
        for text in ["x\n", "{\"schema\":1,\"counts\":[]}\n", "{\"schema\":4}\n"] {
            let content = decode(text.as_bytes());
            let unread = content.entries.is_empty() && content.driver.is_none();
            assert!(unread && content.error.is_some(), "{text}");
        }
    }
}
