//! Tests that measure what is lost, or how long a server takes: they run after all others, one at a time
//! (`scripts/test` selects them by the name of this module).

mod control_plane;
mod load;
mod source_faults;
