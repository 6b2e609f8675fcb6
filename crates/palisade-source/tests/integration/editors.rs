//! The write patterns of editors and tools.

use crate::common::{IDLE, SETTLE, Scene, manifest};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::Instant;

#[test]
fn vim_as_it_writes() {
    let mut scene = Scene::with(&[("foo.yaml", "web:80 db:90")]);
    scene.expect("start", "db:90 web:80");
    // vim: the probe for a writable folder, the backup, the new file, the removal of the backup.
    scene.write(".foo.yaml.swp", "swap");
    scene.write("4913", "");
    scene.remove("4913");
    scene.rename("foo.yaml", "foo.yaml~");
    std::thread::park_timeout(SETTLE * 2);
    scene.put("foo.yaml", "web:81 db:90");
    scene.remove("foo.yaml~");
    scene.remove(".foo.yaml.swp");
    scene.quiet();
    scene.unchanged("nothing follows");
    assert_eq!(scene.shown(), "db:90 web:81");
}

#[test]
fn vim_within_the_settle_time_never_drops_anything() {
    let mut scene = Scene::with(&[("foo.yaml", "web:80 db:90")]);
    scene.expect("start", "db:90 web:80");
    for port in 81..85 {
        scene.write("4913", "");
        scene.remove("4913");
        scene.rename("foo.yaml", "foo.yaml~");
        scene.put("foo.yaml", &format!("web:{port} db:90"));
        scene.remove("foo.yaml~");
        scene.expect("written", &format!("db:90 web:{port}"));
    }
    let backup = "set nocompatible writebackup backupcopy=no";
    let arguments = [
        "-Nu",
        "NONE",
        "-es",
        "-c",
        backup,
        "-c",
        "%s/84/99/",
        "-c",
        "wq",
        "foo.yaml",
    ];
    scene.run("vim.tiny", &arguments);
    scene.expect("real vim", "db:90 web:99");
}

#[test]
fn emacs_autosave_and_lock() {
    let mut scene = Scene::with(&[("foo.yaml", "web:80")]);
    scene.expect("start", "web:80");
    symlink("user@host.1:2", scene.at(".#foo.yaml")).unwrap();
    scene.put("#foo.yaml#", "web:99 stray:1");
    scene.expect("the lock and the autosave file do not count", "web:80");
    scene.rename("foo.yaml", "foo.yaml~");
    scene.put("foo.yaml", "web:81");
    scene.remove("#foo.yaml#");
    scene.remove(".#foo.yaml");
    scene.expect("saved", "web:81");
}

#[test]
fn written_in_pieces_with_long_pauses() {
    let mut scene = Scene::with(&[("foo.yaml", "web:80 db:90"), ("other.yaml", "api:70")]);
    scene.expect("start", "api:70 db:90 web:80");
    let whole = manifest("web:81 db:90");
    let (first, second) = whole.split_at(manifest("web:81").len());
    let mut file = scene.begin("foo.yaml", "");
    let held = "? foo.yaml:1 : another process has the file open for writing; u";
    scene.expect(
        "truncated and held open",
        &format!("api:70 db:90 web:80\n{held}"),
    );
    file.write_all(first.as_bytes()).unwrap();
    scene.unchanged("a first piece that is valid by itself");
    scene.put("other.yaml", "api:71");
    scene.expect(
        "another file does not wait for it",
        &format!("api:71 db:90 web:80\n{held}"),
    );
    scene.remove("other.yaml");
    scene.expect(
        "but nothing goes while it is open: it might have moved there",
        &format!("api:71 db:90 web:80\n{held}"),
    );
    file.write_all(second.as_bytes()).unwrap();
    scene.unchanged("all written, not closed");
    drop(file);
    scene.expect("closed", "db:90 web:81");
}

