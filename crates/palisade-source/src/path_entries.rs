//! The directory entries that a path depends on: every entry whose change can make it lead elsewhere.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Links followed on one path before it is treated as a loop. Source: Linux, `MAXSYMLINKS`.
const MAX_SYMLINKS: usize = 40;

/// A folder and the name of an entry in it.
pub(crate) type FolderEntry = (PathBuf, OsString);

/// Every entry used in resolving an absolute path, links followed: the path's own components and those of
/// each link's target. Ends at the first missing entry.
pub(crate) fn entries_on_path(path: &Path) -> BTreeSet<FolderEntry> {
    let mut entries = BTreeSet::new();
    let mut at = PathBuf::from("/");
    let mut remaining: VecDeque<OsString> = component_names(path);
    let mut links = 0;
    while let Some(name) = remaining.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        entries.insert((at.clone(), name));
        let Ok(target) = std::fs::read_link(&next) else {
            if std::fs::symlink_metadata(&next).is_err() {
                break;
            }
            at = next;
            continue;
        };
        links += 1;
        if links > MAX_SYMLINKS {
            break;
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in component_names(&target).into_iter().rev() {
            remaining.push_front(name);
        }
    }
    entries
}

fn component_names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_and_each_one_counts() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("v1")).unwrap();
        std::fs::create_dir(top.join("tree")).unwrap();
        symlink("v1", top.join("current")).unwrap();
        symlink("../current/a.yaml", top.join("tree/a.yaml")).unwrap();
        symlink("b.yaml", top.join("tree/b.yaml")).unwrap();
        let below = |path: &str| -> Vec<String> {
            let entries = entries_on_path(&top.join(path));
            let inside = entries.iter().filter_map(|(folder, name)| {
                let folder = folder.strip_prefix(&top).ok()?;
                Some(folder.join(name).display().to_string())
            });
            inside.collect()
        };
        assert_eq!(
            below("tree/a.yaml"),
            ["current", "tree", "v1", "tree/a.yaml", "v1/a.yaml"]
        );
        assert_eq!(below("tree/b.yaml"), ["tree", "tree/b.yaml"]);
        assert_eq!(below("gone/c.yaml"), ["gone"]);
        assert!(entries_on_path(&top).contains(&("/".into(), top.iter().nth(1).unwrap().into())));
    }
}
