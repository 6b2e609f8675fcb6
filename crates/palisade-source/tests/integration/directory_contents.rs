//! The contents of a tree: links, mounted ConfigMaps, roots that are replaced, and files that are not
//! manifests.

use crate::common::{self, Scene, manifest};
use nix::unistd::{Uid, geteuid, setfsuid};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

#[allow(clippy::disallowed_methods, reason = "tests write files as tools do")]
fn write(path: &Path, policies: &str) {
    fs::write(path, manifest(policies)).unwrap();
}

#[test]
fn a_mounted_config_map() {
    let mut scene = Scene::new();
    let version = |scene: &Scene, name: &str, files: &[(&str, &str)]| {
        fs::create_dir(scene.at(name)).unwrap();
        for (file, policies) in files {
            scene.put(&format!("{name}/{file}"), policies);
        }
        symlink(name, scene.at("..data_tmp")).unwrap();
        scene.rename("..data_tmp", "..data");
    };
    version(
        &scene,
        "..2026_1",
        &[("web.yaml", "web:80"), ("db.yaml", "db:90")],
    );
    for file in ["web.yaml", "db.yaml"] {
        symlink(format!("..data/{file}"), scene.at(file)).unwrap();
    }
    scene.start();
    scene.expect("mounted", "db:90 web:80");
    version(
        &scene,
        "..2026_2",
        &[("web.yaml", "web:81"), ("db.yaml", "db:90")],
    );
    fs::remove_dir_all(scene.at("..2026_1")).unwrap();
    scene.expect("swapped", "db:90 web:81");
    version(&scene, "..2026_3", &[("web.yaml", "web:82")]);
    scene.remove("db.yaml");
    fs::remove_dir_all(scene.at("..2026_2")).unwrap();
    scene.expect("swapped, with one file less", "web:82");
    scene.put("..2026_3/web.yaml", "web:83");
    scene.expect("written in place behind the links", "web:83");
}

#[test]
fn links_to_files_and_folders_within_the_tree() {
    let mut scene = Scene::new();
    let outside = scene.at(".outside");
    fs::create_dir_all(outside.join("v1")).unwrap();
    fs::create_dir_all(outside.join("v2")).unwrap();
    write(&outside.join("file.txt"), "web:80");
    write(&outside.join("v1/db.yaml"), "db:90");
    write(&outside.join("v2/db.yaml"), "db:91");
    symlink("v1", outside.join("current")).unwrap();
    symlink(outside.join("file.txt"), scene.at("web.yaml")).unwrap();
    symlink(".outside/current", scene.at("folder")).unwrap();
    symlink("nowhere", scene.at("dangling.yaml")).unwrap();
    scene.start();
    scene.expect("start", "db:90 web:80");
    write(&outside.join("file.txt"), "web:81");
    scene.expect("the file behind a link is written", "db:90 web:81");
    write(&outside.join("file.new"), "web:82");
    fs::rename(outside.join("file.new"), outside.join("file.txt")).unwrap();
    scene.expect("and replaced", "db:90 web:82");
    write(&outside.join("v1/db.yaml"), "db:92");
    scene.expect("a file in a folder behind a link", "db:92 web:82");
    symlink("v2", outside.join("next")).unwrap();
    fs::rename(outside.join("next"), outside.join("current")).unwrap();
    scene.expect("a link in the middle is turned", "db:91 web:82");
    write(&outside.join("v2/db.yaml"), "db:93");
    scene.expect("the new folder is followed", "db:93 web:82");
    write(&scene.at("nowhere"), "late:1");
    scene.expect("a dangling link finds its file", "db:93 late:1 web:82");
    fs::remove_file(outside.join("file.txt")).unwrap();
    scene.expect("the file behind a link goes", "db:93 late:1");
}

