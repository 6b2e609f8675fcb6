//! The stored versions of an earlier build are taken over: `recorded/valid-1` is a state directory as schema 1
//! held it when pods and the like were still stored.

use crate::common::{Scene, manifest};
use std::fs;
use std::path::Path;

#[test]
fn versions_of_an_earlier_build_are_taken_over() {
    let mut scene = Scene::new();
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/valid-1");
    let folder = scene.state_dir.join("valid");
    fs::create_dir_all(&folder).unwrap();
    let mut pods = 0;
    for entry in fs::read_dir(recorded).unwrap() {
        let entry = entry.unwrap();
        let text = fs::read_to_string(entry.path()).unwrap();
        pods += text.matches("\"kind\":\"Pod\"").count();
        let text = text.replace("@ROOT@", &scene.root.display().to_string());
        fs::write(folder.join(entry.file_name()), text).unwrap();
    }
    assert!(pods > 0, "the sample has pods");
    // Now web is invalid, the file of db is truncated to nothing, one policy is gone, one was never valid.
    scene.write("web.yaml", "");
    scene.write(
        "never.yaml",
        &manifest("bad:80").replace("port: 80", "port: 0"),
    );
    scene.start();
    scene.expect(
        "the last valid versions are in force, what is absent is gone",
        "bad:isolated db:90 web:80\n\
         ! never.yaml:10 spec.ingress[0].ports[0].port: 0 is not a port: 1 to 65535\n\
         ! web.yaml:1 : the file is empty; its previous objects stay in\n\
         kept NetworkPolicy default/bad never valid\n\
         kept NetworkPolicy default/db\n\
         kept NetworkPolicy default/web",
    );
    let since = scene.report().unwrap().retained[1].since;
    assert_eq!(since, Some(1_795_387_539), "the time of the earlier build");
    scene.stop();
    let stored: String = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    for kind in ["Pod", "Namespace", "Node", "Service", "ServiceAccount"] {
        assert!(
            !stored.contains(&format!("\"kind\":\"{kind}\"")),
            "{kind}: {stored}"
        );
    }
    assert!(stored.contains("\"source\":\"directory\""), "{stored}");
    // Pods are never stored.
    scene.write(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n",
    );
    scene.put("web.yaml", "web:81 db:91");
    scene.start();
    scene.until("read again", |scene| {
        scene.report().is_some_and(|r| r.objects == 4)
    });
    scene.stop();
    let stored: String = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert!(!stored.contains("\"Endpoint\""), "{stored}");
    assert!(stored.contains("\"web\""), "{stored}");
}
