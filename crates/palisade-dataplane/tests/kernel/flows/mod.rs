//! Established flows with real packets, IPv4 and IPv6: revoked flows stop, and allowed flows are never cut,
//! whichever side sends and whatever was seen of the flow before.

pub(crate) mod place;

mod errors;
pub(crate) mod fast;
mod fast_events;
mod fast_failures;
mod fast_filters;
mod fast_inspection;
mod fast_reports;
mod guest;
mod handed_over;
mod marks;
mod midway;
mod outside;
mod pieces;
mod revoked;
mod spoofed;
mod streams;
pub(crate) mod switching;
mod translated;
mod two_hosts;

use palisade_testkit::need_root;
