//! Offers of the proxy to the agent, and their confirmations: lines of JSON.
//!
//! Promises: an offer has all that decides whether its server may teach its client: who asked whom for which name.
//!
//! Never: has an address of another name than that in the question.

use palisade_model::DomainName;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// The longest line in bytes: the addresses of the longest answer fit.
pub(crate) const LONGEST_LINE: usize = 512 * 1024;

/// The addresses of an answer, offered to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerOffer {
    /// Its number, by which it is confirmed; unique in its connection.
    pub id: u64,
    /// Who asked.
    pub client: IpAddr,
    /// Who answered.
    pub server: SocketAddr,
    /// The name in the question.
    pub name: DomainName,
    /// Its addresses.
    pub addresses: Vec<OfferedAddress>,
}

/// An address of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedAddress {
    /// The address.
    pub address: IpAddr,
    /// What is left of the answer's TTL, in seconds.
    pub ttl_seconds: u64,
}

/// The agent's word that the addresses of an offer are in force, or that it takes none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfferConfirmation {
    /// The number of the offer.
    pub(crate) id: u64,
}

/// A line of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum AgentMessage {
    /// About an offer.
    Confirmed(OfferConfirmation),
    /// What was confirmed for a client may be in force no longer: its workload is gone, or held too much.
    Withdrawn {
        /// The client.
        client: IpAddr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_have_the_documented_form() {
        let text = r#"{"id":7,"client":"10.0.0.1","server":"[2001:db8::1]:53","name":"a.example","addresses":[{"address":"192.0.2.1","ttl_seconds":60}]}"#;
        let offer: AnswerOffer = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&offer).unwrap(), text);
        assert_eq!(offer.addresses[0].ttl_seconds, 60);
        let confirmation = serde_json::to_string(&OfferConfirmation { id: 7 }).unwrap();
        assert_eq!(confirmation, r#"{"id":7}"#);
        let client = IpAddr::from([10, 0, 0, 1]);
        for (message, text) in [
            (
                AgentMessage::Confirmed(OfferConfirmation { id: 7 }),
                r#"{"id":7}"#,
            ),
            (
                AgentMessage::Withdrawn { client },
                r#"{"client":"10.0.0.1"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
            assert_eq!(serde_json::from_str::<AgentMessage>(text).unwrap(), message);
        }
    }
}
