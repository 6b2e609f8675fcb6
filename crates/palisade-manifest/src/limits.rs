//! Limits that bound the resources used for any input.

/// The limits of one [`parse`](crate::parse()). Exceeding one ends the reading of the file with a
/// [`Problem`](crate::Problem) that names the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file.
    pub file_bytes: usize,
    /// Documents in one file; empty ones count.
    pub documents: usize,
    /// Nesting depth of lists and objects. At most 512 is used, because values are compared, copied and
    /// dropped recursively.
    pub depth: usize,
    /// Values in one file, over all its documents.
    pub nodes: usize,
    /// Values created by copying anchored values for aliases, over all documents.
    pub alias_nodes: usize,
    /// Bytes of text in these values. Each copy counts, because extracting a text copies it.
    pub alias_bytes: usize,
    /// Objects of one file, including the items of its lists and invalid objects.
    pub objects: usize,
    /// Problems listed for one file; one more states that there are others.
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
