//! Which versions stay in force when objects are invalid, broken or defined twice, and across restarts.

use crate::common::{Scene, manifest};
use std::fs;

/// A NetworkPolicy that is rejected for its port.
const REFUSED: &str = "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web}\n\
                       spec: {podSelector: {}, ingress: [{ports: [{port: 99999}]}]}\n";
const REFUSED_SAID: &str = "spec.ingress[0].ports[0].port: 99999 is not a port: 1 to 65535";

fn refused(file: &str, line: u32) -> String {
    let (field, reason) = REFUSED_SAID.split_once(": ").unwrap();
    let reason: String = reason.chars().take(48).collect();
    format!("! {file}:{line} {field}: {}", reason.trim())
}

#[test]
fn an_invalid_object_leaves_its_last_valid_version() {
    let mut scene = Scene::with(&[("all.yaml", "web:80 db:90")]);
    scene.expect("start", "db:90 web:80");
    scene.write("all.yaml", &format!("{REFUSED}{}", manifest("db:91")));
    let kept = format!(
        "db:91 web:80\n{}\nkept NetworkPolicy default/web",
        refused("all.yaml", 5)
    );
    scene.expect("one of two invalid, the other follows", &kept);
    scene.restart();
    scene.expect("after a restart", &kept);
    scene.rename("all.yaml", "moved.yaml");
    scene.expect("moved", &kept.replace("all.yaml", "moved.yaml"));
    scene.put("moved.yaml", "web:82 db:91");
    scene.expect("fixed", "db:91 web:82");
    scene.write("moved.yaml", &format!("{REFUSED}{}", manifest("db:91")));
    scene.quiet();
    scene.put("moved.yaml", "db:91");
    scene.expect("deleted while invalid", "db:91");
    scene.restart();
    scene.expect("and forgotten", "db:91");
}

#[test]
fn one_that_was_never_valid_isolates() {
    let mut scene = Scene::with(&[("db.yaml", "db:90")]);
    scene.expect("start", "db:90");
    scene.write("web.yaml", REFUSED);
    let isolated = format!(
        "db:90 web:isolated\n{}\nkept NetworkPolicy default/web never valid",
        refused("web.yaml", 5)
    );
    scene.expect("isolates", &isolated);
    scene.restart();
    scene.expect("after a restart", &isolated);
    scene.write("web.yaml", "kind: [");
    scene.quiet();
    let broken = scene.shown();
    assert!(
        broken.starts_with("db:90 web:isolated\n! web.yaml:1"),
        "{broken}"
    );
    assert!(
        broken.ends_with("\nkept NetworkPolicy default/web never valid"),
        "{broken}"
    );
    scene.restart();
    scene.expect("broken, and restarted", &broken);
    scene.put("web.yaml", "web:80");
    scene.expect("fixed", "db:90 web:80");
    scene.write("web.yaml", REFUSED);
    scene.expect(
        "invalid again: now there is a valid version",
        &format!(
            "db:90 web:80\n{}\nkept NetworkPolicy default/web",
            refused("web.yaml", 5)
        ),
    );
    scene.remove("web.yaml");
    scene.expect("removed", "db:90");
}

#[test]
fn a_broken_document_takes_no_other_with_it() {
    let mut scene = Scene::with(&[("all.yaml", "web:80 db:90 api:70")]);
    scene.expect("start", "api:70 db:90 web:80");
    let broken = |web: &str, api: &str| {
        format!(
            "{}---\nmetadata: {{name: db\n{}",
            manifest(web),
            manifest(api)
        )
    };
    scene.write("all.yaml", &broken("web:81", "api:71"));
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("api:71 db:90 web:81\n! all.yaml:1"),
        "{shown}"
    );
    assert!(
        shown.ends_with("\nkept NetworkPolicy default/db"),
        "{shown}"
    );
    assert_eq!(shown.lines().count(), 3, "{shown}");
    scene.write("all.yaml", &broken("web:82", ""));
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("api:71 db:90 web:82\n! all.yaml:1"),
        "{shown}"
    );
    assert!(
        shown.contains("kept NetworkPolicy default/api\nkept NetworkPolicy default/db"),
        "{shown}"
    );
    scene.restart();
    scene.expect("after a restart", &shown);
    scene.write("other.yaml", "a: [broken, and says nothing of any name");
    scene.quiet();
    scene.remove("all.yaml");
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("\n! other.yaml:1"),
        "the file is gone, and so is what it held: {shown}"
    );
    assert!(!shown.contains("kept"), "{shown}");
    scene.remove("other.yaml");
    scene.expect("nothing left", "");
}

#[test]
fn half_a_document() {
    let mut scene = Scene::with(&[("all.yaml", "web:80 db:90")]);
    scene.expect("start", "db:90 web:80");
    let text = manifest("web:81 db:91");
    for end in (1..text.len()).step_by(37) {
        scene.write("all.yaml", &text[..end]);
        scene.quiet();
        let shown = scene.shown();
        let policies = shown.lines().next().unwrap();
        assert!(
            policies.contains("web:") && !policies.contains("web:8,"),
            "{end}: {shown}"
        );
        // If the cut falls between two documents, the rest is a valid file.
        let whole = !shown.contains('!');
        assert!(policies.contains("db:9") || whole, "{end}: {shown}");
        assert!(whole || !policies.contains("isolated"), "{end}: {shown}");
        scene.write("all.yaml", &text);
        scene.quiet();
    }
    scene.expect("whole", "db:91 web:81");
}

