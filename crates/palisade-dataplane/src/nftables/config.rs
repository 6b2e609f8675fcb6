//! What the kernel decides of the driver's parameters, and whether they are valid.

use palisade_nft::{Config, NflogConfig};
use palisade_sys::netns::NetNs;
use palisade_sys::nflog::KernelNflog;

use super::report_reader;
use crate::error::{DriverError, DriverErrorKind};

/// The nflog parameters, if the kernel has nflog: otherwise it would refuse the whole table.
pub(super) fn reachable_log(
    log: Option<NflogConfig>,
    netns: &NetNs,
) -> Result<Option<NflogConfig>, DriverError> {
    let Some(NflogConfig { group, .. }) = log else {
        return Ok(None);
    };
    match KernelNflog::open(netns, group, report_reader::SNAP_LEN) {
        Err(error) if error.is_unsupported() => Ok(None),
        Err(error) if !error.is_in_use() => Err(error.into()),
        Ok(_) | Err(_) => Ok(log),
    }
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
    let bits = &config.packet_mark;
    if !bits.early_stage.is_power_of_two() {
        return invalid("the packet mark bit", "it must be one bit");
    }
    if bits.proof.is_some_and(|bit| !bit.is_power_of_two()) {
        return invalid("the proof bit of the packet mark", "it must be one bit");
    }
    let overlap = config.packet_mark_overlap();
    if overlap != 0 {
        let reason = format!("two uses share {overlap:#x}");
        return invalid("the bits of the packet mark", &reason);
    }
    if !(1..=14).contains(&config.interface_prefix.len()) {
        return invalid("the interface prefix", "it must be 1 to 14 bytes long");
    }
    Ok(())
}
