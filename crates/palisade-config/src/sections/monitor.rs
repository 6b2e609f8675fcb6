//! Reports of denied and logged packets.

use crate::section::section;
use crate::value_parser::{number, one_of};

section! {
    /// Reports of denied and logged packets.
    pub struct MonitorConfig: "Denied and logged packets";

    /// Whether flows that policy lets pass are reported, for palisade monitor --flows. Each costs the kernel two messages.
    follows_flows: bool = "flows", one_of(&["off", "on"], &[false, true]), "off", "on|off", Restart;

    /// The maximum number of packets reported per second for each rule; further packets are only counted.
    rate: u32 = "monitor-rate", number(1, 1_000), "100", "N", Live;
}
