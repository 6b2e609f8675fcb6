//! Tests that wait for a real API server, for the time that it takes: two at a time, after the tests of [`alone`]
//! (`scripts/test` selects them by the name of this module).
//!
//! [`alone`]: crate::alone

mod control_plane;
mod source_faults;
