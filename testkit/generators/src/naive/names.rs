//! The naive reading of domain names: what each dialect's documentation says of its patterns, one character after
//! another, and which names an address was an answer for.
//!
//! It promises, as all of the naive reading, to share nothing with the product. It never validates.

use super::{addresses, at, in_cidr, is_kind, is_workload, list, pod_at, text};
use serde_json::Value;
use std::net::IpAddr;

/// The group of the objects that say which answers the agent has seen: a name, and its addresses.
pub const ANSWERS_GROUP: &str = "testkit.palisade.dev";
/// Their kind.
pub const ANSWERS_KIND: &str = "DomainAnswers";

/// The names that are asked for in tests.
pub const QUERIES: [&str; 9] = [
    "com",
    "example.com",
    "api.example.com",
    "v1.api.example.com",
    "example.org",
    "api.example.org",
    "apiexample.com",
    "a.b.c.example.org",
    "other.test",
];

/// What a DNS query of a flow asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NaiveQuery {
    /// A name that no rule has, or it is no query that anybody reads.
    #[default]
    Unnamed,
    /// This name.
    Name(&'static str),
    /// Any that a rule may have.
    Unknown,
}

impl NaiveQuery {
    /// Whether a rule with such names is about it.
    pub(super) fn is_one(self, mut matches: impl FnMut(&str) -> bool) -> bool {
        match self {
            NaiveQuery::Unnamed => false,
            NaiveQuery::Name(name) => matches(name),
            NaiveQuery::Unknown => true,
        }
    }
}

/// Whether an address is outside of the cluster and was an answer for a name that passes a test.
pub(super) fn is_answer(
    objects: &[Value],
    address: IpAddr,
    mut matches: impl FnMut(&str) -> bool,
) -> bool {
    let mut answers = objects.iter().filter(|object| {
        let held = list(object.get("addresses")).iter();
        is_kind(object, ANSWERS_GROUP, ANSWERS_KIND)
            && held
                .filter_map(Value::as_str)
                .any(|held| held.parse() == Ok(address))
    });
    is_outside(objects, address)
        && answers.any(|object| text(object, "/metadata/name").is_some_and(&mut matches))
}

/// No pod, no node, and in no network of pods.
fn is_outside(objects: &[Value], address: IpAddr) -> bool {
    let is_of_node = |node: &Value| {
        let listed = list(at(node, "/status/addresses")).iter();
        let mut held = listed
            .filter(|entry| matches!(text(entry, "/type"), Some("InternalIP" | "ExternalIP")))
            .filter_map(|entry| text(entry, "/address"));
        let networks = list(at(node, "/spec/podCIDRs")).iter();
        let networks = networks.chain(at(node, "/spec/podCIDR"));
        held.any(|held| held.parse() == Ok(address))
            || networks
                .filter_map(Value::as_str)
                .any(|cidr| in_cidr(cidr, address))
    };
    let mut nodes = objects.iter().filter(|object| is_kind(object, "", "Node"));
    pod_at(objects, address).is_none() && !nodes.any(is_of_node)
}

/// An item of Cilium's lists of names.
pub(super) fn is_cilium_name(item: &Value, name: &str) -> bool {
    let plain = |written: &str| {
        let written = written.to_lowercase();
        written.strip_suffix('.').unwrap_or(&written).to_owned()
    };
    if let Some(written) = text(item, "/matchName") {
        return plain(written) == name;
    }
    let Some(written) = text(item, "/matchPattern") else {
        return false;
    };
    if written == "*" {
        return true;
    }
    let written = plain(written);
    match written.strip_prefix("**.") {
        // One label or several, then the rest.
        Some(rest) => ends(name).any(|end| is_glob(rest.as_bytes(), end.as_bytes())),
        None => is_glob(written.as_bytes(), name.as_bytes()),
    }
}

/// A name of ClusterNetworkPolicy or of Calico: `*.` in front is one label or several.
pub(super) fn is_domain(written: &str, name: &str) -> bool {
    let written = written.to_lowercase();
    let written = written.strip_suffix('.').unwrap_or(&written);
    match written.strip_prefix("*.") {
        Some(rest) => ends(name).any(|end| end == rest),
        None => written == name,
    }
}

/// What is left of a name without its first label, its first two, and so on.
fn ends(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(dot, _)| &name[dot + 1..])
}

/// A star is nothing, or a character other than a dot and the star again.
fn is_glob(glob: &[u8], name: &[u8]) -> bool {
    match glob {
        [] => name.is_empty(),
        [b'*', rest @ ..] => {
            let takes_one = name.first().is_some_and(|byte| *byte != b'.');
            is_glob(rest, name) || takes_one && is_glob(glob, &name[1..])
        }
        [byte, rest @ ..] => name.first() == Some(byte) && is_glob(rest, &name[1..]),
    }
}

/// The addresses of workloads and nodes, which answers may have as well.
#[must_use]
pub fn inside_addresses(objects: &[&Value]) -> Vec<IpAddr> {
    let workloads = objects.iter().filter(|object| is_workload(object));
    let nodes = objects.iter().filter(|object| is_kind(object, "", "Node"));
    let of_nodes = nodes.flat_map(|node| super::holder_addresses(node));
    workloads
        .flat_map(|object| addresses(object))
        .chain(of_nodes)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_of_each_dialect() {
        let cilium =
            |key: &str, text: &str, name: &str| is_cilium_name(&json!({ key: text }), name);
        assert!(cilium("matchName", "Api.Example.com.", "api.example.com"));
        assert!(!cilium("matchName", "example.com", "api.example.com"));
        assert!(cilium("matchPattern", "*.example.com", "api.example.com"));
        assert!(!cilium(
            "matchPattern",
            "*.example.com",
            "v1.api.example.com"
        ));
        assert!(!cilium("matchPattern", "*.example.com", "example.com"));
        assert!(cilium("matchPattern", "*example.com", "apiexample.com"));
        assert!(cilium("matchPattern", "*", "v1.api.example.com"));
        assert!(cilium(
            "matchPattern",
            "**.example.com",
            "v1.api.example.com"
        ));
        assert!(!cilium("matchPattern", "**.example.com", "example.com"));
        assert!(!cilium("matchPattern", "api.**.com", "api.a.b.com"));
        assert!(is_domain("*.Example.com", "v1.api.example.com"));
        assert!(!is_domain("*.example.com", "example.com"));
        assert!(!is_domain("*.example.com", "apiexample.com"));
    }
}
