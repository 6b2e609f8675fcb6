//! Sources of updates: a directory of manifests.
