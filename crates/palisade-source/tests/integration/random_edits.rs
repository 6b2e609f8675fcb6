//! Random bursts of edits: with partial and with full scans, the objects in force are those of the files, and
//! an object that stays is never missing.

use crate::common::{SETTLE, Scene, manifest};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

const BURSTS: usize = 80;
const FILES: [&str; 5] = [
    "a.yaml",
    "b.yaml",
    "c.yaml",
    "deep/d.yaml",
    "deep/er/e.json",
];

/// Source: xorshift64*, enough to choose edits.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % limit
    }
}

/// The content of each file: ports by policy.
type Tree = BTreeMap<&'static str, BTreeMap<usize, usize>>;

/// The text of a file; a JSON-named file contains YAML in flow style.
fn text(policies: &BTreeMap<usize, usize>) -> String {
    let listed: Vec<String> = policies
        .iter()
        .map(|(n, port)| format!("p{n}:{port}"))
        .collect();
    manifest(&listed.join(" "))
}

/// The values that policies had in the files during a burst. A burst that takes longer than the settle time, on
/// a busy machine, is more than one to the source: then each of these values may be in force in between.
struct Disk {
    files: Tree,
    seen: BTreeMap<String, BTreeSet<Option<String>>>,
    start: Instant,
}

impl Disk {
    #[allow(
        clippy::disallowed_methods,
        reason = "whether the burst took longer than the settle time is asked of the real clock"
    )]
    fn new(files: &Tree) -> Self {
        Disk {
            files: files.clone(),
            seen: BTreeMap::new(),
            start: Instant::now(),
        }
    }

    /// A file has this content now; `None`: it was removed.
    fn set(&mut self, file: &'static str, content: Option<&BTreeMap<usize, usize>>) {
        match content {
            Some(content) => drop(self.files.insert(file, content.clone())),
            None => drop(self.files.remove(file)),
        }
        for policy in 0..12 {
            let ports = self.files.values().filter_map(|ports| ports.get(&policy));
            let mut ports: BTreeSet<_> = ports.map(|port| Some(port.to_string())).collect();
            if ports.is_empty() {
                ports.insert(None);
            }
            let seen = self.seen.entry(format!("p{policy}"));
            seen.or_default().append(&mut ports);
        }
    }

    /// What may be in force in between.
    fn between(self) -> BTreeMap<String, BTreeSet<Option<String>>> {
        if self.start.elapsed() < SETTLE / 2 {
            BTreeMap::new()
        } else {
            self.seen
        }
    }
}

/// New content of a file: some policies keep their names, some are added or removed, some move here.
fn new_text(tree: &mut Tree, file: &'static str, dice: &mut Dice) -> Vec<&'static str> {
    let mut touched = vec![file];
    for _ in 0..=dice.below(3) {
        let (policy, port) = (dice.below(12), 1 + dice.below(9_000));
        let other = FILES
            .iter()
            .find(|f| tree.get(*f).is_some_and(|t| t.contains_key(&policy)));
        if let Some(other) = other.filter(|other| **other != file) {
            tree.get_mut(other).unwrap().remove(&policy);
            touched.push(other);
        }
        let own = tree.entry(file).or_default();
        match dice.below(4) {
            0 if own.len() > 1 => drop(own.remove(&policy)),
            _ => drop(own.insert(policy, port)),
        }
    }
    touched
}

#[test]
fn bursts_of_edits() {
    for seed in palisade_generators::seeds(1) {
        burst_after_burst(seed);
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as editors and tools do"
)]
fn burst_after_burst(seed: u64) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ seed);
    let mut scene = Scene::new();
    fs::create_dir_all(scene.at("deep/er")).unwrap();
    let mut tree = Tree::new();
    scene.start();
    let mut within_settle_time = 0;
    for burst in 0..BURSTS {
        let mut done = Vec::new();
        let mut disk = Disk::new(&tree);
        for _ in 0..=dice.below(3) {
            let file = FILES[dice.below(FILES.len())];
            let kind = dice.below(8);
            done.push(format!("{kind} {file}"));
            match kind {
                0 => {
                    if tree.remove(file).is_some() {
                        fs::remove_file(scene.at(file)).unwrap();
                        disk.set(file, None);
                    }
                    continue;
                }
                1 => {
                    let to = FILES[dice.below(FILES.len())];
                    if to != file && tree.contains_key(file) {
                        let moved = tree.remove(file).unwrap();
                        tree.insert(to, moved);
                        scene.rename(file, to);
                        disk.set(to, tree.get(to));
                        disk.set(file, None);
                    }
                    continue;
                }
                2 if tree.contains_key(file) => {
                    // A hard link to the same file, which is then removed.
                    fs::hard_link(scene.at(file), scene.at("link.yaml")).unwrap();
                    scene.remove("link.yaml");
                }
                3 => {
                    // The link's target is not a manifest file itself.
                    fs::write(scene.top.join("aside"), manifest("p99:9")).unwrap();
                    symlink(scene.top.join("aside"), scene.at("aside.yaml")).unwrap();
                    scene.remove("aside.yaml");
                }
                _ => {}
            }
            // The file that policies move to is written first, as a careful user does.
            for file in new_text(&mut tree, file, &mut dice) {
                // Emptied and removed just before.
                let Some(said) = tree.get(file).map(text) else {
                    continue;
                };
                if said.is_empty() {
                    tree.remove(file);
                    fs::remove_file(scene.at(file)).unwrap();
                } else if dice.below(2) == 0 {
                    let temporary = format!("{file}.new");
                    scene.write(&temporary, &said);
                    scene.rename(&temporary, file);
                } else {
                    scene.write(file, &said);
                }
                disk.set(file, tree.get(file));
            }
        }
        let listed: BTreeMap<String, usize> = (tree.values().flatten())
            .map(|(policy, port)| (format!("p{policy}"), *port))
            .collect();
        let listed: Vec<String> = listed
            .iter()
            .map(|(p, port)| format!("{p}:{port}"))
            .collect();
        let what = format!("seed {seed}, burst {burst}: {}", done.join(", "));
        let between = disk.between();
        within_settle_time += usize::from(between.is_empty());
        scene.expect_among(&what, &listed.join(" "), &between);
    }
    // Of the others the values in between are not held to be old or new.
    println!(
        "account: bursts: {within_settle_time} of {BURSTS} within the settle time (seed {seed})"
    );
}