#[test]
fn a_link_out_of_the_tree_is_an_error_and_takes_nothing_away() {
    let mut scene = Scene::with(&[("web.yaml", "web:80"), ("sub/db.yaml", "db:90")]);
    let outside = scene.top.join("outside");
    fs::create_dir(&outside).unwrap();
    write(&outside.join("web.yaml"), "web:99 stranger:1");
    write(&outside.join("db.yaml"), "db:99");
    scene.expect("start", "db:90 web:80");
    // A chain of links, the last of which leads outside.
    symlink("../outside/web.yaml", scene.at(".chain")).unwrap();
    symlink(".chain", scene.at("link")).unwrap();
    scene.rename("link", "web.yaml");
    let file = "db:90 web:80
        ! web.yaml:1 : it is a symbolic link to .chain, outside the giv
        kept NetworkPolicy default/web";
    scene.expect("a file", file);
    scene.restart();
    scene.expect("after a restart", file);
    scene.put("web.new", "web:81");
    scene.rename("web.new", "web.yaml");
    scene.expect("a file again", "db:90 web:81");
    scene.run("mv", &["sub", "../aside"]);
    symlink(scene.top.join("aside"), scene.at("sub")).unwrap();
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("db:90 web:81\n! sub:1 : it is a symbolic link to /"),
        "{shown}"
    );
    assert!(shown.ends_with("kept NetworkPolicy default/db"), "{shown}");
    scene.remove("sub");
    scene.run("mv", &["../aside", "sub"]);
    scene.expect("a folder again", "db:90 web:81");
    for (name, target) in [
        ("secret.yaml", "/etc/shadow"),
        ("memory.yaml", "/proc/self/mem"),
        ("zero.yaml", "/dev/zero"),
        ("parent", ".."),
        ("all", "/"),
    ] {
        symlink(target, scene.at(name)).unwrap();
        scene.quiet();
        let shown = scene.shown();
        let expected = format!(
            "db:90 web:81\n! {name}:1 : {}",
            format!("it is a symbolic link to {target}, outside the given folders")
                .chars()
                .take(48)
                .collect::<String>()
                .trim()
        );
        assert!(shown.starts_with(&expected), "{shown}");
        scene.remove(name);
        scene.expect("removed", "db:90 web:81");
    }
}

#[test]
fn a_link_may_lead_to_another_root() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (folder, policies) in [("a", "web:80"), ("b", "db:90")] {
        fs::create_dir(at(folder)).unwrap();
        write(&at(folder).join("all.yaml"), policies);
    }
    symlink("../b/all.yaml", at("a/db.yaml")).unwrap();
    let both = palisade_source::load(&[at("a"), at("b")]);
    assert_eq!(both.diagnostics, []);
    assert_eq!(common::policies(&both.state).len(), 2);
    let one = palisade_source::load(&[at("a")]);
    let reasons: Vec<&str> = one.diagnostics.iter().map(|f| &*f.problem.reason).collect();
    assert!(reasons[0].starts_with("it is a symbolic link to ../b/all.yaml, outside"));
    assert_eq!((reasons.len(), one.has_errors()), (1, true));
    // A given path may be a link itself, to a folder or to a file.
    symlink("a", at("c")).unwrap();
    symlink("b/all.yaml", at("d.yaml")).unwrap();
    let through = palisade_source::load(&[at("c"), at("d.yaml")]);
    assert_eq!(common::policies(&through.state).len(), 2);
    assert_eq!(through.diagnostics, []);
}

