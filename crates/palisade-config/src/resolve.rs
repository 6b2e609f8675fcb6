//! Resolving: the values of flags, environment and file, merged, parsed and checked against each other.
//!
//! Precedence: flag, environment, file, default. Reads neither the environment nor a file itself.

use crate::error::{ConfigError, ConfigProblem};
use crate::file::{FileParameters, parse_file};
use crate::parameter::{Parameter, env_variable, flag};
use crate::removed::REMOVED_PARAMETERS;
use crate::section::SectionReader;
use crate::sections::ipam::automatic_pools;
use crate::sections::{Config, ParsedSections, parameters};
use crate::source::{Contradictions, ParameterSource, ParameterTexts};
use std::collections::BTreeMap;
use std::path::Path;

/// The variable in which the pods of DaemonSets usually get the name of their node.
const NODE_NAME_VARIABLE: &str = "NODE_NAME";

impl Config {
    /// Resolves the configuration from the command line (by parameter name), the environment (by
    /// variable name), and a file (its name and text).
    ///
    /// # Errors
    /// All invalid values, removed parameters and contradictions.
    pub fn resolve(
        flags: &BTreeMap<String, String>,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<(&str, &[u8])>,
    ) -> Result<Config, ConfigError> {
        let (mut in_file, mut problems) = file
            .map(|(name, text)| parse_file(name, text))
            .unwrap_or_default();
        problems.extend(removed_parameters(flags, &environment));
        let mut texts = ParameterTexts::new();
        for parameter in parameters() {
            let value = flags
                .get(parameter.name)
                .map(|text| (text.clone(), ParameterSource::Flag))
                .or_else(|| {
                    environment(&parameter.env_variable())
                        .map(|text| (text, ParameterSource::Environment))
                })
                .or_else(|| take_from_file(&mut in_file, parameter))
                .or_else(|| {
                    let is_name = parameter.name == "node-name";
                    let name = is_name.then(|| environment(NODE_NAME_VARIABLE)).flatten();
                    name.map(|text| (text, ParameterSource::Environment))
                })
                .unwrap_or_else(|| (parameter.default.to_owned(), ParameterSource::Default));
            texts.insert(parameter.name, value);
        }
        let config = Self::from_texts(texts, problems)?;
        match file.and_then(|(name, _)| config.own_file_problem(name)) {
            Some(problem) => Err(ConfigError {
                problems: vec![problem],
            }),
            None => Ok(config),
        }
    }

    /// The configuration file lies in the manifest directory, where it would be read as policy.
    pub(crate) fn own_file_problem(&self, file: &str) -> Option<ConfigProblem> {
        let directory = &self.directory.path;
        let source = self.texts.get("directory").map(|(_, source)| source);
        let source = source.map(|source| source.describe("directory"));
        Path::new(file)
            .starts_with(directory)
            .then(|| ConfigProblem::Contradiction {
                one: format!("config ({file})"),
                other: format!("directory ({})", source.unwrap_or_default()),
                reason: format!(
                    "the file lies inside {}, so the agent would read it as policy; move one of them",
                    directory.display()
                ),
            })
    }

    /// Parses the texts, and checks the values against each other.
    pub(crate) fn from_texts(
        texts: ParameterTexts,
        mut problems: Vec<ConfigProblem>,
    ) -> Result<Config, ConfigError> {
        let complete = with_automatic_values(&texts);
        let sections = ParsedSections::read(&mut SectionReader {
            texts: &complete,
            problems: &mut problems,
        });
        find_contradictions(
            &sections,
            &mut Contradictions {
                texts: &texts,
                problems: &mut problems,
            },
        );
        match sections.into_config(texts) {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigError { problems }),
        }
    }
}

/// The texts with values in place of those that depend on another parameter.
fn with_automatic_values(texts: &ParameterTexts) -> ParameterTexts {
    let mut complete = texts.clone();
    let kubernetes = texts.get("kubernetes").map_or("off", |(text, _)| text);
    if let Some((pools, _)) = complete.get_mut("ipam-pool")
        && matches!(pools.trim(), "auto" | "")
    {
        automatic_pools(kubernetes).clone_into(pools);
    }
    complete
}

/// The removed parameters that flags or the environment set; those of the file are found where it is read.
fn removed_parameters(
    flags: &BTreeMap<String, String>,
    environment: impl Fn(&str) -> Option<String>,
) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for removed in REMOVED_PARAMETERS {
        let name = removed.name;
        let by_flag = flags.contains_key(name).then(|| flag(name));
        let variable = env_variable(name);
        let by_variable = environment(&variable).map(|_| variable);
        for given_by in by_flag.into_iter().chain(by_variable) {
            problems.push(ConfigProblem::Removed {
                name,
                given_by,
                replacement: removed.replacement,
            });
        }
    }
    problems
}

pub(crate) fn take_from_file(
    lines: &mut FileParameters,
    parameter: &Parameter,
) -> Option<(String, ParameterSource)> {
    let (text, location) = lines.remove(parameter.name)?;
    Some((text, ParameterSource::File(location.to_string())))
}

/// Adds the contradictions within sections and between them. A section with an invalid value has none.
fn find_contradictions(sections: &ParsedSections, contradictions: &mut Contradictions<'_>) {
    if let Some(directory) = &sections.directory {
        let directory = &directory.path;
        if let Some(state) = &sections.state
            && state.dir.starts_with(directory)
        {
            let reason = format!(
                "{} lies inside {}, so the agent would read its own state as policy; move one of them",
                state.dir.display(),
                directory.display()
            );
            contradictions.add("state-dir", "directory", reason);
        }
        if let Some(conf_dir) = sections.cni.as_ref().and_then(|cni| cni.conf_dir.as_ref())
            && conf_dir.starts_with(directory)
        {
            let reason = format!(
                "{} lies inside {}, so the agent would read its CNI configuration as policy",
                conf_dir.display(),
                directory.display()
            );
            contradictions.add("cni-conf-dir", "directory", reason);
        }
    }
    if let Some(ipam) = &sections.ipam {
        ipam.find_contradictions(contradictions);
        let mtu = sections.cni.as_ref().and_then(|cni| cni.pod_mtu);
        if let (Some(1..1280), Some(pool)) = (mtu, ipam.ipv6_pool()) {
            let reason = format!(
                "pods get IPv6 addresses of {pool}, and IPv6 requires an MTU of at least 1280"
            );
            contradictions.add("pod-mtu", "ipam-pool", reason);
        }
    }
    if let Some(dataplane) = &sections.dataplane {
        let prefix = sections.workloads.as_ref();
        let prefix = prefix.map(|workloads| workloads.interface_prefix.as_str());
        dataplane.find_contradictions(prefix, contradictions);
        if let (Some(masquerade), Some(ipam)) = (&sections.masquerade, &sections.ipam) {
            dataplane.find_translated_network(masquerade, ipam, contradictions);
        }
    }
    if let Some(etcd) = &sections.etcd {
        etcd.find_contradictions(contradictions);
    }
    if let (Some(hubble), Some(monitor)) = (&sections.hubble, &sections.monitor) {
        hubble.find_contradictions(monitor.follows_flows, contradictions);
    }
    if let Some(page) = &sections.page {
        page.find_contradictions(contradictions);
    }
}
