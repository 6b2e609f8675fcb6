//! Random bursts of edits: whether single files or the whole tree are looked at, what is in force is
//! what the files say, and nothing that stays is ever missing.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with it")]

mod common;

use common::{Scene, manifest};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

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

/// What each file says: ports by policy.
type Tree = BTreeMap<&'static str, BTreeMap<usize, usize>>;

/// The text of a file: one of JSON's name is YAML's subset all the same.
fn text(policies: &BTreeMap<usize, usize>) -> String {
    let listed: Vec<String> = policies
        .iter()
        .map(|(n, port)| format!("p{n}:{port}"))
        .collect();
    manifest(&listed.join(" "))
}

/// A policy of that file keeps its name, now and then; others come and go; some move here.
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
    for burst in 0..BURSTS {
        let mut done = Vec::new();
        for _ in 0..=dice.below(3) {
            let file = FILES[dice.below(FILES.len())];
            let kind = dice.below(8);
            done.push(format!("{kind} {file}"));
            match kind {
                0 => {
                    if tree.remove(file).is_some() {
                        fs::remove_file(scene.at(file)).unwrap();
                    }
                    continue;
                }
                1 => {
                    let to = FILES[dice.below(FILES.len())];
                    if to != file && tree.contains_key(file) {
                        let moved = tree.remove(file).unwrap();
                        tree.insert(to, moved);
                        scene.rename(file, to);
                    }
                    continue;
                }
                2 if tree.contains_key(file) => {
                    // A second name of the same file, which then goes again.
                    fs::hard_link(scene.at(file), scene.at("link.yaml")).unwrap();
                    scene.remove("link.yaml");
                }
                3 => {
                    // What it leads to is no manifest itself.
                    fs::write(scene.top.join("aside"), manifest("p99:9")).unwrap();
                    symlink(scene.top.join("aside"), scene.at("aside.yaml")).unwrap();
                    scene.remove("aside.yaml");
                }
                _ => {}
            }
            // Where policies move to is written first, as whoever moves them carefully does.
            for file in new_text(&mut tree, file, &mut dice) {
                // Emptied and removed a moment ago.
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
        scene.expect(&what, &listed.join(" "));
    }
}
