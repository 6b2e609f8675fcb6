//! The sections: one file for each subsystem, and the list of them all.
//!
//! A new section is its file, its `mod` line and its line in [`sections!`]; from these come the field of
//! [`Config`], flags, environment variables, keys of the file, documents and reports.

pub(crate) mod api;
pub(crate) mod cni;
pub(crate) mod dataplane;
pub(crate) mod directory;
pub(crate) mod dns;
pub(crate) mod etcd;
pub(crate) mod host;
pub(crate) mod hubble;
pub(crate) mod ipam;
pub(crate) mod kubernetes;
pub(crate) mod log;
pub(crate) mod masquerade;
pub(crate) mod monitor;
pub(crate) mod nftables;
pub(crate) mod nodes;
pub(crate) mod page;
pub(crate) mod policy;
pub(crate) mod state;
pub(crate) mod workloads;

use crate::config_file::{ConfigFile, ConfigFileStatus};
use crate::parameter::Parameter;
use crate::section::{Section, SectionReader, SectionTable};
use crate::source::ParameterTexts;

macro_rules! sections {
    ($( $(#[doc = $about:literal])+ $field:ident: $section:ty, )+) => {
        /// The resolved configuration: a field for each section.
        #[derive(Clone, Debug)]
        pub struct Config {
            $( $(#[doc = $about])+ pub $field: $section, )+
            /// Dry run, a flag of commands: compute everything and change nothing.
            pub dry_run: bool,
            /// The configuration file, if one is used.
            pub file: Option<ConfigFile>,
            pub(crate) texts: ParameterTexts,
            pub(crate) file_status: ConfigFileStatus,
        }

        /// All sections, in the order of the documents.
        pub const SECTIONS: &[SectionTable] = &[$( <$section as Section>::TABLE ),+];

        /// The sections as they are parsed; those with an invalid value are missing.
        pub(crate) struct ParsedSections {
            $( pub(crate) $field: Option<$section>, )+
        }

        impl ParsedSections {
            pub(crate) fn read(reader: &mut SectionReader<'_>) -> Self {
                ParsedSections { $( $field: Section::read(reader), )+ }
            }

            /// The configuration, if no section is missing.
            pub(crate) fn into_config(self, texts: ParameterTexts) -> Option<Config> {
                Some(Config {
                    $( $field: self.$field?, )+
                    dry_run: false,
                    file: None,
                    texts,
                    file_status: ConfigFileStatus::default(),
                })
            }
        }
    };
}

sections! {
    /// The directory of manifests.
    directory: directory::DirectoryConfig,
    /// The Kubernetes API server.
    kubernetes: kubernetes::KubernetesConfig,
    /// etcd as a source of objects.
    etcd: etcd::EtcdConfig,
    /// What policies may cost and decide.
    policy: policy::PolicyConfig,
    /// Policy by domain name.
    dns: dns::DnsConfig,
    /// Host endpoints.
    host: host::HostConfig,
    /// The interfaces of workloads and pods.
    workloads: workloads::WorkloadsConfig,
    /// Their addresses.
    ipam: ipam::IpamConfig,
    /// Pods that container runtimes attach.
    cni: cni::CniConfig,
    /// This host among the nodes of its cluster.
    nodes: nodes::NodesConfig,
    /// The source addresses of pods' traffic.
    masquerade: masquerade::MasqueradeConfig,
    /// What delivers packets that policy allows.
    dataplane: dataplane::DataplaneConfig,
    /// The use of nftables and of conntrack.
    nftables: nftables::NftablesConfig,
    /// The API.
    api: api::ApiConfig,
    /// Reports of packets.
    monitor: monitor::MonitorConfig,
    /// Hubble's API.
    hubble: hubble::HubbleApiConfig,
    /// The page in the browser.
    page: page::PageConfig,
    /// The log.
    log: log::LogConfig,
    /// What the agent keeps between its runs.
    state: state::StateConfig,
}

/// Every parameter of the agent, in the order of the documents.
pub fn parameters() -> impl Iterator<Item = &'static Parameter> {
    SECTIONS.iter().flat_map(|section| section.parameters)
}

/// The parameter with this name.
pub fn find_parameter(name: &str) -> Option<&'static Parameter> {
    parameters().find(|parameter| parameter.name == name)
}
