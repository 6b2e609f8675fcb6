//! Reads that fail: the process has no file descriptor left while files change. Afterwards what is in force is what a
//! fresh start reads, without another event. A program of its own, since the limit is one of the process.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with it")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests change files as editors and tools do"
)]

#[path = "integration/common/mod.rs"]
#[allow(
    dead_code,
    clippy::panic,
    reason = "of the integration tests, which use the rest of it, and fail by panicking"
)]
mod common;

use common::{SETTLE, Scene, manifest};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::thread::park_timeout;

const ROUNDS: usize = 12;
/// Names in the tree: at the root, in folders, in a folder that goes and comes.
const FILES: [&str; 4] = ["a.yaml", "b.yaml", "sub/c.yaml", "sub/deep/d.yaml"];

/// New contents of each file that are prepared for a round. A file always defines the same policy, since which of two
/// definitions is in force depends on what was in force before.
const VERSIONS: usize = 3;

fn version_path(scene: &Scene, file: usize, version: usize) -> PathBuf {
    scene.top.join(format!("ready-{file}-{version}"))
}

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

/// Leaves so few descriptors that opening a file fails, now or after some, until it is dropped.
struct Exhausted {
    limit: u64,
    taken: Vec<File>,
}

impl Exhausted {
    fn new(spare: usize) -> Self {
        let (limit, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 128, hard).unwrap();
        let mut taken = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }
        taken.truncate(taken.len() - spare);
        Exhausted { limit, taken }
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, self.limit, hard).unwrap();
        self.taken.clear();
    }
}

/// Edits that need no descriptor: prepared files are renamed into the tree, others are removed.
fn edit(scene: &Scene, dice: &mut Dice) -> String {
    let number = dice.below(FILES.len());
    let file = scene.at(FILES[number]);
    match dice.below(6) {
        0 => {
            let away = scene.top.join("away");
            let gone = fs::rename(scene.at("sub"), &away);
            let back = gone.and_then(|()| fs::rename(&away, scene.at("sub")));
            format!("sub goes and comes: {back:?}")
        }
        1 => {
            let away = scene.top.join("tree-away");
            fs::rename(&scene.root, &away).unwrap();
            park_timeout(SETTLE * u32::try_from(dice.below(3)).unwrap());
            fs::rename(&away, &scene.root).unwrap();
            "the root goes and comes".to_owned()
        }
        2 => format!(
            "{} is removed: {:?}",
            file.display(),
            fs::remove_file(&file)
        ),
        3 => {
            let link = scene.at("link.yaml");
            let _ = fs::remove_file(&link);
            format!("link: {:?}", symlink("sub/c.yaml", &link))
        }
        _ => {
            let version = dice.below(VERSIONS);
            let replaced = fs::rename(version_path(scene, number, version), &file);
            format!("{} is replaced: {replaced:?}", file.display())
        }
    }
}

/// What a fresh start has in force of the tree as it is.
fn fresh(scene: &Scene) -> String {
    let mut other = Scene::new();
    let copied = std::process::Command::new("cp")
        .args(["-a", "--"])
        .arg(scene.root.join("."))
        .arg(&other.root)
        .status()
        .unwrap();
    assert!(copied.success());
    other.start();
    other.until("a fresh start", |scene| scene.report().is_some());
    other.quiet();
    other.shown()
}

#[test]
fn what_could_not_be_read_is_read_when_it_can() {
    for seed in palisade_generators::seeds(1) {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ seed);
        let mut scene = Scene::new();
        fs::create_dir_all(scene.at("sub/deep")).unwrap();
        for (number, file) in FILES.into_iter().enumerate() {
            scene.put(file, &format!("p{number}:{}", number + 1));
        }
        scene.start();
        scene.until("the start", |scene| scene.report().is_some());
        for round in 0..ROUNDS {
            for file in 0..FILES.len() {
                for version in 0..VERSIONS {
                    let text = manifest(&format!("p{file}:{}", 1 + dice.below(60_000)));
                    fs::write(version_path(&scene, file, version), text).unwrap();
                }
            }
            let spare = dice.below(3);
            let exhausted = Exhausted::new(spare);
            let edits: Vec<String> = (0..=dice.below(4))
                .map(|_| edit(&scene, &mut dice))
                .collect();
            // Longer than the settle time, so that the edits are read, or not read, before there is room again.
            park_timeout(SETTLE * 4);
            drop(exhausted);
            let what = format!("seed {seed}, round {round}, {spare} to spare: {edits:#?}");
            let expected = fresh(&scene);
            scene.until(&what, |scene| scene.shown() == expected);
        }
    }
}
