//! The configuration of the agent: every parameter defined once, in the section of its subsystem.
//!
//! A section ([`sections`](SECTIONS)) is a struct of typed values and the table of its parameters, made from the
//! same rows. From the tables come flags, environment variables, keys of the configuration file, help,
//! documentation, the schema of the Helm chart and the output of `palisade config`.
//!
//! - A new parameter is one row in the file of its section (`src/sections/`): it is the field, the flag and the
//!   documentation. Then `make docs`.
//! - A new section is one file there, its `mod` line, and its line in `sections!` of `src/sections/mod.rs`.
//! - A parameter that goes leaves a row in `src/removed.rs` that says what replaces it.
//!
//! Promises: [`Config::resolve`] and [`Config::reread`] are functions of their inputs. Invalid and contradictory
//! values, and removed parameters, are rejected together in one error that names the source of each.
//!
//! Never: reads the environment, a file or a clock; knows what a subsystem does with a value.

mod chart;
mod config_file;
mod document;
mod error;
mod file;
mod kind;
mod parameter;
mod parse;
mod removed;
mod reread;
mod resolve;
mod section;
mod sections;
mod source;
#[cfg(test)]
mod tests;
mod value_parser;
mod values;

pub use chart::chart_parameters;
pub use config_file::{ConfigFile, ConfigFileStatus};
pub use document::{example, man, markdown, removed_markdown};
pub use error::{ConfigError, ConfigProblem};
pub use kind::ParameterKind;
pub use parameter::{Parameter, ReloadMode};
pub use parse::parse_failsafe_ports;
pub use removed::{REMOVED_PARAMETERS, RemovedParameter, find_removed_parameter};
pub use reread::ConfigChanges;
pub use section::SectionTable;
pub use sections::api::ApiConfig;
pub use sections::cni::CniConfig;
pub use sections::dataplane::{DataplaneConfig, DataplaneKind};
pub use sections::directory::DirectoryConfig;
pub use sections::dns::DnsConfig;
pub use sections::etcd::EtcdConfig;
pub use sections::host::HostConfig;
pub use sections::hubble::HubbleApiConfig;
pub use sections::ipam::IpamConfig;
pub use sections::kubernetes::KubernetesConfig;
pub use sections::log::LogConfig;
pub use sections::masquerade::MasqueradeConfig;
pub use sections::monitor::MonitorConfig;
pub use sections::nftables::NftablesConfig;
pub use sections::nodes::NodesConfig;
pub use sections::page::PageConfig;
pub use sections::policy::PolicyConfig;
pub use sections::state::StateConfig;
pub use sections::workloads::WorkloadsConfig;
pub use sections::{Config, SECTIONS, find_parameter, parameters};
pub use values::{AddressPools, AddressRange, DnsRefusal, DnsServers, EtcdEndpoint, KubernetesApi};
