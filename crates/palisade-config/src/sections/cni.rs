//! Pods that container runtimes attach.

use crate::section::section;
use crate::value_parser::{boolean, file_name, number_or_zero, optional_path, path};
use std::path::PathBuf;

section! {
    /// Pods that container runtimes attach.
    pub struct CniConfig: "Pods by CNI";

    /// The MTU of pods' interfaces, in bytes; 0 means that of the default route. Pods that are already attached
    /// keep theirs.
    pod_mtu: Option<u32> = "pod-mtu", number_or_zero(576, 65_535), "0", "BYTES", Live;

    /// The directory where the CNI configuration is written once the agent is ready; empty: none is written.
    conf_dir: Option<PathBuf> = "cni-conf-dir", optional_path(), "", "DIR", Restart, set_by_chart;

    /// The name of the CNI configuration in cni-conf-dir; runtimes use the first file by name.
    conf_name: String =
        "cni-conf-name", file_name(), "10-palisade.conflist", "FILE", Restart, set_by_chart;

    /// Whether the CNI configuration is kept when the agent stops; if it is removed, the runtime starts no pods and
    /// reports its node as not ready.
    keeps_conf: bool = "cni-conf-keep", boolean(), "true", "true|false", Live, set_by_chart;

    /// The runtimes' directory of CNI plugins, with palisade-cni and loopback. No CNI configuration is written
    /// while one is missing, and status names it.
    bin_dir: PathBuf = "cni-bin-dir", path(), "/opt/cni/bin", "DIR", Restart, set_by_chart;
}