#[test]
fn circles_pipes_devices_and_names_that_are_no_manifests() {
    let mut scene = Scene::new();
    scene.put("a/web.yaml", "web:80");
    symlink(".", scene.at("a/circle")).unwrap();
    symlink("..", scene.at("a/up")).unwrap();
    symlink("self", scene.at("self")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(scene.at("socket.yaml")).unwrap();
    scene.run("mkfifo", &["pipe.yaml"]);
    scene.put("notes.txt", "notes:1");
    scene.put(".hidden.yaml", "hidden:1");
    scene.put(".git/web.yaml", "git:1");
    scene.put("folder.yaml/inner.json", "inner:1");
    fs::hard_link(scene.at("a/web.yaml"), scene.at("a/same.yaml")).unwrap();
    symlink("web.yaml", scene.at("a/also.yaml")).unwrap();
    scene.start();
    scene.expect("start", "inner:1 web:80");
    symlink("loop2.yaml", scene.at("loop1.yaml")).unwrap();
    symlink("loop1.yaml", scene.at("loop2.yaml")).unwrap();
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("inner:1 web:80\n! loop1.yaml:1 : cannot access it"),
        "{shown}"
    );
    scene.remove("loop1.yaml");
    scene.expect("half of a circle leads nowhere", "inner:1 web:80");
    fs::remove_file(scene.at("a/also.yaml")).unwrap();
    fs::remove_file(scene.at("a/same.yaml")).unwrap();
    scene.expect("other names of a file go", "inner:1 web:80");
    // A pipe replaces a file.
    scene.run("mkfifo", &["pipe2"]);
    scene.rename("pipe2", "a/web.yaml");
    scene.expect("what was a file is none now", "inner:1");
}

#[test]
fn the_root_goes_and_comes_back() {
    let mut scene = Scene::with(&[("web.yaml", "web:80"), ("sub/db.yaml", "db:90")]);
    scene.expect("start", "db:90 web:80");
    fs::rename(&scene.root, scene.top.join("aside")).unwrap();
    scene.quiet();
    let shown = scene.shown();
    assert!(shown.starts_with("db:90 web:80\n! "), "{shown}");
    assert!(shown.contains("cannot access it: No such file"), "{shown}");
    assert!(shown.ends_with("kept NetworkPolicy default/db\nkept NetworkPolicy default/web"));
    fs::create_dir(&scene.root).unwrap();
    scene.quiet();
    let shown = scene.shown();
    assert!(shown.starts_with("db:90 web:80\n! "), "{shown}");
    assert!(
        shown.contains("the policy directory was replaced by one without"),
        "{shown}"
    );
    scene.put("web.yaml", "web:81");
    scene.expect("filled again, with less", "web:81");
    scene.run(
        "sh",
        &[
            "-c",
            "rm -r ../tree && mkdir ../tree && cp ../aside/web.yaml ../tree",
        ],
    );
    scene.expect("rm -r and cp", "web:80");
    scene.remove("web.yaml");
    scene.expect("the last file is removed, the folder stays", "");
}

#[test]
fn the_root_is_a_link_that_is_turned() {
    let mut scene = Scene::new();
    for (version, policies) in [("v1", "web:80 db:90"), ("v2", "web:81 db:90")] {
        fs::create_dir(scene.top.join(version)).unwrap();
        write(&scene.top.join(version).join("all.yaml"), policies);
    }
    fs::remove_dir(&scene.root).unwrap();
    symlink("v1", &scene.root).unwrap();
    scene.start();
    scene.expect("start", "db:90 web:80");
    scene.run("ln", &["-sfn", "v2", "../tree"]);
    scene.expect("ln -sfn", "db:90 web:81");
    scene.put("all.yaml", "web:82 db:90");
    scene.expect("the new one is followed", "db:90 web:82");
    write(&scene.top.join("v1/all.yaml"), "web:99");
    scene.expect("the old one is not", "db:90 web:82");
    fs::rename(scene.top.join("v1"), scene.top.join("v0")).unwrap();
    symlink("v1", scene.top.join("new")).unwrap();
    fs::rename(scene.top.join("new"), &scene.root).unwrap();
    scene.quiet();
    assert!(
        scene.shown().starts_with("db:90 web:82\n!"),
        "{}",
        scene.shown()
    );
    fs::rename(scene.top.join("v0"), scene.top.join("v1")).unwrap();
    scene.expect("it leads somewhere again", "web:99");
}

