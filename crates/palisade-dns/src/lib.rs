//! DNS messages, as far as a proxy between a workload and its server has to understand them.
//!
//! A [`Query`] says which name is asked for; [`Query::read_response`] says which addresses a response has for it;
//! [`PendingQueries`] holds what was asked, so that nobody else can answer. The
//! proxy passes on the bytes of both as they are, so nothing here is written but a [`Query::refusal`].
//!
//! Promises: a response teaches only addresses of the name in the question, found along its chain of aliases, and only
//! if it answers that very query; what cannot be read teaches nothing; no input panics. Messages are read by
//! `hickory-proto`.
//!
//! Never: asks a server, or decides which name may be asked for.

mod pending;
mod query;
mod response;

pub use pending::{Exchange, PassedQuery, PendingLimits, PendingQueries};
pub use query::{Query, QueryError};
pub use response::ResponseError;
