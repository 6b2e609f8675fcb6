//! Configuration: every parameter defined once.
//!
//! From [`PARAMETERS`] come the flag, the environment variable, the key of the configuration file,
//! the help and what `palisade config` prints. [`Config::resolve`] takes what was said in each of
//! them as arguments, so nothing here reads the environment or a file itself; a flag wins over the
//! environment, that over the file, that over the default. What contradicts itself is refused with
//! one message.

use palisade_api::{ConfigReport, ParameterReport};
use palisade_manifest::{Limits, Value};
use palisade_model::{Family, Prefix};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name: the flag without dashes in front, and the key in the file.
    pub name: &'static str,
    /// What is taken where nothing is said.
    pub default: &'static str,
    /// What a value looks like, for usage.
    pub value: &'static str,
    /// What it is for, one sentence.
    pub help: &'static str,
}

impl Parameter {
    /// The environment variable: `PALISADE_` and the name in capitals.
    pub fn variable(&self) -> String {
        format!("PALISADE_{}", self.name.to_uppercase().replace('-', "_"))
    }
}

macro_rules! parameters {
    ($($name:literal $default:literal $value:literal $help:literal;)*) => {
        /// Every parameter of the agent, in the order of the documentation.
        pub const PARAMETERS: &[Parameter] = &[
            $(Parameter { name: $name, default: $default, value: $value, help: $help },)*
        ];
    };
}

parameters! {
    "directory" "/etc/palisade/policy" "DIR" "The tree of manifests to enforce.";
    "socket" "/run/palisade/palisade.sock" "PATH" "The unix socket of the API.";
    "state-dir" "/var/lib/palisade" "DIR" "Where attached workloads, last valid objects and counters are kept.";
    "settle" "100" "MS" "How long the directory must be quiet before a change is taken, in milliseconds.";
    "pool-ipv4" "10.245.0.0/24" "CIDR|none" "Where workloads that bring no IPv4 address get one.";
    "pool-ipv6" "fd50:616c:6973::/64" "CIDR|none" "Where workloads that bring no IPv6 address get one.";
    "mtu" "1500" "BYTES" "The MTU of workload interfaces.";
    "interface-prefix" "pal" "TEXT" "How the host side of our interfaces is named; unknown interfaces with it are closed.";
    "table" "palisade" "NAME" "The name of the nftables table.";
    "mark-mask" "0xffffff00" "MASK" "The bits of the conntrack mark that hold the generation of allowed flows.";
    "host-to-endpoint" "allow" "allow|policy" "Whether this host's own packets reach its endpoints without being judged.";
    "forwarding" "manage" "manage|keep" "Whether the agent switches IP forwarding on.";
    "monitor-group" "20545" "N" "The nflog group that the kernel reports denied and logged packets to.";
    "monitor-rate" "100" "N" "How many packets a second are told of each rule; of more, only the number.";
    "log-level" "info" "LEVEL" "error, warn, info, debug or trace.";
    "log-format" "text" "text|json" "How log lines are written to standard error.";
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The configuration file.
    File,
    /// Nobody said anything.
    Default,
}

impl Origin {
    fn text(self) -> &'static str {
        match self {
            Origin::Flag => "flag",
            Origin::Environment => "environment",
            Origin::File => "file",
            Origin::Default => "default",
        }
    }
}

/// Whether this host's own packets to its endpoints are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostToEndpoint {
    /// They pass.
    Allow,
    /// They are judged as any others.
    Policy,
}

/// The resolved configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The tree of manifests.
    pub directory: PathBuf,
    /// The API's socket.
    pub socket: PathBuf,
    /// The state directory.
    pub state_dir: PathBuf,
    /// How long the directory must be quiet.
    pub settle: Duration,
    /// The address pools, at most one of each family.
    pub pools: Vec<Prefix>,
    /// The MTU of workload interfaces, in bytes.
    pub mtu: u32,
    /// The prefix of our interfaces' names.
    pub interface_prefix: String,
    /// The nftables table.
    pub table: String,
    /// The bits of the conntrack mark that are ours.
    pub mark_mask: u32,
    /// Whether this host's own packets are judged.
    pub host_to_endpoint: HostToEndpoint,
    /// Whether the agent switches IP forwarding on.
    pub manage_forwarding: bool,
    /// The nflog group of denied and logged packets.
    pub monitor_group: u16,
    /// How many packets a second are told of each rule.
    pub monitor_rate: u32,
    /// The log filter.
    pub log_level: String,
    /// Whether log lines are JSON.
    pub log_json: bool,
    said: BTreeMap<&'static str, (String, Origin)>,
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A value cannot be read.
    #[error("{name}: {value:?} (from the {origin}) {reason}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What was said.
        value: String,
        /// Where.
        origin: &'static str,
        /// Why it is not one.
        reason: String,
    },
    /// The file says something that is no parameter.
    #[error("{place}: {reason}")]
    File {
        /// File, line and column.
        place: String,
        /// Why.
        reason: String,
    },
    /// Two values cannot both hold.
    #[error("{0}")]
    Contradiction(String),
}

