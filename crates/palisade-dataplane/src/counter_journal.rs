//! The format of the counter journal: a durable write-ahead log, so that no count is lost with the process.
//!
//! A count lives in a driver's counter until that is deleted; from then on it is in the journal. The first
//! line is a header with the schema; then follows one entry a line, as JSON. What is about keys or about
//! values that were read names the part of the ledger. A line without its end was being written when the
//! process died.
//!
//! Promises: a deletion is journalled before it happens, so after a crash at any time the next process can
//! tell from the counters that are left which are gone. Never: decides where the journal is stored.

use std::io;

use palisade_tables::{AuditComparison, VerdictCause};
use serde::{Deserialize, Serialize};

use palisade_layout::CounterKey;
use palisade_model::Str;

/// The schema that is written.
const SCHEMA: u32 = 4;
/// The schema before: without parts; the header names the driver that made the keys.
const DRIVER_SCHEMA: u32 = 3;
/// The schema before that: some entries have other names, and the header names no driver.
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
        "schema {schema} is not supported (this build reads schemas {UNNAMED_DRIVER_SCHEMA} to {SCHEMA})"
    )]
    Schema {
        /// The schema that it has.
        schema: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct JournalHeader {
    schema: u32,
    /// Of [`DRIVER_SCHEMA`].
    #[serde(default, skip_serializing)]
    driver: Option<Str>,
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

/// One entry of the journal. The text is the part of the ledger; numbers are accounts, then packets and bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum JournalEntry {
    /// Assigns a number to an account, for the entries that follow.
    Account(u32, JournalAccount),
    /// The accounts of a counter that exists.
    Counter(Str, CounterKey, Vec<u32>),
    /// A counter about to be deleted: its key, accounts and value.
    Retiring(Str, CounterKey, Vec<u32>, u64, u64),
    /// All counters of the part that were about to be deleted are deleted.
    Deleted(Str),
    /// Whether they were deleted has been read from the counters.
    Reconciled(Str),
    /// Moves a count of the part's counters to the retired counts of an account: what had it is gone. What the
    /// part had less is added all the same.
    Lost(Str, u32, u64, u64),
    /// What the part's counters had for an account when they were read last.
    Count(Str, u32, u64, u64),
    /// Adds to the retired counts of an account.
    Add(u32, u64, u64),
    /// Of former schemas: the total of an account that was reported last, when there was only this part.
    #[serde(skip)]
    Total(Str, u32, u64, u64),
}

/// One entry of a journal of a former schema. The aliases are those of [`UNNAMED_DRIVER_SCHEMA`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum FormerJournalEntry {
    Account(u32, JournalAccount),
    #[serde(alias = "place")]
    Counter(CounterKey, Vec<u32>),
    #[serde(alias = "going")]
    Retiring(CounterKey, Vec<u32>, u64, u64),
    #[serde(alias = "gone")]
    Deleted,
    #[serde(alias = "stayed")]
    Reconciled,
    Add(u32, u64, u64),
    #[serde(alias = "told")]
    Total(u32, u64, u64),
}

impl FormerJournalEntry {
    /// The same entry of the only part.
    fn of_part(self, part: Str) -> JournalEntry {
        match self {
            Self::Account(number, account) => JournalEntry::Account(number, account),
            Self::Counter(key, numbers) => JournalEntry::Counter(part, key, numbers),
            Self::Retiring(key, numbers, packets, bytes) => {
                JournalEntry::Retiring(part, key, numbers, packets, bytes)
            }
            Self::Deleted => JournalEntry::Deleted(part),
            Self::Reconciled => JournalEntry::Reconciled(part),
            // It was written for counters that were gone, and before the totals of a compaction.
            Self::Add(number, packets, bytes) => JournalEntry::Lost(part, number, packets, bytes),
            Self::Total(number, packets, bytes) => {
                JournalEntry::Total(part, number, packets, bytes)
            }
        }
    }
}

/// The content of a journal.
#[derive(Debug, Default)]
pub(crate) struct JournalContent {
    pub(crate) entries: Vec<JournalEntry>,
    /// Why reading ended early.
    pub(crate) error: Option<JournalError>,
}

