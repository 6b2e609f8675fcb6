//! Limits on the size of one tree. Anything beyond a limit is left out, with a message that names the limit;
//! objects in force stay in force.

/// The limits of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeLimits {
    /// The maximum number of files; further ones are not read.
    pub(crate) files: usize,
    /// The maximum number of objects; the file that exceeds it is ignored from there on.
    pub(crate) objects: usize,
    /// The maximum depth of nested folders.
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
