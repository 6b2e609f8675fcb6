//! What is left of Palisade on this host after a removal: `palisade uninstall-check`.
//!
//! It reports everything that [`crate::cleanup`] would remove, and besides what cleanup does not remove: a
//! running agent, a plugin that others installed, and CNI configurations that name the plugin. It changes
//! nothing.

use crate::cleanup::{CleanupError, installed_parts, lock_without_agent, removal_order};
use crate::driver::open_all_drivers;
use palisade_api::{CleanupItem, LeftoverItem, LeftoverKind};
use palisade_config::{CniConfig, Config};
use palisade_workloads::cni_conf::{OWNER_KEY, USUAL_CONF_DIR};
use palisade_workloads::plugin_file::PLUGIN;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Finds everything that is left of Palisade on a host with this configuration.
///
/// # Errors
/// If the host cannot be inspected.
pub fn find_leftovers(config: &Config) -> Result<Vec<LeftoverItem>, CleanupError> {
    let mut drivers = open_all_drivers(config)?;
    let mut items = Vec::new();
    // Held until everything is read: no agent starts meanwhile.
    let _lock = match lock_without_agent(&config.state, &config.api, &mut drivers) {
        Ok(lock) => lock,
        Err(CleanupError::AgentRunning(which)) => {
            items.push(leftover(LeftoverKind::Agent, which));
            None
        }
        Err(error) => return Err(error),
    };
    let mut removable = Vec::new();
    for mut part in installed_parts(config, drivers)? {
        removable.extend(part.installed()?);
    }
    removable.sort_by_key(|item| removal_order(item.kind));
    items.extend(removable.into_iter().map(from_cleanup));
    items.extend(cni_leftovers(&config.cni));
    let mut reported = BTreeSet::new();
    items.retain(|item| reported.insert((item.kind, item.name.clone())));
    Ok(items)
}

/// The configurations of container runtimes that name the plugin, and the plugin itself.
fn cni_leftovers(cni: &CniConfig) -> Vec<LeftoverItem> {
    let directory = cni.conf_dir.as_deref();
    let mut items = cni_configurations(directory.unwrap_or(Path::new(USUAL_CONF_DIR)));
    let plugin = cni.bin_dir.join(PLUGIN);
    if std::fs::symlink_metadata(&plugin).is_ok() {
        items.push(leftover(LeftoverKind::CniPlugin, plugin.display()));
    }
    items
}

fn leftover(kind: LeftoverKind, name: impl ToString) -> LeftoverItem {
    LeftoverItem {
        kind,
        name: name.to_string(),
        about: None,
    }
}

fn from_cleanup(item: CleanupItem) -> LeftoverItem {
    LeftoverItem {
        kind: item.kind.into(),
        name: item.name,
        about: item.about,
    }
}

/// The configurations that an agent wrote, under any name, and those of others that name the plugin.
fn cni_configurations(directory: &Path) -> Vec<LeftoverItem> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let of_file = |path: &PathBuf| {
        let file: Value =
            serde_json::from_slice(&palisade_sys::plain_file::read(path).ok()?).ok()?;
        let plugins = file["plugins"].as_array().map_or(&[][..], Vec::as_slice);
        let names_plugin = |plugin: &Value| plugin["type"] == PLUGIN;
        let kind = match file.get(OWNER_KEY) {
            Some(_) => LeftoverKind::CniConfiguration,
            None if names_plugin(&file) || plugins.iter().any(names_plugin) => {
                LeftoverKind::CniReference
            }
            None => return None,
        };
        Some(leftover(kind, path.display()))
    };
    paths.iter().filter_map(of_file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_of_ours_and_references_to_the_plugin_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            (
                "05-old.conflist",
                r#"{"palisade.io/written-by": "palisade agent"}"#,
            ),
            (
                "10-chain.conflist",
                r#"{"plugins": [{"type": "ptp"}, {"type": "palisade-cni"}]}"#,
            ),
            ("20-one.conf", r#"{"type": "palisade-cni"}"#),
            (
                "30-other.conflist",
                r#"{"name": "palisade-cni", "plugins": [{"type": "ptp"}]}"#,
            ),
            ("40-broken.conflist", "palisade-cni"),
        ] {
            let path = dir.path().join(name);
            palisade_sys::atomic_file::write_atomically(&path, text.as_bytes()).unwrap();
        }
        let found: Vec<_> = cni_configurations(dir.path())
            .into_iter()
            .map(|item| (item.kind, item.name.rsplit('/').next().unwrap().to_owned()))
            .collect();
        let expected = [
            (LeftoverKind::CniConfiguration, "05-old.conflist"),
            (LeftoverKind::CniReference, "10-chain.conflist"),
            (LeftoverKind::CniReference, "20-one.conf"),
        ];
        assert_eq!(found, expected.map(|(kind, name)| (kind, name.to_owned())));
        assert_eq!(cni_configurations(&dir.path().join("none")), []);
    }
}
