//! How much one tree may hold. What goes beyond is left out with a message that names the bound; what
//! was in force before stays.

/// The bounds of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeLimits {
    /// Files beyond this are not read.
    pub(crate) files: usize,
    /// Objects beyond this do not count, nor does the rest of the file they are in.
    pub(crate) objects: usize,
    /// Folders nested deeper than this are not entered.
    pub(crate) depth: usize,
}

impl Default for TreeLimits {
    fn default() -> Self {
        TreeLimits {
            files: 100_000,
            objects: 1_000_000,
            depth: 64,
        }
    }
}