impl Config {
    /// The configuration from what was said on the command line (by parameter name), in the
    /// environment (asked by variable name), and in a file (its name and text).
    ///
    /// # Errors
    /// The first value that cannot be read or contradicts another.
    pub fn resolve(
        flags: &BTreeMap<String, String>,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<(&str, &[u8])>,
    ) -> Result<Config, ConfigError> {
        let in_file = file
            .map(|(name, text)| read_file(name, text))
            .transpose()?
            .unwrap_or_default();
        let mut said = BTreeMap::new();
        for parameter in PARAMETERS {
            let from = |text: Option<&String>, origin| text.map(|t| (t.clone(), origin));
            let value = from(flags.get(parameter.name), Origin::Flag)
                .or_else(|| environment(&parameter.variable()).map(|t| (t, Origin::Environment)))
                .or_else(|| from(in_file.get(parameter.name), Origin::File))
                .unwrap_or_else(|| (parameter.default.to_owned(), Origin::Default));
            said.insert(parameter.name, value);
        }
        Reader { said }.config()
    }

    /// What `palisade config` shows.
    pub fn report(&self) -> ConfigReport {
        let parameters = PARAMETERS
            .iter()
            .filter_map(|parameter| {
                let (value, origin) = self.said.get(parameter.name)?;
                Some(ParameterReport {
                    name: parameter.name.to_owned(),
                    value: value.clone(),
                    source: origin.text().to_owned(),
                    default: parameter.default.to_owned(),
                    help: parameter.help.to_owned(),
                })
            })
            .collect();
        ConfigReport {
            api_version: palisade_api::api_version(),
            parameters,
        }
    }
}

fn read_file(name: &str, text: &[u8]) -> Result<BTreeMap<String, String>, ConfigError> {
    let reading = palisade_manifest::read(name, text, &Limits::default());
    if let Some(problem) = reading.problems.first() {
        let (place, reason) = (problem.location.to_string(), problem.reason.clone());
        return Err(ConfigError::File { place, reason });
    }
    let mut out = BTreeMap::new();
    for document in reading.documents {
        let bad = |place: &palisade_manifest::Location, reason: String| ConfigError::File {
            place: place.to_string(),
            reason,
        };
        let Value::Map(map) = &document.root.value else {
            return Err(bad(
                &document.root.location,
                "expected `parameter: value` lines".to_owned(),
            ));
        };
        for entry in map.iter() {
            if !PARAMETERS.iter().any(|p| p.name == &*entry.key) {
                let reason = format!("there is no parameter {:?}", entry.key);
                return Err(bad(&entry.location, reason));
            }
            let text = match &entry.value.value {
                Value::String(text) => text.to_string(),
                Value::Bool(value) => value.to_string(),
                Value::Int(value) => value.to_string(),
                Value::Null => continue,
                _ => return Err(bad(&entry.value.location, "expected one value".to_owned())),
            };
            out.insert(entry.key.to_string(), text);
        }
    }
    Ok(out)
}

struct Reader {
    said: BTreeMap<&'static str, (String, Origin)>,
}

impl Reader {
    fn config(self) -> Result<Config, ConfigError> {
        let mut pools = Vec::new();
        pools.extend(self.pool("pool-ipv4", Family::V4)?);
        pools.extend(self.pool("pool-ipv6", Family::V6)?);
        let config = Config {
            directory: self.path("directory")?,
            socket: self.path("socket")?,
            state_dir: self.path("state-dir")?,
            settle: Duration::from_millis(self.number("settle", 0, 60_000)?.into()),
            pools,
            mtu: self.number("mtu", 1280, 65_535)?,
            interface_prefix: self.name("interface-prefix", 1..=8)?,
            table: self.name("table", 1..=64)?,
            mark_mask: self.mask("mark-mask")?,
            host_to_endpoint: match self.choice("host-to-endpoint", &["allow", "policy"])? {
                0 => HostToEndpoint::Allow,
                _ => HostToEndpoint::Policy,
            },
            manage_forwarding: self.choice("forwarding", &["manage", "keep"])? == 0,
            monitor_group: self.number("monitor-group", 0, 65_535)? as u16,
            monitor_rate: self.number("monitor-rate", 1, 1_000)?,
            log_level: {
                let levels = ["error", "warn", "info", "debug", "trace"];
                levels[self.choice("log-level", &levels)?].to_owned()
            },
            log_json: self.choice("log-format", &["text", "json"])? == 1,
            said: self.said,
        };
        if config.state_dir.starts_with(&config.directory) {
            return Err(ConfigError::Contradiction(format!(
                "state-dir {} lies inside directory {}: the agent would read its own state as policy; \
                 move one of them",
                config.state_dir.display(),
                config.directory.display()
            )));
        }
        Ok(config)
    }

    fn text(&self, name: &'static str) -> &str {
        self.said.get(name).map_or("", |(text, _)| text)
    }

