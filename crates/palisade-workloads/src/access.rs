//! Access control for API requests: one table, without I/O.
//!
//! Root may do everything. Members of the API's group may read, and may attach network namespaces as
//! Pods known to the source: such a workload gets an address of the pools, and no resource of another
//! user. Every other user who can open the socket may read. The agent's own user counts as root,
//! because it can modify the agent.

use palisade_config::ApiConfig;
use palisade_network::network_driver::{AddressUse, NetnsFacts};
use std::fmt;
use std::net::IpAddr;

/// The client of a request, as identified by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Root, or the agent's own user.
    Root,
    /// A user who is a member of the API's group.
    Member(u32),
    /// Any other user who can open the socket; `None` if the kernel reports no credentials.
    Other(Option<u32>),
}

impl Caller {
    /// The uid, unless the caller is root.
    pub fn user(self) -> Option<u32> {
        match self {
            Caller::Root => None,
            Caller::Member(user) => Some(user),
            Caller::Other(user) => user,
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Root => f.write_str("root"),
            Caller::Member(user) | Caller::Other(Some(user)) => write!(f, "user {user}"),
            Caller::Other(None) => f.write_str("an unknown user"),
        }
    }
}

/// The class of an operation, which determines who may call it and which rate limit applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationClass {
    /// Health and readiness: anyone who can open the socket, independently of the load by others. It
    /// waits for no other request and does not involve the core.
    Probe,
    /// Reads: anyone who can open the socket.
    Read,
    /// Changes: root, the agent's own user, the members of the API's group.
    Change,
    /// CNI operations: root and the agent's own user. They have a rate limit of their own, because a
    /// starting node makes many calls at once, and other clients must not delay pods.
    Runtime,
}

/// Whether a caller may call operations of this class at all.
pub fn may_call(caller: Caller, lane: OperationClass) -> bool {
    match (lane, caller) {
        (_, Caller::Root)
        | (OperationClass::Read | OperationClass::Probe, _)
        | (OperationClass::Change, Caller::Member(_)) => true,
        (OperationClass::Change | OperationClass::Runtime, Caller::Other(_))
        | (OperationClass::Runtime, Caller::Member(_)) => false,
    }
}

/// What root has granted the members of the API's group beyond the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupGrants {
    /// Own labels and named ports (`api-group-labels any`).
    pub labels: bool,
    /// Named network namespaces that root created (`api-group-netns named`).
    pub named_netns: bool,
    /// The Kubernetes namespaces in which they may attach; empty: all (`api-group-namespaces`).
    pub namespaces: Vec<String>,
    /// The maximum number of attached workloads of each member (`api-group-workloads`).
    pub workloads: u32,
}

