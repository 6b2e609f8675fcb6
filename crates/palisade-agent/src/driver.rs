//! Opens a driver by its name. No other file of the agent knows which drivers there are.

use palisade_config::Config;
use palisade_dataplane::nftables::{self, NftConfig, NftDataplane};
use palisade_dataplane::{Dataplane, DriverError, DriverErrorKind};
use palisade_model::{HairpinAction, HostTrafficAction};

/// The driver that an agent uses.
pub const DEFAULT_DRIVER: &str = nftables::NAME;

/// The bit of the packet mark that says, between the hooks that a packet passes, that a policy for untracked
/// traffic or for traffic before destination NAT has allowed it. Free beside kube-proxy, Cilium and Calico.
const PACKET_MARK_BIT: u32 = 0x1000;

/// The nflog group to which the kernel sends denied and logged packets.
const PACKET_REPORT_GROUP: u16 = 20_545;

/// Opens the driver of this name in the network namespace of the calling thread. Writes nothing.
///
/// # Errors
/// If there is no such driver, or it cannot be used with this kernel or configuration.
pub fn open_driver(name: &str, config: &Config) -> Result<Box<dyn Dataplane>, DriverError> {
    match name {
        nftables::NAME => {
            let driver = NftDataplane::new(nft_config(config))?;
            let grace = driver.grace_method();
            tracing::debug!(grace, "grace period method");
            Ok(Box::new(driver))
        }
        other => Err(DriverError::new(
            DriverErrorKind::Unusable,
            "opening",
            "the driver",
            format!("there is no driver {other:?}"),
        )),
    }
}

/// The driver's configuration, made from the sections it needs; the only place that makes it.
fn nft_config(config: &Config) -> NftConfig {
    NftConfig {
        table: config.nftables.table.clone(),
        interface_prefix: config.workloads.interface_prefix.clone(),
        mark_mask: config.nftables.mark_mask,
        packet_mark_bit: PACKET_MARK_BIT,
        judge_host_traffic: config.policy.host_to_endpoint == HostTrafficAction::Policy,
        judge_hairpin: config.policy.hairpin == HairpinAction::Policy,
        deny_action: config.policy.deny_action,
        failsafe: config.host.failsafe(),
        own_table: config.nftables.owns_table,
        log_group: Some(PACKET_REPORT_GROUP),
    }
}
