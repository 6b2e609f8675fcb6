//! The names of this node: policy by domain name gets its addresses here.
//!
//! [`NameManager`] takes in the answers that the DNS proxy offers ([`answer_link`]), from servers that may teach
//! ([`server_trust`]), and gives the engine one network set for each name. The answers are confirmed when the kernel
//! holds their addresses, and not before. An address stays for its time, and beyond that while a connection uses it
//! ([`connection_list`]). What is known survives the process ([`name_journal`]). [`rule_set_store`] is the other way
//! round: what the proxy may let pass. [`proxy_totals`] is what the proxies have counted.
//!
//! Promises: an answer from a server that may not teach opens nothing; a confirmed address is in the journal.
//!
//! Never: holds up an answer for what is known; reads a DNS message.

pub mod answer_link;
pub mod connection_list;
pub mod manager;
pub mod name_journal;
pub mod proxy_totals;
pub mod rule_set_store;
pub mod server_trust;

pub use manager::NameManager;