#[test]
fn truncate_and_write() {
    let mut scene = Scene::with(&[("foo.yaml", "web:80 db:90")]);
    scene.expect("start", "db:90 web:80");
    scene.put("foo.yaml", "web:81 db:90");
    scene.expect("as VS Code and shells do", "db:90 web:81");
    scene.write("foo.yaml", "");
    let empty = "db:90 web:81
        ! foo.yaml:1 : the file is empty; its previous objects stay in
        kept NetworkPolicy default/db
        kept NetworkPolicy default/web";
    scene.expect("`> foo.yaml`, and nothing after it", empty);
    scene.restart();
    scene.expect("still so after a restart", empty);
    scene.put("foo.yaml", "web:82");
    scene.expect("written again, with one of them", "web:82");
    scene.write("foo.yaml", "\n\n");
    scene.quiet();
    scene.remove("foo.yaml");
    scene.expect("removed while empty", "");
}

#[test]
fn sed_cp_mv_and_rsync() {
    let mut scene = Scene::with(&[("foo.yaml", "web:80"), ("a/bar.yaml", "db:90")]);
    scene.expect("start", "db:90 web:80");
    scene.run("sed", &["-i", "s/80/81/", "foo.yaml"]);
    scene.expect("sed -i", "db:90 web:81");
    scene.run("mv", &["foo.yaml", "renamed.yaml"]);
    scene.expect("mv", "db:90 web:81");
    scene.run("mv", &["renamed.yaml", "a/"]);
    scene.expect("mv to a folder", "db:90 web:81");
    scene.run("mv", &["a", "b"]);
    scene.expect("mv of a folder", "db:90 web:81");
    scene.run("sed", &["-i", "s/90/91/", "b/bar.yaml"]);
    scene.expect("in the moved folder", "db:91 web:81");
    scene.run("mv", &["b/bar.yaml", "../outside.yaml"]);
    scene.expect("mv out of the tree", "web:81");
    scene.run("cp", &["-p", "../outside.yaml", "b/copied.yaml"]);
    scene.expect("cp -p", "db:91 web:81");
    scene.put("b/.copied.yaml.Xy12Z", "db:92");
    scene.expect("rsync's temporary file", "db:91 web:81");
    scene.rename("b/.copied.yaml.Xy12Z", "b/copied.yaml");
    scene.expect("rsync's rename", "db:92 web:81");
    fs::hard_link(scene.top.join("outside.yaml"), scene.at("linked.yaml")).unwrap();
    scene.expect(
        "a hard link to a file that defines it too",
        "db:92 web:81
        ! linked.yaml:2 : NetworkPolicy default/db is defined twice: here 
        kept NetworkPolicy default/db",
    );
    scene.remove("b/copied.yaml");
    fs::remove_file(scene.top.join("outside.yaml")).unwrap();
    scene.expect("only the link is left", "db:91 web:81");
    scene.run("rm", &["-r", "b"]);
    scene.expect("rm -r", "db:91");
    fs::create_dir(scene.at("b")).unwrap();
    scene.put("b/new.yaml", "web:83");
    fs::create_dir_all(scene.at("c/d/e/f")).unwrap();
    scene.put("c/d/e/f/deep.yaml", "deep:1");
    scene.expect("new folders, written to at once", "db:91 deep:1 web:83");
    scene.put("c/d/e/f/deep.yaml", "deep:2");
    scene.expect("and watched since", "db:91 deep:2 web:83");
}

#[test]
fn an_object_moves_between_files() {
    let mut scene = Scene::with(&[("a.yaml", "web:80 db:90"), ("b.yaml", "api:70")]);
    scene.expect("start", "api:70 db:90 web:80");
    scene.put("a.yaml", "db:90");
    scene.put("b.yaml", "api:70 web:80");
    scene.expect("one out, then the other in", "api:70 db:90 web:80");
    scene.put("a.yaml", "db:90 web:80");
    scene.put("b.yaml", "api:70");
    scene.expect("and back", "api:70 db:90 web:80");
    scene.put("a.yaml", "db:90");
    let mut new = scene.begin("c.yaml", "");
    scene.quiet();
    new.write_all(manifest("web:80").as_bytes()).unwrap();
    scene.quiet();
    drop(new);
    scene.expect(
        "to a new file that takes long to write",
        "api:70 db:90 web:80",
    );
    assert!(
        scene
            .history
            .iter()
            .all(|moment| moment.contains_key("web"))
    );
}

