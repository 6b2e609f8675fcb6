//! The kinds of parameter values, as documents and schemas describe them. Parses nothing.

/// The values that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A path.
    Path,
    /// A path, or nothing.
    OptionalPath,
    /// The name of a file, without a directory.
    FileName,
    /// An integer within these bounds.
    Number {
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// An integer within these bounds, or 0 with a special meaning.
    NumberOrZero {
        /// The minimum except for 0.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any of these words, separated by commas.
    AnyOf(&'static [&'static str]),
    /// `true` or `false`; as a flag without a value, `true`.
    Bool,
    /// A name of a-z, 0-9 and _ that begins with a letter.
    Name {
        /// The maximum length.
        most: usize,
    },
    /// The name of a user group, or nothing.
    Group,
    /// At least 8 contiguous bits.
    Mask,
    /// Networks that do not overlap, separated by commas.
    Networks,
    /// Networks, and words for DNS servers, separated by commas.
    DnsServers,
    /// Networks from which addresses are allocated, separated by commas; or `auto`, `none`, or `node`.
    Pools,
    /// Networks and ranges of addresses, separated by commas.
    Ranges,
    /// Failsafe ports, separated by commas; or `none`.
    FailsafePorts,
    /// The name of a Kubernetes node, or nothing.
    NodeName,
    /// Kubernetes namespaces, separated by commas.
    Namespaces,
    /// Names of interfaces, separated by commas.
    Interfaces,
    /// An address and a port, or nothing.
    Address,
    /// `off`, `in-cluster`, or the path of a kubeconfig file.
    KubernetesApi,
    /// Endpoints of etcd, separated by commas.
    Endpoints,
    /// What keys of etcd begin with.
    KeyPrefix,
    /// Printable text, or nothing.
    OptionalText,
}

impl ParameterKind {
    /// Whether it is a list, separated by commas or given by repeating the flag.
    pub fn is_list(self) -> bool {
        matches!(
            self,
            ParameterKind::AnyOf(_)
                | ParameterKind::Networks
                | ParameterKind::DnsServers
                | ParameterKind::Pools
                | ParameterKind::Ranges
                | ParameterKind::FailsafePorts
                | ParameterKind::Namespaces
                | ParameterKind::Interfaces
                | ParameterKind::Endpoints
        )
    }

    /// Whether YAML needs no quotes around its values.
    pub(crate) fn is_plain_in_yaml(self) -> bool {
        matches!(
            self,
            ParameterKind::Number { .. } | ParameterKind::NumberOrZero { .. } | ParameterKind::Bool
        )
    }

    /// A description of the accepted values, for the documentation.
    pub fn describe(self) -> String {
        match self {
            ParameterKind::Path => "path".to_owned(),
            ParameterKind::OptionalPath => "path, or empty".to_owned(),
            ParameterKind::FileName => "file name".to_owned(),
            ParameterKind::Number { least, most } => format!("number from {least} to {most}"),
            ParameterKind::NumberOrZero { least, most } => {
                format!("0, or number from {least} to {most}")
            }
            ParameterKind::OneOf(words) => words.join(", "),
            ParameterKind::AnyOf(words) => format!("any of {}, or empty", words.join(", ")),
            ParameterKind::Bool => "true, false".to_owned(),
            ParameterKind::Name { most } => {
                format!("1 to {most} of a-z, 0-9 and _, a letter first")
            }
            ParameterKind::Group => "group, or empty".to_owned(),
            ParameterKind::Mask => "mask of at least 8 contiguous bits".to_owned(),
            ParameterKind::Networks => "networks".to_owned(),
            ParameterKind::DnsServers => "policy, cluster, node, and networks".to_owned(),
            ParameterKind::Pools => "auto, or networks, or node, or none".to_owned(),
            ParameterKind::NodeName => "node name, or empty".to_owned(),
            ParameterKind::Ranges => "networks and ranges".to_owned(),
            ParameterKind::FailsafePorts => "ports".to_owned(),
            ParameterKind::Namespaces => "namespaces".to_owned(),
            ParameterKind::Interfaces => "interfaces".to_owned(),
            ParameterKind::Address => "address and port, or empty".to_owned(),
            ParameterKind::KubernetesApi => "off, in-cluster, or path".to_owned(),
            ParameterKind::Endpoints => "endpoints, or empty".to_owned(),
            ParameterKind::KeyPrefix => "prefix of keys, a slash first".to_owned(),
            ParameterKind::OptionalText => "text, or empty".to_owned(),
        }
    }
}