/// Reads a journal of any schema.
pub(crate) fn decode(text: &[u8]) -> JournalContent {
    let mut content = JournalContent::default();
    // The only part of a journal of a former schema.
    let mut former_part: Option<Str> = None;
    let complete = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = text[..complete].split(|byte| *byte == b'\n');
    for (line, text) in (1..).zip(lines).filter(|(_, text)| !text.is_empty()) {
        let result = match (line, &former_part) {
            (1, _) => serde_json::from_slice(text).map(|header: JournalHeader| {
                let unnamed = Str::new_static(UNNAMED_DRIVER);
                match header.schema {
                    SCHEMA => {}
                    DRIVER_SCHEMA => former_part = Some(header.driver.unwrap_or(unnamed)),
                    UNNAMED_DRIVER_SCHEMA => former_part = Some(unnamed),
                    schema => content.error = Some(JournalError::Schema { schema }),
                }
            }),
            (_, None) => serde_json::from_slice(text).map(|entry| content.entries.push(entry)),
            (_, Some(part)) => serde_json::from_slice(text).map(|entry: FormerJournalEntry| {
                content.entries.push(entry.of_part(part.clone()));
            }),
        };
        if let Err(source) = result {
            content.error = Some(JournalError::Damaged { line, source });
        }
        if content.error.is_some() {
            break;
        }
    }
    content
}

/// The text of a whole journal.
pub(crate) fn encode(entries: &[JournalEntry]) -> io::Result<Vec<u8>> {
    let header = JournalHeader {
        schema: SCHEMA,
        driver: None,
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
        let part = || Str::new_static("fake");
        vec![
            JournalEntry::Account(0, JournalAccount::Rule(rule)),
            JournalEntry::Account(1, JournalAccount::Reason("spoofed".to_owned())),
            JournalEntry::Counter(part(), key.clone(), vec![0]),
            JournalEntry::Retiring(part(), key, vec![0, 1], 1, u64::MAX),
            JournalEntry::Deleted(part()),
            JournalEntry::Reconciled(part()),
            JournalEntry::Lost(part(), 0, 5, 6),
            JournalEntry::Count(part(), 1, 3, 4),
            JournalEntry::Add(0, 1, 2),
        ]
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut text = encode(&entries()).unwrap();
        encode_entries(&entries()[3..], &mut text).unwrap();
        let content = decode(&text);
        assert_eq!(content.entries, [&entries()[..], &entries()[3..]].concat());
        assert!(content.error.is_none());
        let nothing = decode(b"");
        assert!(nothing.entries.is_empty() && nothing.error.is_none());
    }

    #[test]
    fn entries_of_former_schemas_are_those_of_one_part() {
        let former = |header: &str, names: [&str; 5]| {
            let [counter, retiring, deleted, reconciled, total] = names;
            format!(
                "{header}\n{{\"{counter}\":[\"k\",[0]]}}\n{{\"{retiring}\":[\"k\",[0],1,2]}}\n\"{deleted}\"\n\
                 \"{reconciled}\"\n{{\"add\":[0,3,4]}}\n{{\"{total}\":[0,5,6]}}\n"
            )
        };
        let unnamed = ["place", "going", "gone", "stayed", "told"];
        let named = ["counter", "retiring", "deleted", "reconciled", "total"];
        for (text, part) in [
            (former("{\"schema\":2}", unnamed), "nftables"),
            (former("{\"schema\":3,\"driver\":\"x\"}", named), "x"),
        ] {
            let content = decode(text.as_bytes());
            assert!(content.error.is_none(), "{:?}", content.error);
            let (part, key) = (|| Str::new(part), CounterKey::new("k"));
            let expected = [
                JournalEntry::Counter(part(), key.clone(), vec![0]),
                JournalEntry::Retiring(part(), key, vec![0], 1, 2),
                JournalEntry::Deleted(part()),
                JournalEntry::Reconciled(part()),
                JournalEntry::Lost(part(), 0, 3, 4),
                JournalEntry::Total(part(), 0, 5, 6),
            ];
            assert_eq!(content.entries, expected);
        }
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
        let text = format!("{{\"schema\":4}}\n{line}\n");
        assert_eq!(decode(text.as_bytes()).entries, [entry]);
    }

    #[test]
    fn what_is_damaged_costs_only_what_comes_after() {
        for (header, deleted) in [
            ("{\"schema\":2}", "\"gone\""),
            ("{\"schema\":3,\"driver\":\"nftables\"}", "\"deleted\""),
            ("{\"schema\":4}", "{\"deleted\":\"nftables\"}"),
        ] {
            let good = format!("{header}\n{deleted}\n");
            let expected = [JournalEntry::Deleted(Str::new_static("nftables"))];
            let torn = decode(format!("{good}{{\"add\":[0,").as_bytes());
            assert_eq!(torn.entries, expected);
            assert!(torn.error.is_none());
            let damaged = decode(format!("{good}{{\"add\":[0]}}\n{deleted}\n").as_bytes());
            assert_eq!(damaged.entries, expected);
            assert!(matches!(
                damaged.error,
                Some(JournalError::Damaged { line: 3, .. })
            ));
        }
        for text in ["x\n", "{\"schema\":1,\"counts\":[]}\n", "{\"schema\":5}\n"] {
            let content = decode(text.as_bytes());
            let is_unread = content.entries.is_empty();
            assert!(is_unread && content.error.is_some(), "{text}");
        }
    }
}
