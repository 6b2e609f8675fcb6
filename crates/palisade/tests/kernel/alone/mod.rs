//! Tests that measure what is lost: they run after all others, one at a time (`scripts/test` selects them by the name
//! of this module).

mod load;