    fn refuse(&self, name: &'static str, reason: impl Into<String>) -> ConfigError {
        let origin = self
            .said
            .get(name)
            .map_or("default", |(_, origin)| origin.text());
        ConfigError::Value {
            name,
            value: self.text(name).to_owned(),
            origin,
            reason: reason.into(),
        }
    }

    fn path(&self, name: &'static str) -> Result<PathBuf, ConfigError> {
        match self.text(name) {
            "" => Err(self.refuse(name, "is no path")),
            text => Ok(PathBuf::from(text)),
        }
    }

    fn number(&self, name: &'static str, least: u32, most: u32) -> Result<u32, ConfigError> {
        let number = self
            .text(name)
            .parse()
            .ok()
            .filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| self.refuse(name, format!("is no number from {least} to {most}")))
    }

    fn mask(&self, name: &'static str) -> Result<u32, ConfigError> {
        let text = self.text(name);
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        let contiguous = |m: &u32| {
            m.count_ones() >= 8 && (m >> m.trailing_zeros()).trailing_ones() == m.count_ones()
        };
        parsed.filter(contiguous).ok_or_else(|| {
            self.refuse(
                name,
                "is no mask of at least 8 bits next to each other, such as 0xffff0000",
            )
        })
    }

    fn name(
        &self,
        name: &'static str,
        length: std::ops::RangeInclusive<usize>,
    ) -> Result<String, ConfigError> {
        let text = self.text(name);
        let fits = length.contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if fits {
            return Ok(text.to_owned());
        }
        let (least, most) = (length.start(), length.end());
        Err(self.refuse(
            name,
            format!("must be {least} to {most} of a-z, 0-9 and _, a letter first"),
        ))
    }

    fn choice(&self, name: &'static str, choices: &[&str]) -> Result<usize, ConfigError> {
        let found = choices.iter().position(|choice| *choice == self.text(name));
        found.ok_or_else(|| self.refuse(name, format!("must be one of {}", choices.join(", "))))
    }

    fn pool(&self, name: &'static str, family: Family) -> Result<Option<Prefix>, ConfigError> {
        let text = self.text(name);
        if text == "none" {
            return Ok(None);
        }
        let pool: Prefix = text
            .parse()
            .map_err(|error| self.refuse(name, format!("is no CIDR: {error}")))?;
        if pool.family() != family {
            return Err(self.refuse(name, format!("is no {family} network")));
        }
        if family.bits() - pool.length() < 2 {
            return Err(self.refuse(name, "holds fewer than four addresses"));
        }
        Ok(Some(pool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        flags: &[(&str, &str)],
        env: &[(&str, &str)],
        file: Option<&str>,
    ) -> Result<Config, ConfigError> {
        let flags = flags
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let env: BTreeMap<_, _> = env.iter().copied().collect();
        let env = |name: &str| env.get(name).map(|v| (*v).to_owned());
        Config::resolve(
            &flags,
            env,
            file.map(|text| ("palisade.yaml", text.as_bytes())),
        )
    }

    #[test]
    fn a_flag_wins_over_the_environment_over_the_file() {
        let file = Some("settle: 1\nmtu: 1400\ntable: filex\n");
        let config = resolve(
            &[("settle", "3")],
            &[("PALISADE_SETTLE", "2"), ("PALISADE_MTU", "1450")],
            file,
        )
        .unwrap();
        assert_eq!(
            (config.settle, config.mtu, &*config.table),
            (Duration::from_millis(3), 1450, "filex")
        );
        let source = |name: &str| {
            config
                .report()
                .parameters
                .iter()
                .find(|p| p.name == name)
                .unwrap()
                .source
                .clone()
        };
        assert_eq!(
            ["settle", "mtu", "table", "socket"].map(source),
            ["flag", "environment", "file", "default"]
        );
    }

    #[test]
    fn what_is_refused_says_where_it_was_said() {
        let error = |flags: &[(&str, &str)]| resolve(flags, &[], None).unwrap_err().to_string();
        assert_eq!(
            error(&[("mtu", "9")]),
            "mtu: \"9\" (from the flag) is no number from 1280 to 65535"
        );
        assert!(error(&[("mark-mask", "0xf0f0")]).contains("is no mask"));
        assert!(error(&[("pool-ipv4", "fd00::/64")]).contains("is no IPv4 network"));
        assert!(
            error(&[("state-dir", "/etc/palisade/policy/x")]).contains("lies inside directory")
        );
        let file = resolve(&[], &[], Some("\nsettel: 3\n"))
            .unwrap_err()
            .to_string();
        assert_eq!(file, "palisade.yaml:2:1: there is no parameter \"settel\"");
    }

    #[test]
    fn defaults_are_valid() {
        let config = resolve(&[], &[], None).unwrap();
        assert_eq!(config.pools.len(), 2);
        assert!(
            config
                .report()
                .parameters
                .iter()
                .all(|p| p.source == "default" && p.value == p.default)
        );
    }
}
