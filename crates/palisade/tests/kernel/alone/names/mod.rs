//! Policy by domain name under load: first packets after answers, and kills of the agent and of the DNS proxy.
//!
//! `LOAD_LOOKUPS` sets the number of lookups, and of `LOAD_KILLS` a twentieth are kills of the agent and a fiftieth of
//! the proxy.

mod crowds;
mod first_packets;
mod kills;
mod steady_queries;
