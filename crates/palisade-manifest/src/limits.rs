//! The bounds that keep any input from taking more than its share.

/// What one [`parse`](crate::parse()) may consume. Going over one ends the reading of that file with
/// a [`Problem`](crate::Problem) that names the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file.
    pub file_bytes: usize,
    /// Documents in one file; empty ones count.
    pub documents: usize,
    /// How deep lists and objects may nest. Never taken as more than 512, because values are
    /// compared, copied and dropped recursively.
    pub depth: usize,
    /// Values written in one file, over all its documents.
    pub nodes: usize,
    /// Values that come to be by copying what an anchor stands for, over all documents.
    pub alias_nodes: usize,
    /// Bytes of text in these values, each copy counted: whoever takes a text out copies it.
    pub alias_bytes: usize,
    /// Objects of one file, the items of its lists included, whether sound or not.
    pub objects: usize,
    /// Problems that are told of one file; one more says that there are others.
    pub problems: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 32 << 20,
            documents: 100_000,
            depth: 128,
            nodes: 3_000_000,
            alias_nodes: 200_000,
            alias_bytes: 16 << 20,
            objects: 500_000,
            problems: 1_000,
        }
    }
}

impl Limits {
    pub(crate) const MAX_DEPTH: usize = 512;

    pub(crate) fn effective_depth(&self) -> usize {
        self.depth.min(Self::MAX_DEPTH)
    }
}
