//! Established flows with real packets, IPv4 and IPv6: revoked flows stop, and allowed flows are never cut,
//! whichever side sends and whatever was seen of the flow before.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, other programs are their witnesses, real time is measured"
)]

mod place;

mod errors;
mod marks;
mod midway;
mod pieces;
mod revoked;
mod spoofed;
mod streams;
mod translated;

use palisade_testkit::need_root;
