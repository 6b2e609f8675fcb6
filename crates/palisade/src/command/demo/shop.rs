//! The shop: its parties and its manifests, which are the files of `examples/shop`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

macro_rules! example {
    ($file:literal) => {
        (
            $file,
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../examples/shop/",
                $file
            )),
        )
    };
}

/// The manifests without policies: file name and content.
pub(super) const INVENTORY: &[(&str, &str)] = &[example!("namespaces.yaml"), example!("pods.yaml")];

/// A policy file and a one-line summary.
pub(super) struct PolicyFile {
    /// File name.
    pub(super) name: &'static str,
    /// Content.
    pub(super) text: &'static str,
    /// Summary.
    pub(super) summary: &'static str,
}

const fn policy((name, text): (&'static str, &'static str), says: &'static str) -> PolicyFile {
    PolicyFile {
        name,
        text,
        summary: says,
    }
}

/// The policies, one per file.
pub(super) const POLICIES: &[PolicyFile] = &[
    policy(
        example!("default-deny.yaml"),
        "default deny for all pods of the shop",
    ),
    policy(
        example!("web.yaml"),
        "the outside may connect to web on http and http3; web to api",
    ),
    policy(
        example!("api.yaml"),
        "web may connect to api; api to db, and to the outside over IPv4 only",
    ),
    policy(
        example!("db.yaml"),
        "api may connect to db: 5432/TCP and 11211/UDP",
    ),
];

/// The edit: file, old text, new text.
pub(super) const EDIT: (&str, &str, &str) = (
    "api.yaml",
    "        - podSelector:\n            matchLabels: {app: web}\n",
    "        - namespaceSelector:\n            matchLabels: {kubernetes.io/metadata.name: elsewhere}\n",
);

/// Content of the edited file.
pub(super) fn edited() -> String {
    let (file, old, new) = EDIT;
    let before = POLICIES.iter().find(|policy| policy.name == file);
    before.map_or_else(String::new, |policy| policy.text.replacen(old, new, 1))
}

/// A party that serves and connects to others.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShopParty {
    /// Name of its Pod, or the name in the demo.
    pub(super) name: &'static str,
    /// Namespace of its Pod; `None` for the outside address.
    pub(super) namespace: Option<&'static str>,
    /// TCP port of its server.
    pub(super) tcp: u16,
    /// UDP port of its server.
    pub(super) udp: u16,
}

impl ShopParty {
    /// Name in commands and policies.
    pub(super) fn full_name(&self) -> String {
        match self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.to_owned(),
        }
    }
}

const fn party(
    name: &'static str,
    namespace: Option<&'static str>,
    tcp: u16,
    udp: u16,
) -> ShopParty {
    ShopParty {
        name,
        namespace,
        tcp,
        udp,
    }
}

/// All parties. The ports are those named in the Pods' manifests.
pub(super) const PARTIES: &[ShopParty] = &[
    party("web", Some("shop"), 80, 443),
    party("api", Some("shop"), 8080, 8125),
    party("db", Some("shop"), 5432, 11211),
    party("stranger", Some("elsewhere"), 9000, 9000),
    party("outside", None, 443, 123),
];

/// IPv4 address of the outside, from a documentation network.
pub(super) const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// See [`OUTSIDE_V4`].
pub(super) const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x71, 0, 0, 0, 0, 9);
/// Addresses of the host on the link to the outside, with prefix lengths.
pub(super) const UPLINK: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 24),
    (
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x71, 0, 0, 0, 0, 1)),
        64,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edit_finds_its_place_once() {
        let (file, old, _) = EDIT;
        let before = POLICIES.iter().find(|policy| policy.name == file).unwrap();
        assert_eq!(before.text.matches(old).count(), 1);
        assert_ne!(edited(), before.text);
    }

    #[test]
    fn the_examples_are_clean_before_and_after_the_edit() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop");
        let loaded = palisade_source::load(&[folder]);
        assert_eq!(loaded.diagnostics, []);
        assert_eq!(loaded.state.policies.len(), POLICIES.len());
        assert_eq!(loaded.files, POLICIES.len() + INVENTORY.len());
        assert_eq!(loaded.state.endpoints.len(), PARTIES.len() - 1);
        let text = edited();
        let reading = palisade_manifest::parse(
            "api.yaml",
            text.as_bytes(),
            &palisade_manifest::Limits::default(),
        );
        assert_eq!((reading.problems, reading.documents.len()), (vec![], 1));
    }
}
