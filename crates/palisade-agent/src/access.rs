//! Who may ask for what: one table, without IO.
//!
//! Root may do everything. Members of the API's group read, and attach namespaces as Pods that the
//! source knows: they get what the Pod of that name gets, an address of the pools, and nothing that is
//! somebody else's. Whoever else can open the socket reads. The agent's own user counts as root, since
//! whoever acts as that user could change the agent itself.

use crate::http::OperationClass;
use crate::network_driver::{AddressUse, NetnsFacts};
use std::fmt;
use std::net::IpAddr;

/// Who asks, as the kernel names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Root, or the agent's own user.
    Root,
    /// A user who is a member of the API's group.
    Member(u32),
    /// Any other user who could open the socket; `None` where the kernel names none.
    Other(Option<u32>),
}

impl Caller {
    /// The user, where it is not root.
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

/// Whether a caller may call operations of this kind at all.
pub fn may_call(caller: Caller, lane: OperationClass) -> bool {
    match (lane, caller) {
        (_, Caller::Root)
        | (OperationClass::Read | OperationClass::Probe, _)
        | (OperationClass::Change, Caller::Member(_)) => true,
        (OperationClass::Change | OperationClass::Runtime, Caller::Other(_))
        | (OperationClass::Runtime, Caller::Member(_)) => false,
    }
}

/// What root gave the members of the API's group beyond what they always may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupGrants {
    /// Labels and named ports of their own choice (`api-group-labels any`).
    pub labels: bool,
    /// Namespaces that root made, by their names (`api-group-netns named`).
    pub named_netns: bool,
    /// The Kubernetes namespaces they may attach in; empty: all (`api-group-namespaces`).
    pub namespaces: Vec<String>,
    /// How many workloads each may have attached at a time (`api-group-workloads`).
    pub workloads: u32,
}

/// Something that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessRequest<'a> {
    /// Labels or named ports that are not the Pod's.
    Labels,
    /// A workload in this Kubernetes namespace.
    Namespace(&'a str),
    /// One more workload, where so many are attached.
    WorkloadCount(usize),
    /// A network namespace by this name or path, before it is opened.
    NetnsPath(&'a str),
    /// A network namespace that was opened.
    Netns(NetnsFacts),
    /// An address; of which pool it is, whether that gives it out, and what the host does with it.
    Address {
        /// Which.
        address: IpAddr,
        /// Whether it lies in a pool.
        in_pool: bool,
        /// Whether it is one that the pool gives out.
        usable: bool,
        /// What the host does with it.
        used: Option<AddressUse>,
    },
    /// The name of a Pod that has an address of its own, or the host's.
    RunningPod,
    /// To take, change or remove a workload that this user attached; `None`: root did.
    Workload(Option<u32>),
}

/// Why a caller may not have something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{caller} may not {action}")]
pub struct AccessDenied {
    caller: Caller,
    action: String,
    hint: &'static str,
}

impl AccessDenied {
    /// What to try next.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

/// The table: what a caller may have.
///
/// # Errors
/// Why not.
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
            "give labels or ports: they are those of the Pod of that name",
            "leave --label and --port out; root can allow them with api-group-labels",
        ),
        AccessRequest::Namespace(name)
            if grants.namespaces.is_empty() || grants.namespaces.iter().any(|n| n == name) =>
        {
            Ok(())
        }
        AccessRequest::Namespace(name) => deny(
            &format!("attach anything in namespace {name}"),
            "root can allow it with api-group-namespaces",
        ),
        AccessRequest::WorkloadCount(attached) if *attached < grants.workloads as usize => Ok(()),
        AccessRequest::WorkloadCount(attached) => deny(
            &format!("attach more: {attached} are attached"),
            "remove one; root can allow more with api-group-workloads",
        ),
        AccessRequest::NetnsPath(path) if is_plain_netns_path(path) => Ok(()),
        AccessRequest::NetnsPath(path) => deny(
            &format!("give the path {}", shorten_path(path)),
            "a name under /run/netns, or /proc/PID/ns/net",
        ),
        AccessRequest::Netns(tenancy) if tenancy.owner == Some(user) => Ok(()),
        AccessRequest::Netns(tenancy) if !tenancy.named => deny(
            "attach a network namespace of another user",
            "one of your own (unshare --user --map-root-user --net), by /proc/PID/ns/net",
        ),
        AccessRequest::Netns(_) if !grants.named_netns => deny(
            "attach a network namespace that root made",
            "one of your own, by /proc/PID/ns/net; root can allow it with api-group-netns named",
        ),
        AccessRequest::Netns(tenancy) if tenancy.used => deny(
            "attach a network namespace that has interfaces already",
            "a new one",
        ),
        AccessRequest::Netns(_) => Ok(()),
        AccessRequest::Address {
            address, in_pool, ..
        } if !in_pool => deny(
            &format!("have the address {address}: it is in no pool"),
            "leave --address out, or take one of a pool (palisade ipam list)",
        ),
        AccessRequest::Address {
            address, usable, ..
        } if !usable => deny(
            &format!("have the address {address}: it is reserved"),
            "leave --address out, or take another one of the pool",
        ),
        AccessRequest::Address {
            address,
            used: Some(used),
            ..
        } => deny(
            &format!("have the address {address}: {used}"),
            "leave --address out, or take another one of the pool",
        ),
        AccessRequest::Address { .. } => Ok(()),
        AccessRequest::RunningPod => deny(
            "attach a Pod that has an address already, so runs elsewhere",
            "the name of a Pod that does not run yet",
        ),
        AccessRequest::Workload(Some(owner)) if *owner == user => Ok(()),
        AccessRequest::Workload(Some(owner)) => deny(
            &format!("touch what user {owner} attached"),
            "that user, or sudo",
        ),
        AccessRequest::Workload(None) => deny("touch what root attached", "sudo"),
    }
}

fn access_denied(caller: Caller, action: &str, hint: &'static str) -> AccessDenied {
    AccessDenied {
        caller,
        action: action.to_owned(),
        hint,
    }
}

/// A path, as far as a message holds it, without what a terminal would take for commands.
fn shorten_path(path: &str) -> String {
    path.chars()
        .take(64)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

/// Whether a path leads through nothing but what the kernel and root keep: so opening it tells nothing
/// about other files and waits for nobody.
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

    /// Each wish: whether a member has it by default, and with everything that root can give.
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
        assert!(text.starts_with("user 1000 may not give the path /home/\\u{1b}[2Jx"));
        assert!(text.len() < 200 && !text.contains('\u{1b}'), "{text}");
        assert_eq!(
            refused.hint(),
            "a name under /run/netns, or /proc/PID/ns/net"
        );
    }
}
