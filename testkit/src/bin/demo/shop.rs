//! The shop: its parties and its manifests, which are the files of `examples/shop`.

use palisade_manifest::{Limits, extract_objects, parse};
use palisade_model::State;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

macro_rules! example {
    ($file:literal) => {
        (
            $file,
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../examples/shop/",
                $file
            )),
        )
    };
}

/// The manifests without policies: file name and content.
pub(crate) const INVENTORY: &[(&str, &str)] = &[example!("namespaces.yaml"), example!("pods.yaml")];

/// A policy file and a one-line summary.
pub(crate) struct PolicyFile {
    /// File name.
    pub(crate) name: &'static str,
    /// Content.
    pub(crate) text: &'static str,
    /// Summary.
    pub(crate) summary: &'static str,
}

const fn policy((name, text): (&'static str, &'static str), says: &'static str) -> PolicyFile {
    PolicyFile {
        name,
        text,
        summary: says,
    }
}

/// The policies, one per file.
pub(crate) const POLICIES: &[PolicyFile] = &[
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
pub(crate) const EDIT: (&str, &str, &str) = (
    "api.yaml",
    "        - podSelector:\n            matchLabels: {app: web}\n",
    "        - namespaceSelector:\n            matchLabels: {kubernetes.io/metadata.name: elsewhere}\n",
);

/// Content of the edited file.
pub(crate) fn edited() -> String {
    let (file, old, new) = EDIT;
    let before = POLICIES.iter().find(|policy| policy.name == file);
    before.map_or_else(String::new, |policy| policy.text.replacen(old, new, 1))
}

/// A party that serves and connects to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShopParty {
    /// Name of its Pod, or the name in the demo.
    pub(crate) name: &'static str,
    /// Namespace of its Pod; `None` for the outside address.
    pub(crate) namespace: Option<&'static str>,
    /// TCP port of its server.
    pub(crate) tcp: u16,
    /// UDP port of its server.
    pub(crate) udp: u16,
}

impl ShopParty {
    /// Name in commands and policies.
    pub(crate) fn full_name(&self) -> String {
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
pub(crate) const PARTIES: &[ShopParty] = &[
    party("web", Some("shop"), 80, 443),
    party("api", Some("shop"), 8080, 8125),
    party("db", Some("shop"), 5432, 11211),
    party("stranger", Some("elsewhere"), 9000, 9000),
    party("outside", None, 443, 123),
];

/// Addresses of the outside, from documentation networks.
pub(crate) const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x71, 0, 0, 0, 0, 9)),
];

/// The manifests in a folder: file names and contents.
pub(crate) fn manifests(folder: &Path) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") {
            files.push((name, std::fs::read_to_string(entry.path())?));
        }
    }
    Ok(files)
}

/// What manifests mean; an error for the first that has a problem, even if that is only a warning.
pub(crate) fn lower(files: &[(String, String)]) -> Result<State, String> {
    let limits = Limits::default();
    let mut objects = Vec::new();
    for (name, text) in files {
        let read = extract_objects(parse(name, text.as_bytes(), &limits), &limits);
        if let Some(problem) = read.problems.first() {
            return Err(format!("{name}: {problem:?}"));
        }
        objects.extend(read.objects);
    }
    let (state, diagnostics) = palisade_testkit::effective::effective_state(&objects);
    match diagnostics.first() {
        Some(problem) => Err(format!("{problem:?}")),
        None => Ok(state),
    }
}

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
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/shop");
        let files = manifests(Path::new(folder)).unwrap();
        assert_eq!(files.len(), POLICIES.len() + INVENTORY.len());
        let state = lower(&files).unwrap();
        assert_eq!(state.policies.len(), POLICIES.len());
        assert_eq!(state.endpoints.len(), PARTIES.len() - 1);
        let after = files.into_iter().map(|(name, text)| match &*name {
            name if name == EDIT.0 => (name.to_owned(), edited()),
            _ => (name, text),
        });
        let after = lower(&after.collect::<Vec<_>>()).unwrap();
        assert_eq!(after.policies.len(), POLICIES.len());
    }
}
