//! Makes the kernel hold the policy of the objects it is given.
//!
//! [`enforcer::Enforcer`] owns the driver and the two subsystems that write by it: policy, which has the engine that
//! computes the tables ([`policy_subsystem`]), and masquerading ([`masquerade`]). The policy of the present and of the
//! recent past is one state that other threads read ([`policy_state`]): the monitor, explanations, and the warning of
//! connections that a change cuts ([`cut_connections`]).
//!
//! Promises: nothing is written before the sources are in sync; start, retry and repair are one path; counts survive a
//! restart.
//!
//! Never: knows a workload's interface or record, a kind of driver, or a source.

mod counts;
pub mod cut_connections;
pub mod enforcer;
mod flush_history;
pub mod masquerade;
pub mod metrics;
pub mod packet_reason;
pub mod policy_state;
pub mod policy_subsystem;
