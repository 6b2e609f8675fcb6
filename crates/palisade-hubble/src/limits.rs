//! What a client may ask for: every bound of the service in one place.
//!
//! Promises: a request beyond a bound is refused with the name of the bound, before any work is done for it.
//!
//! Never: cuts a request down to what is allowed.

/// The greatest number of streams at a time: readers of flows and events, and of peers. More get `RESOURCE_EXHAUSTED`.
pub const MAX_STREAMS: usize = 1024;

/// The greatest size of a request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The greatest number of filters of a list: whitelist or blacklist.
pub const MAX_FILTERS: usize = 256;

/// The greatest number of values of all filters of a request.
pub const MAX_FILTER_VALUES: usize = 1024;

/// The greatest number of regular expressions of a request; the patterns of a list of names are one.
pub const MAX_EXPRESSIONS: usize = 64;

/// The greatest size of a compiled regular expression, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 256 << 10;

/// The greatest number of paths of a field mask.
pub const MAX_MASK_PATHS: usize = 256;

/// How many lines are read at a time. Other tasks run between them, so it bounds how long they wait for the costliest
/// filters that are allowed: some milliseconds.
pub(crate) const BATCH: usize = 64;

/// How many messages wait for a client that is slower than the reader.
pub(crate) const QUEUE: usize = 64;
