//! How much one tree may hold. What goes beyond is left out with a message that names the bound; what
//! was in force before stays.

/// Files in one tree beyond this are not read.
pub(crate) const FILES: usize = 100_000;
/// Objects in one tree beyond this do not count.
pub(crate) const OBJECTS: usize = 1_000_000;
/// Folders nested deeper than this are not entered.
pub(crate) const DEPTH: usize = 64;
