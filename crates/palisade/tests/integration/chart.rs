//! Properties of the Helm chart that need no Helm: its version, the rights it asks for, and that each value is
//! documented, described by the schema, and used.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const UNIT: &str = include_str!("../../../../packaging/palisade.service");
const PROXY_UNIT: &str = include_str!("../../../../packaging/palisade-proxy.service");

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/palisade")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(chart().join(name)).unwrap()
}

/// The text of all templates.
fn templates() -> String {
    let files = std::fs::read_dir(chart().join("templates")).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    texts.collect()
}

#[test]
fn its_version_is_that_of_the_workspace() {
    let text = read("Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("\nversion: {version}\n")), "{text}");
    assert!(
        text.contains(&format!("\nappVersion: \"{version}\"\n")),
        "{text}"
    );
}

#[test]
fn agent_and_proxy_get_the_capabilities_of_their_units_and_no_others() {
    let line = |text: &'static str| {
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let names = found.unwrap().split_whitespace();
        names
            .map(|name| name.trim_start_matches("CAP_").to_owned())
            .collect::<BTreeSet<_>>()
    };
    let templates = templates();
    let added: Vec<_> = templates
        .lines()
        .filter_map(|line| line.trim().strip_prefix("add: [")?.strip_suffix(']'))
        .collect();
    let set = |names: &str| {
        names
            .split(", ")
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let [agent, proxy] = *added else {
        panic!("capabilities are added in two places: {added:?}");
    };
    assert_eq!(set(agent), line(UNIT));
    assert_eq!(set(proxy), line(PROXY_UNIT));
}

/// The paths of all values that a schema describes, and of those whose keys are free.
fn schema_paths(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, below) in schema["properties"].as_object().unwrap() {
        let path = format!("{path}{name}");
        assert!(
            path.starts_with("config.")
                || path.split('.').count() > 2
                || below["description"].is_string()
                || path.starts_with("securityContext."),
            "{path} has no description"
        );
        if below["properties"].is_object() && !["config", "global"].contains(&&*path) {
            assert_eq!(below["additionalProperties"], false, "{path}");
            schema_paths(below, &format!("{path}."), found);
        } else {
            found.insert(path);
        }
    }
}

/// The paths of the values of the file, as deep as the schema goes.
fn value_paths(text: &str, schema: &BTreeSet<String>) -> BTreeSet<String> {
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let Some((name, _)) = line.trim_start().split_once(':') else {
            continue;
        };
        if name.starts_with(['#', '-', '"']) || name.contains(' ') {
            continue;
        }
        above.retain(|(depth, _)| *depth < indent);
        let path: Vec<&str> = above
            .iter()
            .map(|(_, name)| &**name)
            .chain([name])
            .collect();
        let path = path.join(".");
        if schema.contains(&path) {
            found.insert(path);
        }
        above.push((indent, name.to_owned()));
    }
    found
}

#[test]
fn each_value_has_a_default_a_schema_and_a_use() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    let mut described = BTreeSet::new();
    schema_paths(&schema, "", &mut described);
    // Helm adds it to the values of every chart.
    assert!(described.remove("global"));
    let defaults = value_paths(&read("values.yaml"), &described);
    let without: Vec<_> = described
        .iter()
        // Two of SELinux's four options are set.
        .filter(|path| !defaults.contains(*path) && !path.starts_with("securityContext.seLinux"))
        .filter(|path| *path != "resources.limits")
        .collect();
    assert_eq!(without, [""; 0], "values without a line in values.yaml");
    let templates = templates();
    for path in &described {
        let parts: Vec<&str> = path.split('.').collect();
        let whole = format!(".Values.{path}");
        let in_with = format!(".Values.{}", parts[0]);
        let last = format!(".{}", parts[parts.len() - 1]);
        let used = templates.contains(&whole)
            || templates.contains(&in_with) && templates.contains(&last)
            || path.starts_with("resources.")
            || path.starts_with("dnsProxy.resources.")
            || path.starts_with("securityContext.seLinux");
        assert!(used, "{path} is not used by a template");
    }
    // Nothing is used that is not described.
    for (_, after) in templates
        .match_indices(".Values.")
        .map(|(at, word)| templates.split_at(at + word.len()))
    {
        let end = after
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .unwrap();
        let path = after[..end].trim_end_matches('.');
        let known = described
            .iter()
            .any(|known| known == path || known.starts_with(&format!("{path}.")));
        assert!(
            known,
            "templates use .Values.{path}, which the schema does not know"
        );
    }
}
