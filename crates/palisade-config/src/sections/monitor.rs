//! Reports of denied and logged packets.

use crate::section::section;
use crate::value_parser::{number, one_of};

section! {
    /// Reports of denied and logged packets.
    pub struct MonitorConfig: "Denied and logged packets";

    /// Whether flows that policy lets pass are reported, for palisade monitor --flows. Each costs the kernel two messages.
    follows_flows: bool = "flows", one_of(&["off", "on"], &[false, true]), "off", "on|off", Restart;

    /// With flows, whether what they have in common is recorded on disk, for palisade flows.
    records_flows: bool = "record-flows", one_of(&["off", "on"], &[false, true]), "on", "on|off", Restart;

    /// How long recorded flows are kept, in hours.
    record_hours: u32 = "record-flows-age", number(1, 87_600), "168", "HOURS", Restart;

    /// The most that recorded flows take on disk, in MiB; the oldest go first.
    record_mebibytes: u32 = "record-flows-size", number(16, 1_048_576), "256", "MIB", Restart;

    /// The maximum number of packets reported per second for each rule; further packets are only counted.
    rate: u32 = "monitor-rate", number(1, 1_000), "100", "N", Live;
}
