//! The examples: each is valid without a warning, and allows what the file beside it lists.

use super::run;
use std::path::{Path, PathBuf};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policies");

const DIALECTS: [&str; 4] = [
    "networkpolicy",
    "clusternetworkpolicy",
    "ciliumnetworkpolicy",
    "caliconetworkpolicy",
];

/// The manifests of a dialect, in order.
fn manifests(dialect: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dialect).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let mut manifests: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    manifests.sort();
    manifests
}

#[test]
fn examples_allow_the_connections_that_they_list() {
    let cluster = format!("{FOLDER}/cluster.yaml");
    for dialect in DIALECTS {
        let manifests = manifests(&Path::new(FOLDER).join(dialect));
        assert!(manifests.len() >= 10, "{dialect}: {}", manifests.len());
        for manifest in manifests {
            let name = manifest.to_str().unwrap();
            let text = std::fs::read_to_string(&manifest).unwrap();
            assert!(text.starts_with("# "), "{name}: what is it for?");
            let valid = run(&["validate", "-f", &cluster, "-f", name]);
            assert_eq!(valid.code, 0, "{name}: {valid:?}");
            assert!(
                valid.out.contains(" 0 errors, 0 warnings"),
                "{name}: {valid:?}"
            );
            let listed = run(&["connections", "-f", &cluster, "-f", name]);
            let path = manifest.with_extension("connections");
            if std::env::var_os("PALISADE_BLESS").is_some() {
                std::fs::write(&path, &listed.out).unwrap();
            }
            let expected = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(
                listed.out, expected,
                "{name}: PALISADE_BLESS=1 writes it; read the difference"
            );
        }
    }
}

/// Somebody tries a whole folder: no two examples define the same object.
#[test]
fn the_examples_of_a_dialect_are_valid_together() {
    for dialect in DIALECTS {
        let valid = run(&["validate", "-f", &format!("{FOLDER}/{dialect}")]);
        assert_eq!(valid.code, 0, "{dialect}: {valid:?}");
    }
}