#[test]
fn moved_into_a_file_that_is_broken() {
    let mut scene = Scene::with(&[("a.yaml", "web:80 db:90"), ("b.yaml", "api:70")]);
    scene.expect("start", "api:70 db:90 web:80");
    let broken = format!("{}  - ports: [\n", manifest("api:70 web:80"));
    scene.put("a.yaml", "db:90");
    scene.write("b.yaml", &broken);
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("api:70 db:90 web:80\n! b.yaml:"),
        "{shown}"
    );
    assert!(
        shown.ends_with("\nkept NetworkPolicy default/web"),
        "{shown}"
    );
    scene.restart();
    scene.expect("the same after a restart", &shown);
    scene.rename("b.yaml", "c.yaml");
    scene.expect(
        "the broken file is renamed",
        &shown.replace("b.yaml", "c.yaml"),
    );
    scene.put("c.yaml", "api:70");
    scene.expect("fixed, and it was not in there", "api:70 db:90");
}

#[test]
fn git_changes_many_files() {
    let mut scene = Scene::new();
    let git = |scene: &Scene, arguments: &[&str]| {
        let identity = [
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "-c",
            "init.defaultBranch=main",
        ];
        scene.run("git", &[&identity[..], arguments].concat());
    };
    git(&scene, &["init", "-q"]);
    scene.put("a.yaml", "web:80 db:90");
    scene.put("sub/b.yaml", "api:70");
    git(&scene, &["add", "."]);
    git(&scene, &["commit", "-qm", "one"]);
    scene.start();
    scene.expect("start", "api:70 db:90 web:80");
    git(&scene, &["checkout", "-qb", "two"]);
    git(&scene, &["mv", "sub", "other"]);
    scene.put("a.yaml", "web:81");
    scene.put("moved.yaml", "db:90");
    git(&scene, &["add", "."]);
    git(&scene, &["commit", "-qm", "two"]);
    scene.expect("second branch", "api:70 db:90 web:81");
    git(&scene, &["checkout", "-q", "main"]);
    scene.expect("checkout", "api:70 db:90 web:80");
    git(&scene, &["checkout", "-q", "two"]);
    scene.expect("checkout back", "api:70 db:90 web:81");
    scene.put("a.yaml", "web:82");
    scene.expect("edit", "api:70 db:90 web:82");
    git(&scene, &["stash", "-q"]);
    scene.expect("stash", "api:70 db:90 web:81");
    git(&scene, &["stash", "pop", "-q"]);
    scene.expect("stash pop", "api:70 db:90 web:82");
    git(&scene, &["rm", "-qf", "a.yaml"]);
    scene.expect("rm", "api:70 db:90");
    git(&scene, &["reset", "-q", "--hard"]);
    scene.expect("reset", "api:70 db:90 web:81");
}

#[test]
fn a_tool_that_makes_the_file_and_thinks_before_it_writes() {
    let mut scene = Scene::with(&[("foo.yaml", "web:80")]);
    scene.expect("start", "web:80");
    let file = scene.begin("new.yaml", "");
    std::thread::park_timeout(IDLE);
    scene.quiet();
    assert_eq!(scene.shown().lines().next(), Some("web:80"));
    drop(file);
    scene.expect("nothing came: `false > new.yaml`", "web:80");
    let outside = scene.top.join("empty");
    fs::File::create(&outside).unwrap();
    fs::rename(outside, scene.at("never-written.yaml")).unwrap();
    scene.expect("an empty file appears whole", "web:80");
    scene.remove("foo.yaml");
    scene.expect("it does not hold up removals", "");
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "compared with the time of an event"
)]
fn a_change_has_the_time_of_its_detection_and_what_was_there_before_has_none() {
    let mut scene = Scene::with(&[("foo.yaml", "web:80")]);
    scene.expect("start", "web:80");
    assert_eq!(scene.detected_at(), None);
    let before = Instant::now();
    scene.put("foo.yaml", "web:81");
    scene.expect("written", "web:81");
    let detected_at = scene.detected_at().unwrap();
    assert!(before <= detected_at && detected_at + SETTLE <= Instant::now());
}
