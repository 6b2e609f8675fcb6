//! The sections of the documentation of parameters: their order and their headings. A section decides nothing.

/// A section of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Source of policy.
    Policy,
    /// Interfaces and addresses of workloads.
    Workloads,
    /// Pods attached by a container runtime.
    Cni,
    /// Use of kernel facilities.
    Kernel,
    /// The socket, its access rules and limits.
    Api,
    /// Observability: packets, logs, health.
    Observability,
    /// The process itself.
    Process,
}

impl Section {
    /// All sections, in the order of the documentation.
    pub const ALL: [Section; 7] = [
        Section::Policy,
        Section::Workloads,
        Section::Cni,
        Section::Kernel,
        Section::Api,
        Section::Observability,
        Section::Process,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Section::Policy => "Policy",
            Section::Workloads => "Workloads and addresses",
            Section::Cni => "Pods by CNI",
            Section::Kernel => "Kernel",
            Section::Api => "API",
            Section::Observability => "Packets, logs and health",
            Section::Process => "Process",
        }
    }
}