#[test]
fn defined_twice() {
    let mut scene = Scene::with(&[("b.yaml", "web:80")]);
    scene.expect("start", "web:80");
    let twice = |now: &str| {
        format!(
            "web:{now}\n! b.yaml:2 : NetworkPolicy default/web is defined twice: here\n\
             kept NetworkPolicy default/web"
        )
    };
    scene.put("a.yaml", "web:81");
    scene.expect(
        "the version in force stays, though it comes second",
        &twice("80"),
    );
    let problem = scene.shown();
    scene.restart();
    scene.expect("after a restart", &problem);
    scene.put("b.yaml", "web:82");
    scene.expect("neither text is in force now", &twice("80"));
    scene.restart();
    scene.expect("nor after a restart", &twice("80"));
    scene.put("a.yaml", "web:80");
    scene.expect("one of them is again", &twice("80"));
    scene.remove("a.yaml");
    scene.expect("one is removed", "web:82");
    scene.put("c.yaml", "web:82");
    scene.quiet();
    assert!(
        scene.shown().starts_with("web:82\n! c.yaml:2"),
        "equal ones are two as well"
    );
    scene.remove("b.yaml");
    scene.expect("the other is removed", "web:82");
    scene.put("new.yaml", "api:70 api:71");
    scene.expect(
        "twice from the start: the first",
        "api:70 web:82
        ! new.yaml:12 : NetworkPolicy default/api is defined twice: here
        kept NetworkPolicy default/api",
    );
}

#[test]
fn what_happened_while_nobody_looked() {
    let mut scene = Scene::with(&[
        ("web.yaml", "web:80"),
        ("db.yaml", "db:90"),
        ("api.yaml", "api:70"),
    ]);
    scene.expect("start", "api:70 db:90 web:80");
    scene.stop();
    scene.remove("db.yaml");
    scene.write("web.yaml", REFUSED);
    scene.rename("api.yaml", "moved.yaml");
    scene.start();
    let after = format!(
        "api:70 web:80\n{}\nkept NetworkPolicy default/web",
        refused("web.yaml", 5)
    );
    scene.expect("gone is gone, invalid is kept", &after);
    scene.stop();
    scene.put("web.yaml", "web:81");
    let held = scene.begin("moved.yaml", &manifest("api:71 more:1"));
    scene.remove("web.yaml");
    scene.start();
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("api:70 web:80\n? moved.yaml:1"),
        "a file that is open counts as it did, from before the start: {shown}"
    );
    drop(held);
    scene.expect("closed", "api:71 more:1");
}

#[test]
fn memory_on_disk() {
    let mut scene = Scene::with(&[("web.yaml", "web:80"), ("db.yaml", "db:90")]);
    scene.expect("start", "db:90 web:80");
    scene.stop();
    let folder = scene.top.join("state/valid");
    let files = || -> Vec<_> {
        let mut files: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        files
    };
    let stamps = || -> Vec<_> {
        files()
            .iter()
            .map(|f| fs::metadata(f).unwrap().modified().unwrap())
            .collect()
    };
    assert_eq!(files().len(), 2, "one file each: {:?}", files());
    let before = stamps();
    scene.start();
    scene.expect("unchanged", "db:90 web:80");
    scene.write("web.yaml", &format!("# moved down\n{}", manifest("web:80")));
    scene.expect("a line was put before it", "db:90 web:80");
    scene.put("db.yaml", "db:91");
    scene.expect("one edit", "db:91 web:80");
    scene.stop();
    let changed = before
        .iter()
        .zip(stamps())
        .filter(|(old, new)| **old != *new)
        .count();
    assert_eq!(changed, 1, "one edit writes one file");
    let of = |name: &str| {
        let holds = |file: &&std::path::PathBuf| fs::read_to_string(file).unwrap().contains(name);
        files().iter().find(holds).unwrap().clone()
    };
    let web = of("\"web\"");
    let text = fs::read_to_string(&web).unwrap();
    assert!(text.starts_with("{\"schema\":1,"), "{text}");
    write(&web, &text[..text.len() / 2]);
    scene.write("web.yaml", REFUSED);
    scene.write("db.yaml", &REFUSED.replace("web", "db"));
    scene.start();
    scene.expect(
        "what a damaged file held was never valid; the rest is there",
        &format!(
            "db:91 web:isolated\n{}\n{}\nkept NetworkPolicy default/db\nkept NetworkPolicy default/web never valid",
            refused("db.yaml", 5),
            refused("web.yaml", 5)
        ),
    );
    scene.stop();
    write(
        &web,
        "{\"schema\": 2, \"objects\": {\"of\": \"another form\"}}",
    );
    let error = scene.open_set().err().unwrap();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("schema 2 is newer than schema 1"), "{cause}");
    // What is no plain file is damaged like one without sense.
    fs::remove_file(&web).unwrap();
    fs::create_dir(&web).unwrap();
    assert!(scene.open_set().is_ok());
}