#[test]
fn a_single_file() {
    let mut scene = Scene::new();
    let file = scene.top.join("policies.conf");
    write(&file, "web:80");
    fs::remove_dir(&scene.root).unwrap();
    scene.root = file.clone();
    scene.start();
    scene.expect("start", "web:80");
    write(&scene.top.join("other.yaml"), "other:1");
    write(&scene.top.join("new"), "web:81");
    fs::rename(scene.top.join("new"), &file).unwrap();
    scene.expect("replaced", "web:81");
    fs::remove_file(&file).unwrap();
    scene.quiet();
    assert!(scene.shown().starts_with("web:81\n! "), "{}", scene.shown());
    write(&file, "web:82");
    scene.expect("back", "web:82");
}

#[test]
fn what_cannot_be_read_takes_nothing_away() {
    let mut scene = Scene::with(&[("web.yaml", "web:80"), ("db.yaml", "db:90")]);
    scene.expect("start", "db:90 web:80");
    // Outside the tree, and write-only for everyone including root.
    symlink("/proc/self/clear_refs", scene.at("link")).unwrap();
    scene.rename("link", "web.yaml");
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with(
            "db:90 web:80\n! web.yaml:1 : it is a symbolic link to /proc/self/clear_refs,"
        ),
        "{shown}"
    );
    assert!(shown.ends_with("kept NetworkPolicy default/web"), "{shown}");
    scene.restart();
    scene.expect("nor after a restart", &shown);
    scene.put("other.yaml", "web:81");
    scene.expect(
        "defined elsewhere, the rest of the file unknown",
        &shown
            .replace("web:80", "web:81")
            .replace("\nkept NetworkPolicy default/web", ""),
    );
    scene.remove("web.yaml");
    scene.expect("the unreadable one is removed", "db:90 web:81");
    let huge = fs::File::create(scene.at("db.yaml")).unwrap();
    huge.set_len(40 << 20).unwrap();
    drop(huge);
    scene.expect(
        "a huge file",
        "db:90 web:81
        ! db.yaml:1 : it is larger than 32 MiB and is not read
        kept NetworkPolicy default/db",
    );
    scene.put("db.yaml", "db:92");
    scene.expect("small again", "db:92 web:81");
}

/// Opens files as another user while it lives, because root reads files of any mode. Applies to this thread
/// and those that it starts.
struct OtherUser(Uid);

impl OtherUser {
    fn enter() -> Self {
        OtherUser(setfsuid(Uid::from_raw(65_534)))
    }
}

impl Drop for OtherUser {
    fn drop(&mut self) {
        setfsuid(self.0);
    }
}

#[test]
fn modes_that_forbid_reading() {
    let mut scene = Scene::new();
    scene.run("chmod", &["777", "..", "."]);
    let user = geteuid().is_root().then(OtherUser::enter);
    scene.write("web.yaml", &manifest("web:80"));
    scene.write("sub/db.yaml", &manifest("db:90"));
    scene.start();
    scene.expect("start", "db:90 web:80");
    for (name, mode) in [("web.yaml", "000"), ("sub", "000")] {
        scene.run("chmod", &[mode, name]);
        scene.quiet();
        assert!(
            scene.shown().starts_with("db:90 web:80\n! "),
            "{}",
            scene.shown()
        );
        scene.run("chmod", &["755", name]);
        scene.expect("readable again", "db:90 web:80");
    }
    // The source stops as this user; its files are removed as the first.
    scene.stop();
    drop(user);
}

#[test]
fn folders_that_nest_too_deep() {
    let mut scene = Scene::with(&[("web.yaml", "web:80")]);
    scene.expect("start", "web:80");
    let deep = vec!["d"; 70].join("/");
    fs::create_dir_all(scene.at(&deep)).unwrap();
    scene.put(&format!("{deep}/db.yaml"), "db:90");
    scene.remove("web.yaml");
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("web:80\n! "),
        "nothing is sure to be gone: {shown}"
    );
    assert!(
        shown.contains("folders are nested deeper than the limit of 64"),
        "{shown}"
    );
    fs::remove_dir_all(scene.at("d")).unwrap();
    scene.expect("removed", "");
}
