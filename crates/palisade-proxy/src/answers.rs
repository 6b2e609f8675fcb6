//! Answers of servers: which query each answers, and what it teaches.
//!
//! Promises: an answer that nobody waits for is counted and not passed on; one that cannot be read teaches nothing.
//!
//! Never: changes an answer.

use crate::counts::SharedCounts;
use crate::offer_queue::AnswerOrigin;
use crate::teacher::AnswerTeacher;
use palisade_dns::{Exchange, PendingQueries};
use palisade_names::AnsweredAddress;
use std::time::Duration;

/// An answer of a query that waited, and what it teaches.
#[derive(Debug)]
pub(crate) struct MatchedAnswer {
    /// `None` if it teaches nothing.
    addresses: Option<(AnswerOrigin, Vec<AnsweredAddress>)>,
    /// How long the proxy had the query before it was passed on.
    query_delay: Duration,
}

impl MatchedAnswer {
    /// Takes the query that an answer answers; `None` if there is none.
    pub(crate) fn take(
        pending: &mut PendingQueries,
        exchange: Exchange,
        answer: &[u8],
        counts: &SharedCounts,
    ) -> Option<MatchedAnswer> {
        let Some((passed, addresses)) = pending.take(exchange, answer) else {
            let passed = pending.take_unreadable(exchange, answer);
            counts.update(|counts| match passed {
                Some(_) => counts.answers.unreadable += 1,
                None => counts.answers.foreign += 1,
            });
            return passed.map(|passed| MatchedAnswer {
                addresses: None,
                query_delay: passed.delay,
            });
        };
        let name = passed.query.name().filter(|_| !addresses.is_empty());
        let origin = name.map(|name| AnswerOrigin {
            client: exchange.client.ip(),
            server: exchange.server,
            name: name.clone(),
        });
        Some(MatchedAnswer {
            addresses: origin.map(|origin| (origin, addresses)),
            query_delay: passed.delay,
        })
    }

    /// How long the proxy had the query before it was passed on.
    pub(crate) fn query_delay(&self) -> Duration {
        self.query_delay
    }

    /// Whether it teaches anything.
    pub(crate) fn has_addresses(&self) -> bool {
        self.addresses.is_some()
    }

    /// Offers what it teaches, and returns when the answer may be released.
    pub(crate) async fn teach(self, teacher: &AnswerTeacher) {
        if let Some((origin, addresses)) = self.addresses {
            teacher.teach(origin, &addresses).await;
        }
    }
}
