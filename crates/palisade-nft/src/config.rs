//! The parameters of the table layout.

use alloc::vec::Vec;
use palisade_model::{DenyAction, Str};
use palisade_tables::JudgementOptions;

/// The parameters of the layout. Agents with different parameters create different skeletons; the second
/// rebuilds the table of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The table's name.
    pub table: Str,
    /// Prefix of the names of our interfaces: one that has it and no endpoint is closed. At most 14 bytes,
    /// not empty.
    pub interface_prefix: Str,
    /// The bits of the connection mark that we use: one contiguous run of at least 8.
    pub ct_mark_mask: u32,
    /// The bits of the packet mark that we use.
    pub packet_mark: PacketMarkBits,
    /// Which traffic is judged that could be exempt.
    pub judgement: JudgementOptions,
    /// What happens to what policy denies.
    pub deny_action: DenyAction,
    /// Whether the kernel tracks SCTP by port. If not, all SCTP between two addresses is one connection, and
    /// each packet is judged.
    pub sctp_tracked: bool,
    /// Whether the socket owns the table, so that no other program can change or flush it while the agent
    /// runs.
    pub owned: bool,
    /// The nflog parameters of denied and logged packets; `None` disables reporting.
    pub log: Option<NflogConfig>,
    /// A range of at most this many ports is written as single elements, which are cheaper to change.
    pub max_expanded_ports: u16,
    /// A program of fewer elements is always written complete, without a base.
    pub min_shared_elements: usize,
    /// How DNS queries reach the proxy that reads them; `None` if there is none, so that all packets are judged without.
    pub redirect: Option<RedirectConfig>,
}

impl Config {
    /// Whether denials answer.
    pub(crate) fn is_answering(&self) -> bool {
        self.deny_action == DenyAction::Reject
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            table: "palisade".into(),
            interface_prefix: "pal".into(),
            ct_mark_mask: 0xffff_ff00,
            packet_mark: PacketMarkBits::default(),
            judgement: JudgementOptions::default(),
            deny_action: DenyAction::default(),
            sctp_tracked: true,
            owned: false,
            log: Some(NflogConfig::default()),
            max_expanded_ports: palisade_tables::SHORT_RANGE,
            min_shared_elements: palisade_tables::SHARE_MIN_ELEMENTS,
            redirect: None,
        }
    }
}

/// The bits of the packet mark that the chains of policy use, each one bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketMarkBits {
    /// The bit between early stages of host interfaces and those that follow; it is never left set.
    pub early_stage: u32,
    /// The bit that a fast path sets on packets of flows that it owns; `None` if there is none, so that no mark means
    /// anything.
    pub proof: Option<u32>,
    /// The interfaces to other hosts where the fast path sets that bit as well, on packets to workloads.
    pub uplinks: Vec<Str>,
}

impl Default for PacketMarkBits {
    fn default() -> Self {
        PacketMarkBits {
            early_stage: 0x1000,
            proof: None,
            uplinks: Vec::new(),
        }
    }
}

/// How DNS queries reach the proxy that reads them. All are bits of the packet mark, each apart from the others and from
/// [`Config::packet_mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedirectConfig {
    /// The port of the proxy's listeners on the loopback addresses.
    pub port: u16,
    /// The bit of packets that are delivered to the proxy: an `ip rule` delivers what has it to this host.
    pub redirect_bit: u32,
    /// The bits with the number of the DNS rules: one contiguous run.
    pub number_mask: u32,
    /// The bit of packets of the proxy to servers.
    pub upstream_bit: u32,
    /// The bit of packets of the proxy to clients.
    pub answer_bit: u32,
    /// The bit of what a server of this host answers to the proxy: an `ip rule` delivers what has it to this host.
    pub host_answer_bit: u32,
    /// The zone of connection tracking that the proxy's connections to servers have in their original direction; no
    /// other program may use it.
    pub upstream_zone: u16,
}

impl RedirectConfig {
    fn packet_mark_masks(&self) -> [u32; 5] {
        [
            self.redirect_bit,
            self.number_mask,
            self.upstream_bit,
            self.answer_bit,
            self.host_answer_bit,
        ]
    }

