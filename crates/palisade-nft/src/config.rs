//! What the layout can be told.

use palisade_model::Str;

/// The parameters of the layout. Two agents with different ones make different skeletons, and the
/// second rebuilds the first one's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The table's name.
    pub table: Str,
    /// What the names of our interfaces begin with: one that does and has not been announced is
    /// closed. At most 14 bytes, not empty.
    pub interface_prefix: Str,
    /// The bits of the connection mark that hold the generation: one run of at least 8 bits.
    pub ct_mark_mask: u32,
    /// Whether packets that this host's own stack makes are judged on their way into its endpoints.
    pub judge_host_traffic: bool,
    /// Whether the kernel tracks SCTP by port. Where it does not, all SCTP between two addresses is
    /// one connection, and none is ever accepted without being judged.
    pub sctp_tracked: bool,
    /// Where packets that were denied, or that a Log rule asked for, are reported; `None`: nowhere.
    pub log: Option<LogConfig>,
    /// A range of at most this many ports is written as single ones, which are cheaper to change.
    pub expand_ports: u16,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            table: "palisade".into(),
            interface_prefix: "pal".into(),
            ct_mark_mask: 0xffff_ff00,
            judge_host_traffic: false,
            sctp_tracked: true,
            log: Some(LogConfig::default()),
            expand_ports: 16,
        }
    }
}

/// How packets are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The nflog group.
    pub group: u16,
    /// How many packets a second each kind of report hands out at most; more are only counted.
    pub rate: u32,
    /// How many it hands out at once before the rate counts.
    pub burst: u32,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            group: 20545,
            rate: 1000,
            burst: 1000,
        }
    }
}

impl Config {
    /// The greatest generation that fits the mask.
    pub fn last_generation(&self) -> u32 {
        self.ct_mark_mask >> self.ct_mark_mask.trailing_zeros().min(31)
    }

    /// The connection mark's bits for a generation.
    pub fn mark(&self, generation: u32) -> u32 {
        (generation << self.ct_mark_mask.trailing_zeros().min(31)) & self.ct_mark_mask
    }

    /// The generation that a connection mark's bits stand for.
    pub fn generation(&self, mark: u32) -> u32 {
        (mark & self.ct_mark_mask) >> self.ct_mark_mask.trailing_zeros().min(31)
    }

    /// The generation after this one: never 0, which unmarked connections have.
    pub fn next_generation(&self, generation: u32) -> u32 {
        if generation >= self.last_generation() {
            1
        } else {
            generation + 1
        }
    }
}
