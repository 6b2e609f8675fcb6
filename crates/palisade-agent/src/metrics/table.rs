//! Every metric, defined once: name, kind, labels, meaning.

use std::fmt::Write;

/// What kind of figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It goes up and down.
    Gauge,
    /// It only grows, until the agent starts again (but for counts that are kept over restarts, and
    /// say so).
    Counter,
    /// Durations in buckets.
    Histogram,
}

impl MetricKind {
    /// As the exposition format writes it.
    pub fn text(self) -> &'static str {
        match self {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, with the unit.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says, one sentence.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($id:ident $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $id: Metric = Metric {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        /// Every metric, in the order of the documentation.
        pub const METRICS: &[Metric] = &[$($id),*];
    };
}

metrics! {
    BUILD_INFO Gauge "palisade_build_info" ["version"] "Always 1: the version that runs.";
    READY Gauge "palisade_ready" [] "Whether the source is in sync and the kernel holds what it says: 1 or 0.";
    DEGRADED_REASONS Gauge "palisade_degraded_reasons" [] "Things that need a person, as palisade status lists them.";
    ENDPOINTS Gauge "palisade_endpoints" ["state"] "Endpoints of this host.";
    IDENTITIES Gauge "palisade_identities" [] "Groups of addresses that no active policy can tell apart.";
    POLICIES Gauge "palisade_policies" ["dialect", "state"] "Policies in force: active if they select an endpoint of this host, idle otherwise.";
    REVISION_ACCEPTED Gauge "palisade_revision_accepted" [] "The revision of the last accepted input.";
    REVISION_REALISED Gauge "palisade_revision_realised" [] "The revision that is real in the kernel.";
    SOURCE_IN_SYNC Gauge "palisade_source_in_sync" [] "Whether the source was read whole once and is still followed: 1 or 0.";
    SOURCE_FILES Gauge "palisade_source_files" [] "Files that the source reads.";
    SOURCE_OBJECTS Gauge "palisade_source_objects" [] "Objects in force.";
    SOURCE_PROBLEMS Gauge "palisade_source_problems" ["severity"] "What is wrong or doubtful with the input.";
    SOURCE_KEPT Gauge "palisade_source_kept_objects" ["state"] "Objects whose text is invalid: last-valid keeps a former version, isolating never had one.";
    POLICY_ELEMENTS Gauge "palisade_policy_elements" [] "Kernel elements that policy takes: entries of classes and elements of programs.";
    POLICY_ELEMENTS_MAX Gauge "palisade_policy_elements_max" ["of"] "How many it may take: policy-set is one policy set, host all of them.";
    POLICIES_OVER_BUDGET Gauge "palisade_policies_over_budget" ["enforced"] "What would take more than that: policies of which the last valid version stays (last-valid) or that isolate (isolating), and policy sets that deny everything (closed).";
    SOURCE_BATCHES Counter "palisade_source_batches_total" [] "Changes that the source handed in.";
    FLUSH_SECONDS Histogram "palisade_flush_duration_seconds" [] "From a change to its last acknowledgement by the kernel.";
    PHASE_SECONDS Histogram "palisade_flush_phase_duration_seconds" ["phase"] "Each step of a flush or repair, the wait for packets under way included.";
    PHASE_WAIT_SECONDS Counter "palisade_flush_wait_seconds_total" [] "Waiting until no packet was between two lookups.";
    KERNEL_TRANSACTIONS Counter "palisade_kernel_transactions_total" [] "Kernel transactions that were carried out.";
    KERNEL_WRITES Counter "palisade_kernel_writes_total" [] "Kernel objects and elements written or deleted.";
    KERNEL_FAILURES Counter "palisade_kernel_failures_total" [] "Writes or readings that the kernel refused.";
    KERNEL_RETRIES Counter "palisade_kernel_retries_total" [] "Attempts to bring the kernel in line after a failure.";
    KERNEL_REPAIRS Counter "palisade_kernel_repairs_total" [] "Repairs of what somebody else changed.";
    KERNEL_ERROR Gauge "palisade_kernel_error" [] "Whether the last attempt failed, so that the kernel does not hold the policy: 1 or 0.";
    GENERATION Gauge "palisade_flow_generation" [] "The generation that established flows must carry.";
    DROPPED_PACKETS Counter "palisade_dropped_packets_total" ["reason"] "Packets dropped by default or without a judgement, by why; kept over restarts.";
    DROPPED_BYTES Counter "palisade_dropped_bytes_total" ["reason"] "Their bytes; kept over restarts.";
    API_REQUESTS Counter "palisade_api_requests_total" ["method", "route", "code"] "Requests to the API by how they ended.";
    PROCESS_START Gauge "process_start_time_seconds" [] "When the agent started, in seconds since 1970.";
    PROCESS_CPU Counter "process_cpu_seconds_total" [] "Processor time that the agent used.";
    PROCESS_RSS Gauge "process_resident_memory_bytes" [] "Memory that the agent holds.";
    PROCESS_THREADS Gauge "process_threads" [] "Threads of the agent.";
    PROCESS_FDS Gauge "process_open_fds" [] "Descriptors that the agent holds open.";
}

/// The page `docs/metrics.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         Made from the table in `crates/palisade-agent/src/metrics/table.rs`; a test holds them equal.\n\n\
         `GET /metrics` answers them in Prometheus' text format, on the agent's socket and, if \
         `health-address` is set, there by TCP, beside `/healthz` (the core answers) and `/readyz` \
         (in sync, and the kernel holds the policy; otherwise 503 with the reasons). Nothing else is \
         served there. It has no authentication: give it an address that only those reach who may \
         read figures, such as 127.0.0.1:9245. The figures name no workload and no policy.\n\n\
         | metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            metric.name,
            metric.kind.text(),
            labels.join(", "),
            metric.help
        );
    }
    out
}
