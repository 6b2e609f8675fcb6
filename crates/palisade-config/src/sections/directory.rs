//! The directory of manifests.

use crate::section::section;
use crate::value_parser::path;
use std::path::PathBuf;

section! {
    /// The directory of manifests.
    pub struct DirectoryConfig: "Manifest directory";

    /// The directory of manifests. With kubernetes or etcd it may be missing; if it exists at the start, its
    /// objects are added.
    path: PathBuf = "directory", path(), "/etc/palisade/policy", "DIR", Restart, set_by_chart;
}