    /// The greatest number of DNS rules; the first is 1.
    pub fn last_number(&self) -> u32 {
        self.number_mask >> self.shift()
    }

    fn shift(&self) -> u32 {
        self.number_mask.trailing_zeros().min(31)
    }

    /// The mark of a packet with DNS rules of this number.
    pub fn mark(&self, number: u32) -> u32 {
        self.redirect_bit | (number << self.shift()) & self.number_mask
    }

    /// The number of the DNS rules of a packet with this mark; 0 if it has none.
    pub fn number(&self, mark: u32) -> u32 {
        if mark & self.redirect_bit == 0 {
            return 0;
        }
        (mark & self.number_mask) >> self.shift()
    }
}

impl Default for RedirectConfig {
    fn default() -> Self {
        RedirectConfig {
            port: 20_053,
            redirect_bit: 0x1000_0000,
            number_mask: 0x0fff_0000,
            upstream_bit: 0x2000_0000,
            answer_bit: 0x4000_0000,
            host_answer_bit: 0x8000_0000,
            upstream_zone: 20_053,
        }
    }
}

/// The nflog parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NflogConfig {
    /// The nflog group.
    pub group: u16,
    /// Maximum rate in packets per second of each reason; more are only counted.
    pub rate: u32,
    /// Burst of each reason, in packets.
    pub burst: u32,
}

impl Default for NflogConfig {
    fn default() -> Self {
        NflogConfig {
            group: 20545,
            rate: 1000,
            burst: 1000,
        }
    }
}

impl Config {
    /// The flags of the table.
    pub fn table_flags(&self) -> u32 {
        if self.owned {
            crate::table_flag::OWNED
        } else {
            0
        }
    }

    /// The bits of the packet mark that two uses share; there must be none.
    pub fn packet_mark_overlap(&self) -> u32 {
        let early_stage = [self.packet_mark.early_stage];
        let redirect = self.redirect.iter();
        let masks = early_stage
            .into_iter()
            .chain(self.packet_mark.proof)
            .chain(redirect.flat_map(RedirectConfig::packet_mark_masks));
        let (_, overlap) = masks.fold((0, 0), |(sum, overlap), mask| {
            (sum | mask, overlap | sum & mask)
        });
        overlap
    }

    /// The bit of the connection mark for a mid-stream TCP flow, whose initiator is not known: the highest
    /// bit of the mask.
    pub fn midstream_bit(&self) -> u32 {
        1 << self.ct_mark_mask.checked_ilog2().unwrap_or(0)
    }

    /// The bits of the connection mark that hold the generation: the mask without [`Config::midstream_bit`].
    pub fn generation_mask(&self) -> u32 {
        self.ct_mark_mask & !self.midstream_bit()
    }

    fn shift(&self) -> u32 {
        self.ct_mark_mask.trailing_zeros().min(31)
    }

    /// The greatest generation.
    pub fn last_generation(&self) -> u32 {
        self.stale_generation() - 1
    }

    /// The generation in the mark of a flow that was tracked before the table existed: never live, so the
    /// flow is judged; and not 0, so that its tracked direction is trusted.
    pub fn stale_generation(&self) -> u32 {
        self.generation_mask() >> self.shift()
    }

    /// The connection mark's bits of a generation.
    pub fn mark(&self, generation: u32) -> u32 {
        (generation << self.shift()) & self.generation_mask()
    }

    /// The generation in a connection mark.
    pub fn generation(&self, mark: u32) -> u32 {
        (mark & self.generation_mask()) >> self.shift()
    }

    /// The lowest generation: the middle of the mask's values. Every generation from here on has the highest
    /// bit of [`Config::generation_mask`], so a mark that another program writes in low bits is never live.
    pub fn least_generation(&self) -> u32 {
        (self.stale_generation() >> 1) + 1
    }

    /// The first generation, from a random number: unlikely to equal the mark of a program that writes high
    /// bits as well.
    pub fn first_generation(&self, random: u32) -> u32 {
        let least = self.least_generation();
        least + random % (self.last_generation() - least + 1)
    }