/// One permission that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessRequest<'a> {
    /// Labels or named ports other than the Pod's.
    Labels,
    /// A workload in this Kubernetes namespace.
    Namespace(&'a str),
    /// One more workload, while this many are attached.
    WorkloadCount(usize),
    /// A network namespace by name or path, before it is opened.
    NetnsPath(&'a str),
    /// An opened network namespace.
    Netns(NetnsFacts),
    /// An address, with its pool state and its present use on the host.
    Address {
        /// The address.
        address: IpAddr,
        /// Whether it belongs to a pool.
        in_pool: bool,
        /// Whether the pool allocates it (not reserved).
        usable: bool,
        /// Its present use on the host.
        used: Option<AddressUse>,
    },
    /// The name of a Pod that already has an address, or that uses the host's network.
    RunningPod,
    /// To replace, change or remove a workload attached by this user; `None`: by root.
    Workload(Option<u32>),
}

/// Why access was denied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{caller} may not {action}")]
pub struct AccessDenied {
    caller: Caller,
    action: String,
    hint: &'static str,
}

impl AccessDenied {
    /// What the caller can try instead; shown after `try: `.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

/// Checks one permission of a caller.
///
/// # Errors
/// If the caller does not have the permission.
pub fn check_access(
    caller: Caller,
    request: &AccessRequest<'_>,
    grants: &GroupGrants,
) -> Result<(), AccessDenied> {
    let user = match caller {
        Caller::Root => return Ok(()),
        Caller::Member(user) => user,
        Caller::Other(_) => return Err(access_denied(caller, "change anything", "sudo")),
    };
    let deny = |what: &str, hint| Err(access_denied(caller, what, hint));
    match request {
        AccessRequest::Labels if grants.labels => Ok(()),
        AccessRequest::Labels => deny(
            "set labels or ports: they come from the Pod with the same name",
            "omit --label and --port; root can allow them with api-group-labels",
        ),
        AccessRequest::Namespace(name)
            if grants.namespaces.is_empty() || grants.namespaces.iter().any(|n| n == name) =>
        {
            Ok(())
        }
        AccessRequest::Namespace(name) => deny(
            &format!("attach workloads in namespace {name}"),
            "root can allow it with api-group-namespaces",
        ),
        AccessRequest::WorkloadCount(attached) if *attached < grants.workloads as usize => Ok(()),
        AccessRequest::WorkloadCount(attached) => deny(
            &format!("attach more workloads: {attached} are attached"),
            "remove one; root can allow more with api-group-workloads",
        ),
        AccessRequest::NetnsPath(path) if is_plain_netns_path(path) => Ok(()),
        AccessRequest::NetnsPath(path) => deny(
            &format!("use the path {}", shorten_path(path)),
            "a name under /run/netns, or /proc/PID/ns/net",
        ),
        AccessRequest::Netns(netns) if netns.owner == Some(user) => Ok(()),
        AccessRequest::Netns(netns) if !netns.named => deny(
            "attach a network namespace of another user",
            "a namespace of your own (unshare --user --map-root-user --net), by /proc/PID/ns/net",
        ),
        AccessRequest::Netns(_) if !grants.named_netns => deny(
            "attach a network namespace that root made",
            "a namespace of your own, by /proc/PID/ns/net; root can allow it with api-group-netns named",
        ),
        AccessRequest::Netns(netns) if netns.used => deny(
            "attach a network namespace that already has interfaces",
            "a new namespace",
        ),
        AccessRequest::Netns(_) => Ok(()),
        AccessRequest::Address {
            address,
            in_pool,
            usable,
            used,
        } => match address_refusal(*in_pool, *usable, used.as_ref()) {
            Some((reason, hint)) => deny(&format!("use the address {address}: {reason}"), hint),
            None => Ok(()),
        },
        AccessRequest::RunningPod => deny(
            "attach a Pod that has a different address: it runs on another node",
            "the name of a Pod that is not running yet",
        ),
        AccessRequest::Workload(Some(owner)) if *owner == user => Ok(()),
        AccessRequest::Workload(Some(owner)) => deny(
            &format!("change a workload that user {owner} attached"),
            "that user, or sudo",
        ),
        AccessRequest::Workload(None) => deny("change a workload that root attached", "sudo"),
    }
}

/// Why a member may not use an address, and what to do instead; `None` if it may.
fn address_refusal(
    in_pool: bool,
    is_usable: bool,
    used: Option<&AddressUse>,
) -> Option<(String, &'static str)> {
    const ANOTHER: &str = "omit --address, or use another address of the pool";
    if !in_pool {
        let hint = "omit --address, or use an address of a pool (palisade ipam list)";
        return Some(("it is not in a pool".to_owned(), hint));
    }
    if !is_usable {
        return Some(("it is reserved".to_owned(), ANOTHER));
    }
    used.map(|used| (used.to_string(), ANOTHER))
}

fn access_denied(caller: Caller, action: &str, hint: &'static str) -> AccessDenied {
    AccessDenied {
        caller,
        action: action.to_owned(),
        hint,
    }
}

/// A path for use in a message: shortened, without terminal control characters.
fn shorten_path(path: &str) -> String {
    path.chars()
        .take(64)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

/// Whether every component of a path belongs to the kernel or root. Opening such a path reveals nothing
/// about other files and cannot block on a user's file system.
fn is_plain_netns_path(path: &str) -> bool {
    let is_name =
        |name: &str| !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let folders = ["/run/netns/", "/var/run/netns/"];
    if let Some(process) = path.strip_prefix("/proc/") {
        let parts: Vec<&str> = process.split('/').collect();
        return match *parts {
            [pid, "ns", "net"] => is_number(pid),
            [pid, "task", thread, "ns", "net"] => is_number(pid) && is_number(thread),
            _ => false,
        };
    }
    let named = folders.iter().find_map(|folder| path.strip_prefix(folder));
    is_name(named.unwrap_or(path))
}

/// The grants of the members of the API's group.
pub(crate) fn group_grants(config: &ApiConfig) -> GroupGrants {
    GroupGrants {
        labels: config.group_sets_labels,
        named_netns: config.group_attaches_named_netns,
        namespaces: config.group_namespaces.clone(),
        workloads: config.group_workloads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_sys::link::IpNet;

    const ROOT: Caller = Caller::Root;
    const MEMBER: Caller = Caller::Member(1000);
    const OTHER: Caller = Caller::Other(Some(1000));

    #[test]
    fn operations_by_caller() {
        let table = [
            (OperationClass::Read, [true, true, true]),
            (OperationClass::Probe, [true, true, true]),
            (OperationClass::Change, [true, true, false]),
            (OperationClass::Runtime, [true, false, false]),
        ];
        for (lane, expected) in table {
            let found = [ROOT, MEMBER, OTHER].map(|caller| may_call(caller, lane));
            assert_eq!(found, expected, "{lane:?}");
        }
        assert!(!may_call(Caller::Other(None), OperationClass::Change));
    }

    fn address(in_pool: bool, usable: bool, used: Option<AddressUse>) -> AccessRequest<'static> {
        AccessRequest::Address {
            address: "10.245.0.9".parse().unwrap(),
            in_pool,
            usable,
            used,
        }
    }

    fn netns(owner: Option<u32>, named: bool, used: bool) -> AccessRequest<'static> {
        AccessRequest::Netns(NetnsFacts { owner, named, used })
    }

    /// For each request: whether a member may do it by default, and with all grants.
    #[test]
    fn wishes_of_members() {
        let strict = GroupGrants {
            workloads: 2,
            namespaces: vec!["shop".to_owned()],
            ..GroupGrants::default()
        };
        let all = GroupGrants {
            labels: true,
            named_netns: true,
            namespaces: Vec::new(),
            workloads: 9,
        };
        let routed = AddressUse::Routed {
            destination: IpNet::host("10.245.0.9".parse().unwrap()),
            link: "eth1".to_owned(),
        };
        let table = [
            (AccessRequest::Labels, false, true),
            (AccessRequest::Namespace("shop"), true, true),
            (AccessRequest::Namespace("kube-system"), false, true),
            (AccessRequest::WorkloadCount(1), true, true),
            (AccessRequest::WorkloadCount(2), false, true),
            (AccessRequest::NetnsPath("web"), true, true),
            (AccessRequest::NetnsPath("/run/netns/web"), true, true),
            (AccessRequest::NetnsPath("/var/run/netns/web"), true, true),
            (AccessRequest::NetnsPath("/proc/17/ns/net"), true, true),
            (
                AccessRequest::NetnsPath("/proc/17/task/18/ns/net"),
                true,
                true,
            ),
            (AccessRequest::NetnsPath("/proc/self/ns/net"), false, false),
            (
                AccessRequest::NetnsPath("/proc/17/root/tmp/x"),
                false,
                false,
            ),
            (
                AccessRequest::NetnsPath("/proc/17/cwd/ns/net"),
                false,
                false,
            ),
            (AccessRequest::NetnsPath("/run/netns/../x"), false, false),
            (AccessRequest::NetnsPath("/run/netns/.."), false, false),
            (AccessRequest::NetnsPath("/home/ann/x"), false, false),
            (AccessRequest::NetnsPath("./x"), false, false),
            (AccessRequest::NetnsPath(""), false, false),
            (netns(Some(1000), false, true), true, true),
            (netns(Some(1000), true, false), true, true),
            (netns(Some(0), false, false), false, false),
            (netns(Some(1001), false, false), false, false),
            (netns(None, false, false), false, false),
            (netns(Some(0), true, false), false, true),
            (netns(Some(0), true, true), false, false),
            (address(true, true, None), true, true),
            (address(false, false, None), false, false),
            (address(true, false, None), false, false),
            (address(true, true, Some(AddressUse::Host)), false, false),
            (address(true, true, Some(AddressUse::Gateway)), false, false),
            (
                address(true, true, Some(AddressUse::Broadcast)),
                false,
                false,
            ),
            (address(true, true, Some(routed)), false, false),
            (AccessRequest::RunningPod, false, false),
            (AccessRequest::Workload(Some(1000)), true, true),
            (AccessRequest::Workload(Some(1001)), false, false),
            (AccessRequest::Workload(None), false, false),
        ];
        let nothing = GroupGrants::default();
        for (wish, by_default, at_most) in &table {
            let may = |caller, grants| check_access(caller, wish, grants).is_ok();
            assert_eq!(may(MEMBER, &strict), *by_default, "{wish:?}");
            assert_eq!(may(MEMBER, &all), *at_most, "{wish:?}, all given");
            assert!(may(ROOT, &nothing), "{wish:?} by root");
            assert!(!may(OTHER, &all), "{wish:?} by nobody in particular");
        }
    }

    #[test]
    fn a_refusal_says_who_what_and_what_next() {
        let long = format!("/home/\u{1b}[2J{}", "x".repeat(9_000));
        let refused = check_access(
            MEMBER,
            &AccessRequest::NetnsPath(&long),
            &GroupGrants::default(),
        )
        .unwrap_err();
        let text = refused.to_string();
        assert!(text.starts_with("user 1000 may not use the path /home/\\u{1b}[2Jx"));
        assert!(text.len() < 200 && !text.contains('\u{1b}'), "{text}");
        assert_eq!(
            refused.hint(),
            "a name under /run/netns, or /proc/PID/ns/net"
        );
    }
}
