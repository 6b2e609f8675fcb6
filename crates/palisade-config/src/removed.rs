//! The parameters of former releases, each with what replaces it. A configuration that still sets one is
//! rejected, so that nobody believes in a value that is not used.

/// A parameter of a former release.
#[derive(Clone, Copy, Debug)]
pub struct RemovedParameter {
    /// Its name.
    pub name: &'static str,
    /// What replaces it, as a clause.
    pub replacement: &'static str,
}

const fn removed(name: &'static str, replacement: &'static str) -> RemovedParameter {
    RemovedParameter { name, replacement }
}

/// Every removed parameter.
pub const REMOVED_PARAMETERS: &[RemovedParameter] = &[
    removed(
        "kubeconfig",
        "set kubernetes to the path of the kubeconfig file",
    ),
    removed(
        "settle",
        "the directory is always read once it was unchanged for 100 milliseconds; remove it",
    ),
    removed(
        "pool-ipv4",
        "ipam-pool has the networks of both families, such as 10.245.0.0/24,fd50:616c:6973::/64",
    ),
    removed(
        "pool-ipv6",
        "ipam-pool has the networks of both families; without one of IPv6, no IPv6 address is given",
    ),
    removed(
        "cni-missing-plugin",
        "the CNI configuration always waits for its plugins; set cni-bin-dir to the directory where the runtimes have them",
    ),
    removed(
        "packet-mark-bit",
        "the bit is always 0x1000; give the program that writes it as well another mask",
    ),
    removed(
        "vxlan-from-workloads",
        "add vxlan to allow-encapsulation in place of `policy`; `drop` is the default",
    ),
    removed(
        "geneve-from-workloads",
        "add geneve to allow-encapsulation in place of `policy`; `drop` is the default",
    ),
    removed(
        "ipip-from-workloads",
        "add ipip to allow-encapsulation in place of `policy`; `drop` is the default",
    ),
    removed(
        "gre-from-workloads",
        "add gre to allow-encapsulation in place of `policy`; `drop` is the default",
    ),
    removed(
        "sysctl-dir",
        "the agent uses /host/proc/sys where this host's /proc/sys/net is mounted below it, and else /proc/sys; remove it",
    ),
    removed(
        "api-rate",
        "each user may always make 100 requests per second; remove it",
    ),
    removed(
        "api-burst",
        "each user may always make 200 requests at once; remove it",
    ),
    removed(
        "api-body-limit",
        "the body of a request may always have 1 MiB; remove it",
    ),
    removed(
        "monitor-group",
        "the nflog group is always 20545; remove it",
    ),
    removed(
        "dry-run",
        "it is a flag only: `palisade agent --dry-run`, and the same for push and cleanup",
    ),
];

/// The removed parameter with this name.
pub fn find_removed_parameter(name: &str) -> Option<&'static RemovedParameter> {
    let mut all = REMOVED_PARAMETERS.iter();
    all.find(|parameter| parameter.name == name)
}