    /// The generation after this one: never below [`Config::least_generation`].
    pub fn next_generation(&self, generation: u32) -> u32 {
        if generation >= self.last_generation() {
            self.least_generation()
        } else {
            (generation + 1).max(self.least_generation())
        }
    }

    /// The quarter of all generations that contains this one, as `(value, mask)` of a connection mark.
    /// Before the generation enters another quarter, no flow may carry a generation of it, or a mark from
    /// before the wraparound would become live.
    pub fn generation_quarter(&self, generation: u32) -> (u32, u32) {
        let mask = self.generation_mask();
        let top = mask & !(mask >> 2);
        (self.mark(generation) & top, top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_use_the_mask_and_nothing_else() {
        for mask in [0xffff_ff00, 0xff, 0xff00_0000, 0x0003_fc00, u32::MAX] {
            let config = Config {
                ct_mark_mask: mask,
                ..Config::default()
            };
            assert_eq!(config.midstream_bit() | config.generation_mask(), mask);
            assert_eq!(config.midstream_bit() & config.generation_mask(), 0);
            let last = config.last_generation();
            let least = config.least_generation();
            assert_eq!(config.next_generation(last), least);
            assert_eq!(
                config.next_generation(1),
                least,
                "as a table before left it"
            );
            assert_eq!(config.next_generation(least), least + 1);
            assert_eq!(config.first_generation(0), least);
            assert_eq!(config.first_generation(last - least), last);
            assert_eq!(config.first_generation(last - least + 1), least);
            let high = (config.generation_mask() >> 1) + (1 << config.shift() >> 1);
            for random in [0, 1, 77, 0x8000_0001, u32::MAX] {
                let mark = config.mark(config.first_generation(random));
                assert!(mark >= high && mark & !mask == 0, "{mark:#x} of {mask:#x}");
                assert!(config.first_generation(random) <= last);
            }
            assert_eq!(config.generation(config.mark(last)), last);
            let before = config.stale_generation();
            assert!(before > last && config.generation(config.mark(before)) == before);
            let (_, bits) = config.generation_quarter(1);
            assert_eq!(bits.count_ones(), 2);
            assert_eq!(
                config.generation_quarter(last),
                config.generation_quarter(before)
            );
            assert_ne!(
                config.generation_quarter(last),
                config.generation_quarter(least)
            );
        }
    }

    #[test]
    fn no_two_uses_share_a_bit_of_the_packet_mark() {
        let overlap = |proof, redirect| {
            let packet_mark = PacketMarkBits {
                proof,
                ..PacketMarkBits::default()
            };
            let config = Config {
                packet_mark,
                redirect,
                ..Config::default()
            };
            config.packet_mark_overlap()
        };
        let redirect = RedirectConfig::default();
        for (proof, in_redirect, wanted) in [
            (None, None, 0),
            (None, Some(redirect), 0),
            (Some(0x2000), Some(redirect), 0),
            (Some(0x1000), None, 0x1000),
            (Some(0x1_0000), None, 0),
            (Some(0x1_0000), Some(redirect), 0x1_0000),
            (Some(0x8000_0000), Some(redirect), 0x8000_0000),
        ] {
            assert_eq!(overlap(proof, in_redirect), wanted, "{proof:?}");
        }
        let host_answer_bit = redirect.upstream_bit;
        let twice = RedirectConfig {
            host_answer_bit,
            ..redirect
        };
        assert_eq!(overlap(None, Some(twice)), host_answer_bit);
    }

    #[test]
    fn every_generation_is_in_the_quarter_that_it_opens_or_the_one_before_it() {
        let config = Config {
            ct_mark_mask: 0xff,
            ..Config::default()
        };
        let least = config.least_generation();
        let (mut generation, mut opened) = (least, 0);
        for _ in 0..2 * (config.last_generation() - least + 1) {
            let next = config.next_generation(generation);
            opened += usize::from(
                config.generation_quarter(next) != config.generation_quarter(generation),
            );
            generation = next;
        }
        assert_eq!(opened, 4);
    }
}
