//! The parameters as JSON schema: what the values of the Helm chart under `config` may be. The chart's schema
//! is checked in; a test compares it with this module (`make docs` writes it).

use crate::kind::ParameterKind;
use crate::parameter::Parameter;
use crate::sections::parameters;
use serde_json::{Map, Value, json};

/// The schema of each parameter that is a value of the chart, by name.
pub fn chart_parameters() -> Map<String, Value> {
    parameters()
        .filter(|parameter| !parameter.is_set_by_chart)
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
        ParameterKind::Path | ParameterKind::KubernetesApi => {
            json!({"type": "string", "minLength": 1})
        }
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
        ParameterKind::Mask => {
            json!({"type": "string", "pattern": "^0x[0-9a-fA-F]{1,8}$"})
        }
        ParameterKind::FailsafePorts => json!({
            "type": ["string", "array"],
            "items": {"type": "string"},
            "minLength": 1,
            "minItems": 1,
        }),
        ParameterKind::AnyOf(words) => json!({
            "type": ["string", "array"],
            "items": {"enum": words},
        }),
        ParameterKind::Networks
        | ParameterKind::DnsServers
        | ParameterKind::Pools
        | ParameterKind::Ranges
        | ParameterKind::Namespaces
        | ParameterKind::Interfaces
        | ParameterKind::Endpoints => {
            json!({"type": ["string", "array"], "items": {"type": "string"}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigError};
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
        let present = std::fs::read_to_string(&path).unwrap();
        let mut schema: Value = serde_json::from_str(&present).unwrap();
        schema["properties"]["config"]["properties"] = chart_parameters().into();
        let made = format!("{schema:#}\n");
        if std::env::var_os("PALISADE_BLESS").is_some() {
            std::fs::write(&path, &made).unwrap();
            return;
        }
        assert!(
            present == made,
            "{} differs: run `make docs` and read the difference",
            path.display()
        );
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
            assert!(config.masquerade.is_enabled && config.log.is_json);
            assert_eq!(config.cni.conf_dir.unwrap(), Path::new("/etc/cni/net.d"));
        }
    }
}
