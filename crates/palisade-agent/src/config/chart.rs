//! The parameters as JSON schema: what the values of the Helm chart under `config` may be. The chart's schema
//! is checked in; a test compares it with this module (`make docs` writes it).

use super::{PARAMETERS, Parameter, ParameterKind};
use palisade_model::Family;
use serde_json::{Map, Value, json};

/// The parameters that the chart sets from other values, or that have no use in a cluster.
pub const SET_BY_CHART: [&str; 19] = [
    "directory",
    "kubernetes",
    "kubeconfig",
    "etcd",
    "etcd-prefix",
    "etcd-ca-file",
    "etcd-cert-file",
    "etcd-key-file",
    "etcd-user",
    "etcd-password-file",
    "state-dir",
    "cni-conf-dir",
    "cni-conf-name",
    "cni-conf-keep",
    "cni-bin-dir",
    "sysctl-dir",
    "socket",
    "health-address",
    "dry-run",
];

/// The schema of each parameter that is a value of the chart, by name.
pub fn chart_parameters() -> Map<String, Value> {
    PARAMETERS
        .iter()
        .filter(|parameter| !SET_BY_CHART.contains(&parameter.name))
        .map(|parameter| (parameter.name.to_owned(), parameter_schema(parameter)))
        .collect()
}

fn parameter_schema(parameter: &Parameter) -> Value {
    let mut schema = kind_schema(parameter.kind);
    let default = match parameter.default {
        "" => String::new(),
        default => format!(" Default: {default}."),
    };
    schema["description"] = json!(format!("{}{default}", parameter.help));
    schema
}

/// What JSON schema can say of a kind; the agent checks the rest at its start.
fn kind_schema(kind: ParameterKind) -> Value {
    match kind {
        ParameterKind::Path => json!({"type": "string", "minLength": 1}),
        ParameterKind::OptionalPath
        | ParameterKind::Group
        | ParameterKind::NodeName
        | ParameterKind::Address
        | ParameterKind::KeyPrefix
        | ParameterKind::OptionalText => {
            json!({"type": "string"})
        }
        ParameterKind::FileName => {
            json!({"type": "string", "pattern": r"^[^/]+\.(conflist|conf|json)$"})
        }
        ParameterKind::Number { least, most } => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        ParameterKind::NumberOrZero { least, most } => json!({"anyOf": [
            {"const": 0},
            {"type": "integer", "minimum": least, "maximum": most},
        ]}),
        ParameterKind::OneOf(words) => json!({"enum": words}),
        ParameterKind::Bool => json!({"type": "boolean"}),
        ParameterKind::Name { most } => {
            json!({"type": "string", "pattern": "^[a-z][a-z0-9_]*$", "maxLength": most})
        }
        ParameterKind::Mask | ParameterKind::Bit => {
            json!({"type": "string", "pattern": "^0x[0-9a-fA-F]{1,8}$"})
        }
        ParameterKind::Network(Family::V4) => {
            json!({"type": "string", "pattern": "^(none|[0-9.]+/[0-9]+)$"})
        }
        ParameterKind::Network(Family::V6) => {
            json!({"type": "string", "pattern": "^(none|[0-9a-fA-F:.]+/[0-9]+)$"})
        }
        ParameterKind::FailsafePorts => json!({
            "type": ["string", "array"],
            "items": {"type": "string"},
            "minLength": 1,
            "minItems": 1,
        }),
        ParameterKind::Networks
        | ParameterKind::Pools
        | ParameterKind::Ranges
        | ParameterKind::Namespaces
        | ParameterKind::Endpoints => {
            json!({"type": ["string", "array"], "items": {"type": "string"}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigError};
    use super::*;
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    fn file(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../deploy")
            .join(name)
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "tests write files directly")]
    fn the_documents_of_the_chart_are_those_of_the_table() {
        let path = file("helm/palisade/values.schema.json");
        let found = std::fs::read_to_string(&path).unwrap();
        let mut schema: Value = serde_json::from_str(&found).unwrap();
        schema["properties"]["config"]["properties"] = chart_parameters().into();
        let made = format!("{schema:#}\n");
        if std::env::var_os("PALISADE_BLESS").is_some() {
            std::fs::write(&path, &made).unwrap();
            return;
        }
        assert!(
            found == made,
            "{} differs: run `make docs` and read the difference",
            path.display()
        );
    }

    #[test]
    fn what_the_chart_sets_are_parameters() {
        for name in SET_BY_CHART {
            assert!(Parameter::by_name(name).is_some(), "{name}");
        }
    }

    /// The configuration in a rendered manifest: the lines below `palisade.yaml: |`.
    fn rendered(manifest: &str) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(file(manifest)).unwrap();
        let (_, below) = text.split_once("  palisade.yaml: |\n").unwrap();
        let lines = below.lines().map_while(|line| line.strip_prefix("    "));
        let text = lines.collect::<Vec<_>>().join("\n");
        assert!(text.contains("kubernetes: in-cluster"), "{text}");
        Config::resolve(
            &BTreeMap::new(),
            |_| None,
            Some(("palisade.yaml", text.as_bytes())),
        )
    }

    #[test]
    fn the_configuration_of_the_rendered_chart_is_accepted() {
        for manifest in ["palisade.yaml", "palisade-cleanup.yaml"] {
            let config = rendered(manifest).unwrap();
            assert!(config.masquerade && config.log_json);
            assert_eq!(config.sysctl_dir, Path::new("/host/proc/sys"));
            assert_eq!(config.cni_conf_dir.unwrap(), Path::new("/etc/cni/net.d"));
        }
    }
}
