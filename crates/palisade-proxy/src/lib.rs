//! The DNS proxy of a node: between workloads and their servers, as a process that outlives the agent.
//!
//! The dataplane redirects DNS packets to its [`Listeners`], with the number of a rule set in their mark. [`Proxy`]
//! reads each query, judges its name by the [`RuleSets`] of a shared file, and passes it on from the client's own
//! address. The addresses of an answer are offered to the agent, which reads them from an [`AnswerListener`];
//! the answer is released when the agent confirms that they are in force, or when the hold is over. By the same
//! connection it reports its [`ProxyCounts`].
//!
//! Promises: messages are passed on as the bytes that they are; a refused query reaches no server; an answer counts
//! once, and only from the server that was asked; without the agent queries are answered, and what was answered
//! meanwhile is offered later; whoever floods pays for it alone.
//!
//! Never: decides which names are allowed, or who may teach; changes a rule of the kernel; keeps a name after it was
//! answered and confirmed.
//!
//! The kernel must bring packets: for TCP with `net.ipv4.tcp_fwmark_accept=1`, without which an accepted connection
//! has no mark and is closed. The process needs `CAP_NET_ADMIN` and `CAP_NET_RAW`.

mod answer_listener;
mod answers;
mod clock;
mod config;
mod counts;
mod error;
mod handover;
mod latency;
mod listeners;
mod offer;
mod offer_queue;
mod private_socket;
mod proxy;
mod query_judge;
mod report;
mod rule_set_file;
mod rule_sets;
mod sockets;
mod tcp;
mod teacher;
mod udp;
mod upstream_table;

pub use answer_listener::{AnswerConnection, AnswerListener, ProxyMessage};
pub use config::{
    Config, ProxyLimits, RejectResponseCode, TcpLimits, TeachingLimits, UpstreamLimits,
};
pub use counts::{AnswerCounts, OfferCounts, ProxyCounts, QueryCounts, TcpCounts, UpstreamCounts};
pub use error::{AnswerLinkError, HandoverError, ProxyError, RuleSetsError};
pub use handover::{HandoverListener, Predecessor, take_over};
pub use latency::LatencyCounts;
pub use listeners::{Listeners, bind};
pub use offer::{AnswerOffer, OfferedAddress};
pub use proxy::Proxy;
pub use report::{ProxyId, ProxyReport};
pub use rule_sets::{NameVerdict, RuleSets};