#[test]
fn memory_that_cannot_be_saved_is_told() {
    let mut scene = Scene::with(&[("web.yaml", "web:80")]);
    scene.expect("start", "web:80");
    let folder = scene.top.join("state/valid");
    fs::remove_dir_all(&folder).unwrap();
    scene.put("web.yaml", "web:81");
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("web:81\n! state:1 : cannot save the last valid versions"),
        "{shown}"
    );
    fs::create_dir(&folder).unwrap();
    scene.put("web.yaml", "web:82");
    scene.expect("saved with the next change", "web:82");
}

#[allow(clippy::disallowed_methods, reason = "tests damage files")]
fn write(path: &std::path::Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[test]
fn pods_on_the_host_network_are_doubted_as_both_change() {
    let mut scene = Scene::with(&[("web.yaml", "web:80")]);
    scene.expect("start", "web:80");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {hostNetwork: true, containers: []}\n";
    scene.write("pod.yaml", pod);
    scene.quiet();
    let doubt = "? web.yaml:7 spec.podSelector: it selects Pod default/p on the host network; po";
    let shown = scene.shown();
    assert_eq!(shown, format!("web:80\n{doubt}"));
    scene.write(
        "pod.yaml",
        &pod.replace("name: p", "name: p, namespace: other"),
    );
    scene.quiet();
    assert_eq!(scene.shown(), "web:80");
    scene.write("pod.yaml", pod);
    scene.quiet();
    assert_eq!(scene.shown(), format!("web:80\n{doubt}"));
    scene.put("web.yaml", "web:81 db:90");
    scene.quiet();
    let second = doubt.replace("web.yaml:7", "web.yaml:17");
    assert_eq!(scene.shown(), format!("db:90 web:81\n{doubt}\n{second}"));
    scene.remove("pod.yaml");
    scene.quiet();
    assert_eq!(scene.shown(), "db:90 web:81");
}

#[test]
fn a_mistyped_kind_takes_nothing_out_of_force() {
    let right = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n";
    for (wrong, reason) in [
        (
            "apiVersion: networking.k8s.io/v1\nkind: Networkpolicy\n",
            ":3 kind: unknown kind \"Networkpolicy\" in the API group \"n",
        ),
        (
            "apiVersion: networking.k8s.io/v1\nkind: \"NetworkPolicy \"\n",
            ":3 kind: unknown kind \"NetworkPolicy \" in the API group \"",
        ),
        (
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolcy\n",
            ":3 kind: unknown kind \"NetworkPolcy\" in the API group \"ne",
        ),
        (
            "apiVersion: networking.k8s.io\nkind: NetworkPolicy\n",
            ":2 apiVersion: unknown apiVersion and kind \"networking.k8s.io N",
        ),
        (
            "apiVersion: example.com/v1\nkind: NetworkPolicies\n",
            ":2 apiVersion: unknown apiVersion and kind \"example.com/v1 Netw",
        ),
    ] {
        let mut scene = Scene::with(&[("all.yaml", "web:80"), ("db.yaml", "db:90")]);
        scene.expect("start", "db:90 web:80");
        let text = manifest("web:81");
        assert!(text.contains(right));
        scene.write("all.yaml", &text.replace(right, wrong));
        scene.quiet();
        let shown = scene.shown();
        assert!(shown.starts_with("db:90 web:80\n! all.yaml"), "{shown}");
        assert!(shown.contains(reason.split_at(30).0), "{shown}");
        assert!(
            shown.ends_with("\nkept NetworkPolicy default/web"),
            "{shown}"
        );
        scene.restart();
        scene.expect("after a restart", &shown);
        scene.put("all.yaml", "web:82");
        scene.expect("mended", "db:90 web:82");
    }
}

#[test]
fn a_kind_that_nobody_knows_makes_its_file_incomplete() {
    let mut scene = Scene::with(&[("all.yaml", "web:80 db:90")]);
    scene.expect("start", "db:90 web:80");
    // The policy was replaced by an object of an unknown kind: the policy stays.
    let strange = "---\napiVersion: networking.k8s.io/v1\nkind: Firewall\nmetadata: {name: x}\n";
    scene.write("all.yaml", &format!("{strange}{}", manifest("db:91")));
    scene.quiet();
    let shown = scene.shown();
    assert!(
        shown.starts_with("db:91 web:80\n! all.yaml:3 kind: unknown kind \"Firewall\""),
        "{shown}"
    );
    assert!(
        shown.ends_with("\nkept NetworkPolicy default/web"),
        "{shown}"
    );
    scene.restart();
    scene.expect("after a restart", &shown);
    // For a kind of another API group the file is complete, and a missing policy is gone.
    let own = strange.replace("networking.k8s.io", "example.com");
    scene.write("all.yaml", &format!("{own}{}", manifest("db:92")));
    scene.expect("of no concern", "db:92");
}
