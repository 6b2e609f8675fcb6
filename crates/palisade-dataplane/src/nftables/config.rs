//! The parameters of the driver, and those that depend on the kernel.

use palisade_model::{DenyAction, FailsafePorts};
use palisade_nft::{Config, NflogConfig};
use palisade_sys::netns::NetNs;
use palisade_sys::nflog::KernelNflog;

use super::report_reader;
use crate::error::{DriverError, DriverErrorKind};

/// The parameters of an [`NftDataplane`](super::NftDataplane).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftConfig {
    /// Name of the table of family `inet`.
    pub table: String,
    /// Prefix of the names of our interfaces.
    pub interface_prefix: String,
    /// The bits of the conntrack mark that we use: one contiguous run of at least 8.
    pub mark_mask: u32,
    /// The bit of the packet mark that the driver uses.
    pub packet_mark_bit: u32,
    /// Whether packets of this host's own stack are subject to policy.
    pub judge_host_traffic: bool,
    /// Whether packets from an endpoint to itself are subject to policy.
    pub judge_hairpin: bool,
    /// What happens to packets that policy denies.
    pub deny_action: DenyAction,
    /// The flows of this host that no policy can deny.
    pub failsafe: FailsafePorts,
    /// Whether the socket owns the tables, so that no other program can change them while it is open; where
    /// the kernel supports it (6.9).
    pub own_table: bool,
    /// The nflog group that denied and logged packets are sent to; `None` disables reporting.
    pub log_group: Option<u16>,
}

/// The nflog parameters; `None` if the kernel has no nflog, since it would then refuse the whole table.
pub(super) fn log_config(
    group: Option<u16>,
    netns: &NetNs,
) -> Result<Option<NflogConfig>, DriverError> {
    let Some(group) = group else {
        return Ok(None);
    };
    match KernelNflog::open(netns, group, report_reader::SNAP_LEN) {
        Err(error) if error.is_unsupported() => return Ok(None),
        Err(error) if !error.is_in_use() => return Err(error.into()),
        Ok(_) | Err(_) => {}
    }
    let rest = NflogConfig::default();
    Ok(Some(NflogConfig { group, ..rest }))
}

/// Fails if a parameter is invalid.
pub(super) fn validate(config: &Config) -> Result<(), DriverError> {
    let mask = config.ct_mark_mask;
    let run = mask >> mask.trailing_zeros().min(31);
    let invalid = |object, reason: &str| {
        Err(DriverError::new(
            DriverErrorKind::Unusable,
            "using",
            object,
            reason,
        ))
    };
    if mask.count_ones() < 8 || run & run.wrapping_add(1) != 0 {
        let reason = "it must be one contiguous run of at least 8 bits";
        return invalid("the conntrack mark mask", reason);
    }
    if !config.packet_mark_bit.is_power_of_two() {
        return invalid("the packet mark bit", "it must be one bit");
    }
    if !(1..=14).contains(&config.interface_prefix.len()) {
        return invalid("the interface prefix", "it must be 1 to 14 bytes long");
    }
    Ok(())
}
