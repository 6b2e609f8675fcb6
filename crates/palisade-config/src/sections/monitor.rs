//! Reports of denied and logged packets.

use crate::section::section;
use crate::value_parser::number;

section! {
    /// Reports of denied and logged packets.
    pub struct MonitorConfig: "Denied and logged packets";

    /// The maximum number of packets reported per second for each rule; further packets are only counted.
    rate: u32 = "monitor-rate", number(1, 1_000), "100", "N", Live;
}
