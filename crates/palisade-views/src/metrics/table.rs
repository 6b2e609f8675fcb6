//! Every metric, defined once: name, kind, labels, meaning.

use std::fmt::Write;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows until the agent restarts (unless its help says that it survives
    /// restarts).
    Counter,
    /// A histogram of durations.
    Histogram,
}

impl MetricKind {
    /// The name in the exposition format.
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
    /// Its name, with its unit.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its help text, one sentence.
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
    BUILD_INFO Gauge "palisade_build_info" ["version"] "Always 1; the label is the running version.";
    READY Gauge "palisade_ready" [] "Whether the source is in sync and the kernel holds its policy: 1 or 0.";
    DEGRADED_REASONS Gauge "palisade_degraded_reasons" [] "Problems that need an administrator, as listed by palisade status.";
    ENDPOINTS Gauge "palisade_endpoints" ["state"] "Endpoints of this host.";
    IDENTITIES Gauge "palisade_identities" [] "Groups of addresses that no active policy can tell apart.";
    POLICIES Gauge "palisade_policies" ["dialect", "state"] "Policies in force: active if they select an endpoint of this host, idle otherwise.";
    AUDIT_MODE Gauge "palisade_audit_mode" [] "Whether every endpoint of this host is in audit (policy-audit-mode): 1 or 0.";
    AUDIT_OBJECTS Gauge "palisade_audit_objects" ["kind"] "Policies, namespaces, and endpoints of this host, that are in audit.";
    REVISION_ACCEPTED Gauge "palisade_revision_accepted" [] "The revision of the last accepted input.";
    REVISION_REALISED Gauge "palisade_revision_realised" [] "The revision that the kernel enforces.";
    SOURCE_IN_SYNC Gauge "palisade_source_in_sync" [] "Whether the source has been read completely and is still watched: 1 or 0.";
    SOURCE_FOLLOWED Gauge "palisade_source_followed" ["source"] "Whether this source has been read completely and is still watched: 1 or 0.";
    SOURCE_STALE_SINCE Gauge "palisade_source_stale_since_seconds" ["source"] "Since when changes of this source may be missed, in seconds since 1970; 0 while it is followed.";
    SOURCE_FILES Gauge "palisade_source_files" [] "Files that the source reads.";
    SOURCE_OBJECTS Gauge "palisade_source_objects" [] "Objects in force.";
    SOURCE_PROBLEMS Gauge "palisade_source_problems" ["severity"] "Errors and warnings of the input.";
    SOURCE_KEPT Gauge "palisade_source_kept_objects" ["state"] "Objects whose text is invalid: last-valid keeps a former version, isolating never had one.";
    POLICY_ELEMENTS Gauge "palisade_policy_elements" [] "Kernel elements that policy uses: entries of classes and elements of programs.";
    POLICY_ELEMENTS_MAX Gauge "palisade_policy_elements_max" ["of"] "The maximum number of kernel elements: policy-set for one policy set, host for all of them.";
    POLICIES_OVER_BUDGET Gauge "palisade_policies_over_budget" ["enforced"] "Policies and policy sets that exceed the maximum: policies whose last valid version stays in force (last-valid) or that isolate (isolating), and policy sets that deny everything (closed).";
    CORE_QUEUE Gauge "palisade_core_queue_length" [] "Events that wait for the core.";
    SOURCE_BATCHES Counter "palisade_source_batches_total" [] "Batches of changes from the source.";
    FLUSH_SECONDS Histogram "palisade_flush_duration_seconds" [] "From a change to its last acknowledgement by the kernel.";
    ATTACH_SECONDS Histogram "palisade_attach_duration_seconds" [] "From the arrival of an ADD to the open interface of its workload, with the wait in the queue and, if its Pod is not known yet, for the Pod.";
    DETACH_SECONDS Histogram "palisade_detach_duration_seconds" [] "From the arrival of a DEL of a container runtime until its workload, its policy and its record are gone, with the wait in the queue.";
    IMPLEMENTATION_SECONDS Histogram "palisade_policy_implementation_delay_seconds" [] "From the detection of a change by its source to its last acknowledgement by the kernel, with the settle time and, if the kernel rejected it at first, the retries.";
    PHASE_SECONDS Histogram "palisade_flush_phase_duration_seconds" ["phase"] "Duration of each step of a flush or repair, including the grace period.";
    PHASE_WAIT_SECONDS Counter "palisade_flush_wait_seconds_total" [] "Time spent waiting for grace periods (no packet between two lookups).";
    KERNEL_TRANSACTIONS Counter "palisade_kernel_transactions_total" [] "Committed kernel transactions.";
    KERNEL_WRITES Counter "palisade_kernel_writes_total" [] "Kernel objects and elements written or deleted.";
    KERNEL_FAILURES Counter "palisade_kernel_failures_total" [] "Failed kernel writes and reads.";
    KERNEL_RETRIES Counter "palisade_kernel_retries_total" [] "Attempts to resync the kernel after a failure.";
    KERNEL_REPAIRS Counter "palisade_kernel_repairs_total" [] "Repairs of changes by other programs.";
    KERNEL_ERROR Gauge "palisade_kernel_error" [] "Whether the last attempt failed, so that the kernel does not hold the policy: 1 or 0.";
    GENERATION Gauge "palisade_flow_generation" [] "The generation that established flows must carry.";
    DROPPED_PACKETS Counter "palisade_dropped_packets_total" ["reason"] "Packets dropped by default or without policy evaluation, by reason; preserved over restarts.";
    DROPPED_BYTES Counter "palisade_dropped_bytes_total" ["reason"] "Bytes of these packets; preserved over restarts.";
    AUDIT_PACKETS Counter "palisade_audit_packets_total" ["enforced", "audit"] "Packets judged where something in audit applies, by their verdict (enforced) and the one that they would have if nothing were in audit (audit), each allow or deny; a packet between two endpoints of this host is judged at both; preserved over restarts.";
    AUDIT_BYTES Counter "palisade_audit_bytes_total" ["enforced", "audit"] "Bytes of these packets; preserved over restarts.";
    API_REQUESTS Counter "palisade_api_requests_total" ["method", "route", "code"] "API requests by result.";
    PROCESS_START Gauge "process_start_time_seconds" [] "When the agent started, in seconds since 1970.";
    PROCESS_CPU Counter "process_cpu_seconds_total" [] "CPU time used by the agent.";
    PROCESS_RSS Gauge "process_resident_memory_bytes" [] "Resident memory of the agent.";
    PROCESS_THREADS Gauge "process_threads" [] "Threads of the agent.";
    PROCESS_FDS Gauge "process_open_fds" [] "Open file descriptors of the agent.";
    FAST_PATH_RUNNING Gauge "palisade_fast_path_running" [] "Whether the fast path in eBPF runs: 1 or 0. The figures of it below are 0 while it does not.";
    FAST_PATH_ADDRESSES Gauge "palisade_fast_path_addresses" [] "Addresses of workloads whose packets the fast path may deliver.";
    FAST_PATH_INTERFACES_REFUSED Gauge "palisade_fast_path_interfaces_refused" [] "Interfaces of workloads that cannot have the programs of the fast path; nftables delivers their packets.";
    FAST_PATH_ROWS Gauge "palisade_fast_path_rows" [] "Rows of policy in the maps of the fast path.";
    FAST_PATH_SHORTAGES Gauge "palisade_fast_path_shortages" ["of"] "What the maps of the fast path have no room for, and nftables delivers: addresses, policy-sets, classes, prefixes (of other hosts: none of their flows is proven).";
    FAST_PATH_FLOWS Gauge "palisade_fast_path_flows" ["delivery"] "Flows in the table of the fast path: fast-path (it delivers them), or stack (the host's stack does, and their answers go by it); those that ended a moment ago may be among them.";
    FAST_PATH_EVICTIONS Counter "palisade_fast_path_evictions_total" [] "Live flows that had to make room in the table of the fast path, since the table was made; preserved over restarts.";
    NAMES Gauge "palisade_names" [] "Domain names that have addresses.";
    NAME_ADDRESSES Gauge "palisade_name_addresses" [] "Addresses of names, each once for each workload that asked.";
    NAME_ADDRESSES_ADDED Counter "palisade_name_addresses_added_total" [] "Addresses that DNS answers added.";
    NAME_ADDRESSES_REMOVED Counter "palisade_name_addresses_removed_total" ["reason"] "Addresses that went: expired (their time was over and no connection used them) or evicted (a bound was reached).";
    DNS_ANSWERS Counter "palisade_dns_answers_total" ["result"] "Answers that the DNS proxy offered: learnt, foreign (from a server that may not teach), or unowned (to an address without workload).";
    DNS_ADDRESSES_EXCLUDED Counter "palisade_dns_addresses_excluded_total" [] "Addresses of answers in networks that no answer may open.";
    DNS_POLICIES Gauge "palisade_dns_policies" [] "Policies that judge or observe DNS queries by name.";
    DNS_PROXIES Gauge "palisade_dns_proxies" [] "DNS proxies that are connected to the agent.";
    DNS_QUERIES Counter "palisade_dns_queries_total" ["protocol", "verdict"] "Queries that DNS proxies have read, as they report each second (like all figures below; after a restart of the agent, those of the proxies that still run): allowed, refused, unknown-rule-set (refused, since the proxy has no rules of that number), or malformed (no query).";
    DNS_QUERIES_DROPPED Counter "palisade_dns_queries_dropped_total" ["reason"] "Allowed queries that a proxy has dropped: forgotten (a bound was reached while they waited) or upstream (no socket or connection towards the server).";
    DNS_PROXY_ANSWERS Counter "palisade_dns_proxy_answers_total" ["result"] "Answers of servers: released (passed on to the client), foreign (dropped: nobody waits for them), or unsent (released or refused over UDP, and could not be sent).";
    DNS_UNCONFIRMED Counter "palisade_dns_answers_unconfirmed_total" [] "Released answers whose hold was over before the agent confirmed their addresses: a connection at once may have been denied.";
    DNS_UNREADABLE Counter "palisade_dns_answers_unreadable_total" [] "Released answers that could not be read, so that they gave no addresses.";
    DNS_LATENCY Histogram "palisade_dns_proxy_latency_seconds" [] "Time that a proxy added to an answered query: from its arrival until it was passed on (over TCP with the connection to the server), and from the arrival of the answer until its release, with the hold.";
    DNS_OFFERS_DROPPED Counter "palisade_dns_offers_dropped_total" [] "Names whose new addresses the agent does not know, since too many waited for it.";
    DNS_CONNECTIONS_CLOSED Counter "palisade_dns_connections_closed_total" ["reason"] "Connections of clients that a proxy closed: limit (too many), unmarked (net.ipv4.tcp_fwmark_accept is off), or idle.";
    DNS_SOCKETS_EVICTED Counter "palisade_dns_sockets_evicted_total" [] "Sockets towards servers that a bound closed before their time.";
    DNS_RULES_UNREADABLE Counter "palisade_dns_rules_unreadable_total" [] "Times that a proxy could not read its changed rules; the former ones stay in force.";
    FLOW_METRICS_REFUSED Counter "palisade_flow_metrics_refused_total" ["metric"] "Flows that a metric of hubble-metrics did not count, because it has 10,000 series.";
    FLOW_LOG_LINES Counter "palisade_flow_log_lines_total" ["log", "result"] "Lines of flow logs (hubble-flow-logs): written, or failed.";
}

/// Generates `docs/metrics.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         Made from the table in `crates/palisade-views/src/metrics/table.rs`; a test holds them equal.\n\n\
         `GET /metrics` answers them in Prometheus' text format, on the agent's socket and, if \
         `health-address` is set, there by TCP, beside `/healthz` (the core answers) and `/readyz` \
         (in sync, and the kernel holds the policy; otherwise 503 with the reasons). Nothing else is \
         served there. It has no authentication: give it an address that only those reach who may \
         read figures, such as 127.0.0.1:9245. The figures below name no workload and no policy; \
         those of `hubble-metrics` ([flows](flows.md)) come after them, and name what their labels ask for.\n\n\
         | metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        // Writing to a `String` cannot fail.
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
