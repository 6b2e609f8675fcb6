//! The shop: who is there, and its manifests, which are the files of `examples/shop`.

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

/// Who is there, before any policy: file name and text.
pub(super) const INVENTORY: &[(&str, &str)] = &[example!("namespaces.yaml"), example!("pods.yaml")];

/// A policy file and what it says, in one line.
pub(super) struct PolicyFile {
    /// Its name.
    pub(super) name: &'static str,
    /// Its text.
    pub(super) text: &'static str,
    /// What it says.
    pub(super) summary: &'static str,
}

const fn policy((name, text): (&'static str, &'static str), says: &'static str) -> PolicyFile {
    PolicyFile {
        name,
        text,
        summary: says,
    }
}

/// The policies; each file holds one.
pub(super) const POLICIES: &[PolicyFile] = &[
    policy(
        example!("default-deny.yaml"),
        "nothing passes in the shop that no policy allows",
    ),
    policy(
        example!("web.yaml"),
        "the world may reach web on http and http3; web may call api",
    ),
    policy(
        example!("api.yaml"),
        "web may call api; api may use db, and the outside over IPv4 only",
    ),
    policy(
        example!("db.yaml"),
        "api may use db: 5432/TCP and 11211/UDP",
    ),
];

/// The edit: in this file, this text becomes that.
pub(super) const EDIT: (&str, &str, &str) = (
    "api.yaml",
    "        - podSelector:\n            matchLabels: {app: web}\n",
    "        - namespaceSelector:\n            matchLabels: {kubernetes.io/metadata.name: elsewhere}\n",
);

/// The text of the edited file.
pub(super) fn edited() -> String {
    let (file, old, new) = EDIT;
    let before = POLICIES.iter().find(|policy| policy.name == file);
    before.map_or_else(String::new, |policy| policy.text.replacen(old, new, 1))
}

/// Someone who serves and calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShopParty {
    /// The name of its Pod; or what the demo calls it.
    pub(super) name: &'static str,
    /// The namespace of its Pod; nothing for the outside address.
    pub(super) namespace: Option<&'static str>,
    /// The TCP port it serves.
    pub(super) tcp: u16,
    /// The UDP port it serves.
    pub(super) udp: u16,
}

impl ShopParty {
    /// How policy and commands name it.
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

/// Everyone. The ports are those that the Pods' manifests name.
pub(super) const PARTIES: &[ShopParty] = &[
    party("web", Some("shop"), 80, 443),
    party("api", Some("shop"), 8080, 8125),
    party("db", Some("shop"), 5432, 11211),
    party("stranger", Some("elsewhere"), 9000, 9000),
    party("outside", None, 443, 123),
];

/// The outside's addresses, from the networks set apart for documentation.
pub(super) const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// See [`OUTSIDE_V4`].
pub(super) const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x71, 0, 0, 0, 0, 9);
/// The host's addresses on the link to the outside, with the lengths of the networks.
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
