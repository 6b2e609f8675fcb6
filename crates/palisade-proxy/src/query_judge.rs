//! The judgement of queries, for UDP and TCP alike.
//!
//! Promises: what cannot be read, and what no known rule set allows, is not passed on; each query is counted once.
//!
//! Never: sends anything.

use crate::clock::ProxyClock;
use crate::config::{Config, RejectResponseCode};
use crate::counts::{QueryCounts, SharedCounts};
use crate::rule_set_file::RuleSetFile;
use crate::rule_sets::NameVerdict;
use palisade_dns::Query;
use palisade_model::Protocol;
use std::cell::RefCell;

/// What becomes of a message of a client.
#[derive(Debug)]
pub(crate) enum QueryVerdict {
    /// It is passed on, and its answer waited for.
    Pass(Query),
    /// It is answered with this refusal.
    Reject(Vec<u8>),
    /// It is no query, or a refusal of it cannot be written.
    Drop,
}

/// Judges the queries of all clients.
#[derive(Debug)]
pub(crate) struct QueryJudge {
    config: Config,
    rule_sets: RefCell<RuleSetFile>,
    clock: ProxyClock,
    counts: SharedCounts,
}

impl QueryJudge {
    /// With the rule sets of the file of the parameters.
    pub(crate) fn new(config: Config, clock: ProxyClock, counts: SharedCounts) -> Self {
        let file = RuleSetFile::new(config.rule_sets.clone(), counts.clone());
        QueryJudge {
            config,
            rule_sets: RefCell::new(file),
            clock,
            counts,
        }
    }

    /// Judges a message from a packet or a connection with this mark.
    pub(crate) fn judge(&self, protocol: Protocol, mark: u32, message: &[u8]) -> QueryVerdict {
        let Ok(query) = Query::read(message) else {
            self.count(protocol, |counts| counts.malformed += 1);
            return QueryVerdict::Drop;
        };
        let number = self.config.rule_set_number(mark);
        let mut rule_sets = self.rule_sets.borrow_mut();
        let verdict = rule_sets.judge(number, query.name(), self.clock.now());
        self.count(protocol, |counts| match verdict {
            NameVerdict::Allowed => counts.allowed += 1,
            NameVerdict::Refused => counts.refused += 1,
            NameVerdict::UnknownRuleSet => counts.unknown_rule_set += 1,
        });
        if verdict == NameVerdict::Allowed {
            return QueryVerdict::Pass(query);
        }
        let rejection = match self.config.reject_response_code {
            RejectResponseCode::Refused => query.refusal(),
            RejectResponseCode::NonexistentDomain => query.nonexistence(),
        };
        rejection.map_or(QueryVerdict::Drop, QueryVerdict::Reject)
    }

    fn count(&self, protocol: Protocol, add: impl Fn(&mut QueryCounts)) {
        self.counts.update(|counts| {
            add(&mut counts.queries);
            if protocol == Protocol::TCP {
                add(&mut counts.tcp.queries);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::sample_config;
    use crate::rule_sets::RuleSets;
    use crate::rule_sets::tests::rule_set;
    use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
    use hickory_proto::rr::{Name, RecordType};

    #[test]
    fn each_message_is_judged_and_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = sample_config();
        config.rule_sets = folder.path().join("rule-sets.json");
        RuleSets::new([(1, rule_set("a.example"))])
            .write(&config.rule_sets)
            .unwrap();
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        let question =
            |name| hickory_proto::op::Query::query(Name::from_ascii(name).unwrap(), RecordType::A);
        message.add_query(question("a.example."));
        let allowed = message.to_vec().unwrap();
        message.queries = vec![question("b.example.")];
        let other = message.to_vec().unwrap();
        for (code, expected) in [
            (RejectResponseCode::Refused, ResponseCode::Refused),
            (
                RejectResponseCode::NonexistentDomain,
                ResponseCode::NXDomain,
            ),
        ] {
            config.reject_response_code = code;
            let counts = SharedCounts::default();
            let judge = QueryJudge::new(config.clone(), ProxyClock::start(), counts.clone());
            // Bits outside of the number do not count.
            let pass = judge.judge(Protocol::UDP, 0xff_01_ff, &allowed);
            assert!(matches!(pass, QueryVerdict::Pass(query) if query.id() == 7));
            for (mark, bytes) in [(0x100, &other), (0x200, &allowed), (0, &allowed)] {
                let QueryVerdict::Reject(answer) = judge.judge(Protocol::TCP, mark, bytes) else {
                    panic!("mark {mark:x}");
                };
                let answer = Message::from_vec(&answer).unwrap();
                assert_eq!(
                    (answer.metadata.id, answer.metadata.response_code),
                    (7, expected)
                );
            }
            assert!(matches!(
                judge.judge(Protocol::UDP, 0x100, b"x"),
                QueryVerdict::Drop
            ));
            let queries = counts.snapshot().queries;
            let numbers = (queries.allowed, queries.refused, queries.unknown_rule_set);
            assert_eq!((numbers, queries.malformed), ((1, 1, 2), 1));
            let expected = QueryCounts {
                refused: 1,
                unknown_rule_set: 2,
                ..QueryCounts::default()
            };
            assert_eq!(counts.snapshot().tcp.queries, expected);
        }
    }
}
