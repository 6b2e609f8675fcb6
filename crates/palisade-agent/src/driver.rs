//! The drivers that there are, each with its name and how it is opened. No other file of the agent knows them, or which
//! one enforces.

use palisade_api::{FastPathReport, MissingFeatureReport};
use palisade_bpf::FastPathSupport;
use palisade_config::{
    Config, DataplaneKind, DnsConfig, HostConfig, NftablesConfig, PolicyConfig, WorkloadsConfig,
};
use palisade_dataplane::ebpf::{self, EbpfDataplane, FastPathConfig, FastPathMode};
use palisade_dataplane::nftables::{self, NflogConfig, PacketMarkBits, RedirectConfig};
use palisade_dataplane::{Dataplane, DriverError, DriverErrorKind};
use palisade_enforcer::policy_subsystem::judgement_options;
use palisade_network::dns_redirect::RedirectMarks;

/// Passes a driver its sections of the configuration, and opens it in the network namespace of the calling thread.
/// Writes nothing.
type OpenDriver = fn(&Config) -> Result<Box<dyn Dataplane>, DriverError>;

/// All drivers, by name.
const DRIVERS: [(&str, OpenDriver); 2] = [
    (nftables::NAME, |config| {
        open_nftables(config, FastPathMode::Off)
    }),
    (ebpf::NAME, |config| {
        let dataplane = &config.dataplane;
        let fast = FastPathConfig {
            proof_bit: PROOF_BIT,
            networks: dataplane.networks.clone(),
            uplinks: dataplane
                .uplinks
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
        };
        open_nftables(config, FastPathMode::On(fast))
    }),
];

/// The name of the driver that an agent of this configuration enforces with.
fn enforcing_driver(config: &Config) -> &'static str {
    match config.dataplane.kind {
        DataplaneKind::Nftables => nftables::NAME,
        DataplaneKind::Ebpf => ebpf::NAME,
    }
}

/// Opens the driver that an agent of this configuration enforces with, in the network namespace of the calling thread.
/// Writes nothing.
///
/// # Errors
/// If it cannot be used with this kernel or configuration.
pub fn open_enforcing_driver(config: &Config) -> Result<Box<dyn Dataplane>, DriverError> {
    open_driver(enforcing_driver(config), config)
}

/// Whether this host could run the fast path.
pub(crate) fn fast_path_report() -> FastPathReport {
    let support = FastPathSupport::probe();
    let missing = support.missing.iter();
    FastPathReport {
        possible: support.is_complete(),
        attachment: support.attachment.map(|attachment| attachment.to_string()),
        figures: None,
        missing: missing
            .map(|missing| MissingFeatureReport {
                feature: missing.feature.to_owned(),
                reason: missing.reason.clone(),
            })
            .collect(),
    }
}

/// The bit of the packet mark that says, between the hooks that a packet passes, that a policy for untracked
/// traffic or for traffic before destination NAT has allowed it. Free beside kube-proxy, Cilium and Calico.
const PACKET_MARK_BIT: u32 = 0x1000;

/// The bit of the packet mark that says that the fast path has proven a packet allowed. Free beside the same.
const PROOF_BIT: u32 = 0x2000;

/// The nflog group to which the kernel sends denied and logged packets.
const PACKET_REPORT_GROUP: u16 = 20_545;

/// Opens the driver of this name in the network namespace of the calling thread. Writes nothing.
///
/// # Errors
/// If there is no such driver, or it cannot be used with this kernel or configuration.
pub fn open_driver(name: &str, config: &Config) -> Result<Box<dyn Dataplane>, DriverError> {
    let driver = DRIVERS.iter().find(|(known, _)| *known == name);
    let Some((_, open)) = driver else {
        return Err(DriverError::new(
            DriverErrorKind::Unusable,
            "opening",
            "the driver",
            format!("there is no driver {name:?}"),
        ));
    };
    let driver = open(config)?;
    if let Some(grace) = driver.status().grace_method {
        tracing::debug!(grace, "grace period method");
    }
    Ok(driver)
}

/// The marks of packets that are redirected.
pub(crate) fn redirect_marks() -> RedirectMarks {
    let redirect = RedirectConfig::default();
    RedirectMarks {
        redirect: redirect.redirect_bit,
        host_answer: redirect.host_answer_bit,
    }
}

/// Sets what the proxy has to know of the packets that are redirected to it.
pub(crate) fn set_proxy_marks(proxy: &mut palisade_proxy::Config) {
    let redirect = RedirectConfig::default();
    proxy.port = redirect.port;
    proxy.mark_mask = redirect.number_mask;
    proxy.mark_shift = redirect.number_mask.trailing_zeros();
    proxy.upstream_mark = redirect.upstream_bit;
    proxy.answer_mark = redirect.answer_bit;
}

/// Opens what finds and removes the objects of every driver in the kernel. All names are of one driver at present, with
/// something above it or not, and it finds what any of them left.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn open_all_drivers(config: &Config) -> Result<Vec<Box<dyn Dataplane>>, DriverError> {
    Ok(vec![open_enforcing_driver(config)?])
}

/// Opens nftables, with or without the fast path above it.
fn open_nftables(config: &Config, mode: FastPathMode) -> Result<Box<dyn Dataplane>, DriverError> {
    let driver = EbpfDataplane::new(
        nftables_config(
            &config.nftables,
            &config.workloads,
            &config.policy,
            &config.host,
            &config.dns,
        ),
        mode,
    )?;
    Ok(Box::new(driver))
}

fn nftables_config(
    config: &NftablesConfig,
    workloads: &WorkloadsConfig,
    policy: &PolicyConfig,
    host: &HostConfig,
    dns: &DnsConfig,
) -> nftables::Config {
    nftables::Config {
        table: config.table.as_str().into(),
        interface_prefix: workloads.interface_prefix.as_str().into(),
        ct_mark_mask: config.mark_mask,
        packet_mark: PacketMarkBits {
            early_stage: PACKET_MARK_BIT,
            ..PacketMarkBits::default()
        },
        judgement: judgement_options(policy, host),
        deny_action: policy.deny_action,
        owned: config.owns_table,
        log: Some(NflogConfig {
            group: PACKET_REPORT_GROUP,
            ..NflogConfig::default()
        }),
        redirect: dns.is_proxied.then(RedirectConfig::default),
        ..nftables::Config::default()
    }
}
