//! Queries: which name is asked for, and the answers of a proxy that refuses.

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::DecodeError;
use palisade_model::DomainName;
use thiserror::Error;

/// A query for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub(crate) message: Message,
    name: Option<DomainName>,
}

/// Why a message is no query that a proxy can judge.
#[derive(Debug, Error)]
pub enum QueryError {
    /// It cannot be read.
    #[error("the query cannot be read: {0}")]
    Malformed(#[from] DecodeError),
    /// It is a response.
    #[error("a response where a query is expected")]
    Response,
    /// It is no standard query: an update, a notification.
    #[error("operation {0} is no query")]
    Operation(u8),
    /// It has no question, or several, so that no single name decides.
    #[error("a query with {0} questions; one is expected")]
    Questions(usize),
}

impl Query {
    /// Reads a query. Source: RFC 1035, section 4.1; several questions are refused, as RFC 9619 asks.
    pub fn read(bytes: &[u8]) -> Result<Self, QueryError> {
        let message = Message::from_vec(bytes)?;
        if message.metadata.message_type != MessageType::Query {
            return Err(QueryError::Response);
        }
        if message.metadata.op_code != OpCode::Query {
            return Err(QueryError::Operation(message.metadata.op_code.into()));
        }
        let [question] = message.queries.as_slice() else {
            return Err(QueryError::Questions(message.queries.len()));
        };
        Ok(Query {
            name: domain_name(question.name()),
            message,
        })
    }

    /// The identifier that the response repeats.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.message.metadata.id
    }

    /// The name that is asked for; `None` if it has characters that no pattern of a policy has, and for the root.
    #[must_use]
    pub fn name(&self) -> Option<&DomainName> {
        self.name.as_ref()
    }

    /// The type of records that is asked for, as text: `A`, `AAAA`, `HTTPS`.
    #[must_use]
    pub fn record_type(&self) -> String {
        let types = self
            .message
            .queries
            .iter()
            .map(|question| question.query_type().to_string());
        types.collect()
    }

    /// The response of a server that refuses to answer. Source: RFC 1035, section 4.1.1: REFUSED, "for policy
    /// reasons".
    #[must_use]
    pub fn refusal(&self) -> Option<Vec<u8>> {
        self.failure(ResponseCode::Refused)
    }

    /// The response that the name does not exist, for resolvers that ask no further after a refusal.
    #[must_use]
    pub fn nonexistence(&self) -> Option<Vec<u8>> {
        self.failure(ResponseCode::NXDomain)
    }

    /// A response without records; `None` if the question cannot be written again.
    fn failure(&self, code: ResponseCode) -> Option<Vec<u8>> {
        let mut response = Message::error_msg(self.id(), OpCode::Query, code);
        response.metadata.recursion_desired = self.message.metadata.recursion_desired;
        response.metadata.checking_disabled = self.message.metadata.checking_disabled;
        response.add_queries(self.message.queries.iter().cloned());
        response.to_vec().ok()
    }
}

/// A name of a message as policies spell it.
fn domain_name(name: &Name) -> Option<DomainName> {
    let mut labels = Vec::new();
    for label in name.iter() {
        // A dot inside of a label would be read as one between labels.
        if label.contains(&b'.') {
            return None;
        }
        labels.push(std::str::from_utf8(label).ok()?);
    }
    labels.join(".").parse().ok()
}

#[cfg(test)]
mod tests;
