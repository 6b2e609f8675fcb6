//! Reading manifests once.

use palisade_source::{load, load_manifests};
use std::fs;
use std::path::{Path, PathBuf};

fn policy(name: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}}}\nspec: {{podSelector: {{}}}}\n"
    )
}

fn said(paths: &[&Path]) -> (Vec<String>, Vec<String>, usize) {
    let loaded = load(paths);
    let names = loaded
        .state
        .policies
        .keys()
        .map(|id| id.object.name.to_string());
    let flaws = loaded.diagnostics.iter().map(|flaw| {
        let mark = if flaw.is_error() { '!' } else { '?' };
        format!("{mark} {}", flaw.problem)
    });
    assert_eq!(
        loaded.has_errors(),
        loaded.diagnostics.iter().any(|flaw| flaw.is_error())
    );
    (names.collect(), flaws.collect(), loaded.files)
}

#[test]
fn files_folders_and_what_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { dir.path().join(name) };
    fs::create_dir_all(at("tree/sub")).unwrap();
    fs::write(at("tree/b.yaml"), policy("b")).unwrap();
    fs::write(at("tree/a.yml"), policy("a")).unwrap();
    fs::write(
        at("tree/sub/c.json"),
        r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}}"#,
    )
    .unwrap();
    fs::write(at("tree/notes.txt"), "no manifest").unwrap();
    fs::write(at("named"), policy("named")).unwrap();
    let (names, flaws, files) = said(&[&at("tree"), &at("named")]);
    assert_eq!(
        (names.join(" "), flaws.join("\n"), files),
        ("a b named".into(), String::new(), 4)
    );
    let (names, flaws, files) = said(&[&at("tree/a.yml"), &at("tree"), &at("tree/../tree/sub")]);
    assert_eq!(
        (names.join(" "), flaws.join("\n"), files),
        ("a b".into(), String::new(), 3)
    );
    let (names, flaws, files) = said(&[&at("tree"), &at("missing")]);
    assert_eq!((names.join(" "), files), ("a b".into(), 3));
    let missing = at("missing").display().to_string();
    assert_eq!(
        flaws,
        [format!(
            "! {missing}:1:1: cannot access it: No such file or directory (os error 2)"
        )]
    );
    fs::write(at("tree/sub/d.yaml"), policy("a")).unwrap();
    let (names, flaws, _) = said(&[&at("tree")]);
    assert_eq!(names.join(" "), "a b");
    let (first, second) = (at("tree/a.yml"), at("tree/sub/d.yaml"));
    assert_eq!(
        flaws,
        [format!(
            "! {}:1:1: NetworkPolicy default/a is defined twice: here and at {}:1:1",
            second.display(),
            first.display()
        )]
    );
    let empty: [&Path; 0] = [];
    assert_eq!(load(&empty).files, 0);
}

#[test]
fn names_are_those_given() {
    // The working directory of tests is that of this crate.
    let loaded = load(&["tests/../Cargo.toml"]);
    let files: Vec<String> = loaded
        .diagnostics
        .iter()
        .map(|f| f.problem.location.file.to_string())
        .collect();
    assert!(
        !files.is_empty() && files.iter().all(|file| file == "tests/../Cargo.toml"),
        "{files:?}"
    );
}

#[test]
fn pipes_and_devices() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(policy("piped").as_bytes()).unwrap();
    drop(writer);
    let path = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
    let (names, flaws, files) = said(&[&path]);
    assert_eq!(
        (names.join(" "), flaws.join("\n"), files),
        ("piped".into(), String::new(), 1)
    );
    let (names, flaws, _) = said(&[Path::new("/dev/zero")]);
    assert_eq!(names.len(), 0);
    assert!(
        flaws.len() == 1
            && flaws[0]
                .contains("! /dev/zero:1:1: this document, or this item of a list, has more than"),
        "{flaws:?}"
    );
}

/// A dump may be larger than the limit for files of the agent; problems of items are reported with their
/// index.
#[test]
fn a_dump_of_any_size_is_read_item_by_item() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pods.json");
    let managed = "x".repeat(2_000);
    let pod = |n: usize, port: &str| {
        format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {{\"name\": \"p{n}\", \
             \"managedFields\": [\"{managed}\"]}}, \"spec\": {{\"containers\": [{{\"ports\": \
             [{{\"name\": \"a\", \"containerPort\": {port}}}]}}]}}}}"
        )
    };
    let mut pods: Vec<String> = (0..17_000).map(|n| pod(n, "80")).collect();
    pods[12_345] = pod(12_345, "99999");
    let text = format!(
        "{{\"items\": [\n{}\n], \"kind\": \"List\"}}\n",
        pods.join(",\n")
    );
    assert!(text.len() > 33 << 20);
    fs::write(&path, &text).unwrap();
    let loaded = load(&[&path]);
    let shown: Vec<String> = loaded
        .diagnostics
        .iter()
        .map(|f| f.problem.to_string())
        .collect();
    assert_eq!(
        (loaded.state.endpoints.len(), shown.len()),
        (16_999, 1),
        "{shown:?}"
    );
    let place = format!("{}:12347:", path.display());
    assert!(
        shown[0].starts_with(&place) && shown[0].contains("99999"),
        "{shown:?}"
    );
    // Truncated anywhere, the list yields no objects.
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    let loaded = load(&[&path]);
    assert_eq!(
        (loaded.state.endpoints.len(), loaded.diagnostics.len()),
        (0, 1)
    );
    let field = &loaded.diagnostics[0].problem.field;
    assert!(field.starts_with("items["), "{field}");
}

