//! Who may ask for what: one table, without IO.
//!
//! Root may do everything. Members of the API's group read, and attach namespaces as Pods that the
//! source knows: they get what the Pod of that name gets, an address of the pools, and nothing that is
//! somebody else's. Whoever else can open the socket reads. The agent's own user counts as root, since
//! whoever acts as that user could change the agent itself.

use crate::attach::{AddressUse, Tenancy};
use crate::http::Lane;
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
pub fn may_call(caller: Caller, lane: Lane) -> bool {
    match (lane, caller) {
        (_, Caller::Root) | (Lane::Read | Lane::Probe, _) | (Lane::Change, Caller::Member(_)) => {
            true
        }
        (Lane::Change | Lane::Runtime, Caller::Other(_)) | (Lane::Runtime, Caller::Member(_)) => {
            false
        }
    }
}

/// What root gave the members of the API's group beyond what they always may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
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
pub enum Wish<'a> {
    /// Labels or named ports that are not the Pod's.
    Labels,
    /// A workload in this Kubernetes namespace.
    Namespace(&'a str),
    /// One more workload, where so many are attached.
    OneMore(usize),
    /// A network namespace by this name or path, before it is opened.
    NetnsPath(&'a str),
    /// A network namespace that was opened.
    Netns(Tenancy),
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
#[error("{who} may not {what}")]
pub struct Refusal {
    who: Caller,
    what: String,
    hint: &'static str,
}

impl Refusal {
    /// What to try next.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

/// The table: what a caller may have.
///
/// # Errors
/// Why not.
pub fn allow(caller: Caller, wish: &Wish<'_>, grants: &Grants) -> Result<(), Refusal> {
    let user = match caller {
        Caller::Root => return Ok(()),
        Caller::Member(user) => user,
        Caller::Other(_) => return Err(refusal(caller, "change anything", "sudo")),
    };
    let refused = |what: &str, hint| Err(refusal(caller, what, hint));
    match wish {
        Wish::Labels if grants.labels => Ok(()),
        Wish::Labels => refused(
            "give labels or ports: they are those of the Pod of that name",
            "leave --label and --port out; root can allow them with api-group-labels",
        ),
        Wish::Namespace(name)
            if grants.namespaces.is_empty() || grants.namespaces.iter().any(|n| n == name) =>
        {
            Ok(())
        }
        Wish::Namespace(name) => refused(
            &format!("attach anything in namespace {name}"),
            "root can allow it with api-group-namespaces",
        ),
        Wish::OneMore(attached) if *attached < grants.workloads as usize => Ok(()),
        Wish::OneMore(attached) => refused(
            &format!("attach more: {attached} are attached"),
            "remove one; root can allow more with api-group-workloads",
        ),
        Wish::NetnsPath(path) if is_plain(path) => Ok(()),
        Wish::NetnsPath(path) => refused(
            &format!("give the path {}", cut(path)),
            "a name under /run/netns, or /proc/PID/ns/net",
        ),
        Wish::Netns(tenancy) if tenancy.owner == Some(user) => Ok(()),
        Wish::Netns(tenancy) if !tenancy.named => refused(
            "attach a network namespace of another user",
            "one of your own (unshare --user --map-root-user --net), by /proc/PID/ns/net",
        ),
        Wish::Netns(_) if !grants.named_netns => refused(
            "attach a network namespace that root made",
            "one of your own, by /proc/PID/ns/net; root can allow it with api-group-netns named",
        ),
        Wish::Netns(tenancy) if tenancy.used => refused(
            "attach a network namespace that has interfaces already",
            "a new one",
        ),
        Wish::Netns(_) => Ok(()),
        Wish::Address {
            address, in_pool, ..
        } if !in_pool => refused(
            &format!("have the address {address}: it is in no pool"),
            "leave --address out, or take one of a pool (palisade ipam list)",
        ),
        Wish::Address {
            address, usable, ..
        } if !usable => refused(
            &format!("have the address {address}: it is reserved"),
            "leave --address out, or take another one of the pool",
        ),
        Wish::Address {
            address,
            used: Some(used),
            ..
        } => refused(
            &format!("have the address {address}: {used}"),
            "leave --address out, or take another one of the pool",
        ),
        Wish::Address { .. } => Ok(()),
        Wish::RunningPod => refused(
            "attach a Pod that has an address already, so runs elsewhere",
            "the name of a Pod that does not run yet",
        ),
        Wish::Workload(Some(owner)) if *owner == user => Ok(()),
        Wish::Workload(Some(owner)) => refused(
            &format!("touch what user {owner} attached"),
            "that user, or sudo",
        ),
        Wish::Workload(None) => refused("touch what root attached", "sudo"),
    }
}

fn refusal(who: Caller, what: &str, hint: &'static str) -> Refusal {
    Refusal {
        who,
        what: what.to_owned(),
        hint,
    }
}

/// A path, as far as a message holds it, without what a terminal would take for commands.
fn cut(path: &str) -> String {
    path.chars()
        .take(64)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

/// Whether a path leads through nothing but what the kernel and root keep: so opening it tells nothing
/// about other files and waits for nobody.
fn is_plain(path: &str) -> bool {
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
    use palisade_sys::link::Prefix;

    const ROOT: Caller = Caller::Root;
    const MEMBER: Caller = Caller::Member(1000);
    const OTHER: Caller = Caller::Other(Some(1000));

    #[test]
    fn operations_by_caller() {
        let table = [
            (Lane::Read, [true, true, true]),
            (Lane::Probe, [true, true, true]),
            (Lane::Change, [true, true, false]),
            (Lane::Runtime, [true, false, false]),
        ];
        for (lane, expected) in table {
            let found = [ROOT, MEMBER, OTHER].map(|caller| may_call(caller, lane));
            assert_eq!(found, expected, "{lane:?}");
        }
        assert!(!may_call(Caller::Other(None), Lane::Change));
    }

    fn address(in_pool: bool, usable: bool, used: Option<AddressUse>) -> Wish<'static> {
        Wish::Address {
            address: "10.245.0.9".parse().unwrap(),
            in_pool,
            usable,
            used,
        }
    }

    fn netns(owner: Option<u32>, named: bool, used: bool) -> Wish<'static> {
        Wish::Netns(Tenancy { owner, named, used })
    }

    /// Each wish: whether a member has it by default, and with everything that root can give.
    #[test]
    fn wishes_of_members() {
        let strict = Grants {
            workloads: 2,
            namespaces: vec!["shop".to_owned()],
            ..Grants::default()
        };
        let all = Grants {
            labels: true,
            named_netns: true,
            namespaces: Vec::new(),
            workloads: 9,
        };
        let routed = AddressUse::Routed {
            destination: Prefix::host("10.245.0.9".parse().unwrap()),
            link: "eth1".to_owned(),
        };
        let table = [
            (Wish::Labels, false, true),
            (Wish::Namespace("shop"), true, true),
            (Wish::Namespace("kube-system"), false, true),
            (Wish::OneMore(1), true, true),
            (Wish::OneMore(2), false, true),
            (Wish::NetnsPath("web"), true, true),
            (Wish::NetnsPath("/run/netns/web"), true, true),
            (Wish::NetnsPath("/var/run/netns/web"), true, true),
            (Wish::NetnsPath("/proc/17/ns/net"), true, true),
            (Wish::NetnsPath("/proc/17/task/18/ns/net"), true, true),
            (Wish::NetnsPath("/proc/self/ns/net"), false, false),
            (Wish::NetnsPath("/proc/17/root/tmp/x"), false, false),
            (Wish::NetnsPath("/proc/17/cwd/ns/net"), false, false),
            (Wish::NetnsPath("/run/netns/../x"), false, false),
            (Wish::NetnsPath("/run/netns/.."), false, false),
            (Wish::NetnsPath("/home/ann/x"), false, false),
            (Wish::NetnsPath("./x"), false, false),
            (Wish::NetnsPath(""), false, false),
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
            (Wish::RunningPod, false, false),
            (Wish::Workload(Some(1000)), true, true),
            (Wish::Workload(Some(1001)), false, false),
            (Wish::Workload(None), false, false),
        ];
        let nothing = Grants::default();
        for (wish, by_default, at_most) in &table {
            let may = |caller, grants| allow(caller, wish, grants).is_ok();
            assert_eq!(may(MEMBER, &strict), *by_default, "{wish:?}");
            assert_eq!(may(MEMBER, &all), *at_most, "{wish:?}, all given");
            assert!(may(ROOT, &nothing), "{wish:?} by root");
            assert!(!may(OTHER, &all), "{wish:?} by nobody in particular");
        }
    }

    #[test]
    fn a_refusal_says_who_what_and_what_next() {
        let long = format!("/home/\u{1b}[2J{}", "x".repeat(9_000));
        let refused = allow(MEMBER, &Wish::NetnsPath(&long), &Grants::default()).unwrap_err();
        let text = refused.to_string();
        assert!(text.starts_with("user 1000 may not give the path /home/\\u{1b}[2Jx"));
        assert!(text.len() < 200 && !text.contains('\u{1b}'), "{text}");
        assert_eq!(
            refused.hint(),
            "a name under /run/netns, or /proc/PID/ns/net"
        );
    }
}
