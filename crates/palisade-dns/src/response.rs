//! Responses: the addresses that a server has for the name of a query.

use crate::Query;
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::SVCB;
use hickory_proto::rr::rdata::svcb::SvcParamValue;
use hickory_proto::rr::{DNSClass, Name, RData};
use hickory_proto::serialize::binary::DecodeError;
use palisade_names::AnsweredAddress;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use thiserror::Error;

/// The longest chain of aliases that is followed.
const LONGEST_CHAIN: usize = 16;

/// Why a message is no response to a query.
#[derive(Debug, Error)]
pub enum ResponseError {
    /// It cannot be read.
    #[error("the response cannot be read: {0}")]
    Malformed(#[from] DecodeError),
    /// It is a query.
    #[error("a query where a response is expected")]
    Query,
    /// It has another identifier.
    #[error("a response to query {found}, not to {expected}")]
    Identifier {
        /// That of the query.
        expected: u16,
        /// That of the response.
        found: u16,
    },
    /// It answers another question.
    #[error("a response to another question")]
    Question,
}

impl Query {
    /// The addresses that a response has for the name of this query, each once: of A and AAAA records and of the hints
    /// of SVCB and HTTPS records, of the name itself and of the names that it is an alias of. A response that is no
    /// success has none. The TTL of an address is the least on the way to it. Sources: RFC 1035, RFC 1034 section
    /// 3.6.2, RFC 9460 section 7.3.
    pub fn read_response(&self, bytes: &[u8]) -> Result<Vec<AnsweredAddress>, ResponseError> {
        self.find_answer(&Message::from_vec(bytes)?)
    }

    /// The same of a message that has been read.
    pub(crate) fn find_answer(
        &self,
        response: &Message,
    ) -> Result<Vec<AnsweredAddress>, ResponseError> {
        if response.metadata.message_type != MessageType::Response {
            return Err(ResponseError::Query);
        }
        if response.metadata.id != self.id() {
            return Err(ResponseError::Identifier {
                expected: self.id(),
                found: response.metadata.id,
            });
        }
        // Names are compared without case: a server may answer in another than it was asked in.
        let is_error_without_question =
            response.queries.is_empty() && response.metadata.response_code != ResponseCode::NoError;
        if response.queries != self.message.queries && !is_error_without_question {
            return Err(ResponseError::Question);
        }
        let [question] = self.message.queries.as_slice() else {
            return Err(ResponseError::Question);
        };
        if response.metadata.response_code != ResponseCode::NoError {
            return Ok(Vec::new());
        }
        Ok(find_addresses(response, question.name()))
    }
}

/// The addresses of a name in the answers of a response, in order.
fn find_addresses(response: &Message, name: &Name) -> Vec<AnsweredAddress> {
    let chain = follow_aliases(response, name);
    let mut addresses: BTreeMap<IpAddr, Duration> = BTreeMap::new();
    for record in response
        .answers
        .iter()
        .filter(|record| record.dns_class == DNSClass::IN)
    {
        let Some(ttl) = chain.get(&record.name) else {
            continue;
        };
        let ttl = Duration::from_secs((*ttl).min(record.ttl).into());
        let mut hold = |address: IpAddr| {
            // Of several records the one that holds longest: each of them is an answer.
            let known = addresses.entry(address).or_default();
            *known = ttl.max(*known);
        };
        match &record.data {
            RData::A(address) => hold(address.0.into()),
            RData::AAAA(address) => hold(address.0.into()),
            RData::SVCB(service) => address_hints(service).for_each(hold),
            RData::HTTPS(service) => address_hints(&service.0).for_each(hold),
            _ => {}
        }
    }
    let answered = |(address, ttl)| AnsweredAddress { address, ttl };
    addresses.into_iter().map(answered).collect()
}

/// The name and those that it is an alias of, with the least TTL of the aliases on the way.
fn follow_aliases<'a>(response: &'a Message, name: &'a Name) -> BTreeMap<&'a Name, u32> {
    let mut chain = BTreeMap::from([(name, u32::MAX)]);
    let mut ends = vec![name];
    for _ in 0..LONGEST_CHAIN {
        let mut next = Vec::new();
        for record in response
            .answers
            .iter()
            .filter(|record| ends.contains(&&record.name))
        {
            let target = match &record.data {
                RData::CNAME(target) => &target.0,
                RData::SVCB(service) if service.svc_priority == 0 => &service.target_name,
                RData::HTTPS(service) if service.0.svc_priority == 0 => &service.0.target_name,
                _ => continue,
            };
            let ttl = chain
                .get(&record.name)
                .copied()
                .unwrap_or_default()
                .min(record.ttl);
            if !chain.contains_key(target) {
                chain.insert(target, ttl);
                next.push(target);
            }
        }
        if next.is_empty() {
            break;
        }
        ends = next;
    }
    chain
}

/// The addresses that a record of a service names beside its target.
fn address_hints(service: &SVCB) -> impl Iterator<Item = IpAddr> {
    service
        .svc_params
        .iter()
        .flat_map(|(_, value)| -> Vec<IpAddr> {
            match value {
                SvcParamValue::Ipv4Hint(hints) => {
                    hints.0.iter().map(|hint| hint.0.into()).collect()
                }
                SvcParamValue::Ipv6Hint(hints) => {
                    hints.0.iter().map(|hint| hint.0.into()).collect()
                }
                _ => Vec::new(),
            }
        })
}

#[cfg(test)]
mod tests;
