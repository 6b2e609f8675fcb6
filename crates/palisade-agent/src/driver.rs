//! Opens a driver by its name. No other file of the agent knows which drivers there are.

use crate::config::Config;
use palisade_dataplane::nftables::{self, NftConfig, NftDataplane};
use palisade_dataplane::{Dataplane, DriverError, DriverErrorKind};
use palisade_model::{HairpinAction, HostTrafficAction};

/// The driver that an agent uses.
pub const DEFAULT_DRIVER: &str = nftables::NAME;

/// Opens the driver of this name in the network namespace of the calling thread. Writes nothing.
///
/// # Errors
/// If there is no such driver, or it cannot be used with this kernel or configuration.
pub fn open_driver(name: &str, config: &Config) -> Result<Box<dyn Dataplane>, DriverError> {
    match name {
        nftables::NAME => {
            let driver = NftDataplane::new(NftConfig {
                table: config.table.clone(),
                interface_prefix: config.interface_prefix.clone(),
                mark_mask: config.mark_mask,
                packet_mark_bit: config.packet_mark_bit,
                judge_host_traffic: config.host_to_endpoint == HostTrafficAction::Policy,
                judge_hairpin: config.hairpin == HairpinAction::Policy,
                deny_action: config.deny_action,
                failsafe: config.failsafe.clone(),
                own_table: config.own_table,
                log_group: Some(config.monitor_group),
            })?;
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