#[test]
fn a_file_that_is_open_for_writing_is_not_half_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, policy("a")).unwrap();
    let writer = fs::File::options().append(true).open(&path).unwrap();
    let (names, flaws, _) = said(&[&path]);
    assert_eq!(names.len(), 0);
    assert_eq!(
        flaws,
        [format!(
            "! {}:1:1: another process has the file open for writing; not read",
            path.display()
        )]
    );
    drop(writer);
    assert_eq!(said(&[&path]).0, ["a"]);
}

/// Endpoints are stored separately; for them too the first definition is used.
#[test]
fn a_pod_that_is_defined_twice_is_the_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let pod = |name: &str, app: &str, address: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {app}}}}}\n\
             spec: {{containers: [{{name: c}}]}}\nstatus: {{podIP: {address}}}\n---\n"
        )
    };
    let [a, b] = ["a.yaml", "b.yaml"].map(|name| dir.path().join(name));
    let first =
        pod("xa", "one", "10.0.0.1") + &policy("p") + "---\n" + &pod("ya", "one", "10.0.0.2");
    fs::write(a, first).unwrap();
    let second = pod("wa", "two", "10.0.0.3")
        + &pod("xa", "two", "10.0.0.4")
        + &pod("za", "two", "10.0.0.2");
    fs::write(b, second).unwrap();
    let loaded = load(&[dir.path()]);
    let pods = loaded.state.endpoints.values();
    let pods: Vec<String> = pods
        .map(|pod| {
            format!(
                "{} {:?} {:?}",
                pod.id.name,
                pod.labels.get("app"),
                pod.addresses
            )
        })
        .collect();
    assert_eq!(
        pods,
        [
            "wa Some(\"two\") [10.0.0.3]",
            "xa Some(\"one\") [10.0.0.1]",
            "ya Some(\"one\") [10.0.0.2]",
            "za Some(\"two\") [10.0.0.2]",
        ]
    );
    let shown: Vec<String> = loaded
        .diagnostics
        .iter()
        .map(|f| f.problem.to_string())
        .collect();
    assert_eq!((loaded.objects, shown.len()), (5, 2), "{shown:?}");
    assert!(
        shown
            .iter()
            .any(|text| text.contains("Pod default/xa is defined twice")),
        "{shown:?}"
    );
    assert!(
        shown.iter().any(|text| text.contains("10.0.0.2")),
        "{shown:?}"
    );
}

#[test]
fn manifests_are_kept_whole_if_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let text = policy("a").replace(
        "metadata: {name: a}",
        "metadata: {name: a, annotations: {team: shop}}",
    );
    let list = "{\"apiVersion\": \"v1\", \"kind\": \"PodList\", \"items\": [{\"metadata\": {\"name\": \"p\", \
                \"namespace\": \"shop\"}, \"spec\": {\"nodeName\": \"n\", \"priority\": 5}}]}";
    let other = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}";
    fs::write(dir.path().join("a.yaml"), format!("{text}---\n{other}\n")).unwrap();
    fs::write(dir.path().join("b.json"), list).unwrap();
    let loaded = load_manifests(&[dir.path()]);
    assert!(!loaded.has_errors(), "{:?}", loaded.diagnostics);
    let names = loaded.manifests.iter().map(|loaded| loaded.id.to_string());
    let names: Vec<String> = names.collect();
    assert_eq!(names, ["NetworkPolicy default/a", "Pod shop/p"]);
    assert_eq!(
        loaded.manifests[0].manifest["metadata"]["annotations"]["team"],
        "shop"
    );
    let pod = &loaded.manifests[1].manifest;
    assert_eq!(pod["spec"]["priority"], 5, "{pod}");
    // An item of a list has the kind of the list.
    assert_eq!(
        (&pod["apiVersion"], &pod["kind"]),
        (&"v1".into(), &"Pod".into()),
        "{pod}"
    );
    assert_eq!(load(&[dir.path()]).manifests, []);
}
