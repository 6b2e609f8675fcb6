//! Encapsulation: the tunnel protocols that carry packets inside packets.
//!
//! An encapsulated packet from an endpoint is decapsulated at the tunnel's far end, and no policy sees
//! the inner packet. It is therefore denied unless the configuration leaves it to policy. This module
//! names the protocols and detects their packets; it does not decide who may send them.

use crate::{L4, Protocol};
use core::fmt;
use serde::{Deserialize, Serialize};

/// A tunnel protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Encapsulation {
    /// VXLAN: UDP to port 4789 (IANA), or to 8472, the default of Linux.
    Vxlan,
    /// Geneve: UDP to port 6081 (RFC 8926).
    Geneve,
    /// IP in IP: protocol 4 (an IPv4 packet, RFC 2003) or 41 (an IPv6 packet, RFC 2473 and 4213).
    Ipip,
    /// GRE: protocol 47 (RFC 2784).
    Gre,
}

impl Encapsulation {
    /// All encapsulations.
    pub const ALL: [Encapsulation; 4] = [
        Encapsulation::Vxlan,
        Encapsulation::Geneve,
        Encapsulation::Ipip,
        Encapsulation::Gre,
    ];

    /// The IP protocols that identify it by themselves.
    pub fn protocols(self) -> &'static [Protocol] {
        match self {
            Encapsulation::Vxlan | Encapsulation::Geneve => &[],
            Encapsulation::Ipip => &[Protocol(4), Protocol(41)],
            Encapsulation::Gre => &[Protocol(47)],
        }
    }

    /// The UDP destination ports that identify it.
    pub fn ports(self) -> &'static [u16] {
        match self {
            Encapsulation::Vxlan => &[4789, 8472],
            Encapsulation::Geneve => &[6081],
            Encapsulation::Ipip | Encapsulation::Gre => &[],
        }
    }

    /// The encapsulation of a flow, if any.
    pub fn detect(protocol: Protocol, l4: L4) -> Option<Encapsulation> {
        let is_match = |encapsulation: &Encapsulation| match l4 {
            L4::Ports { destination, .. } if protocol == Protocol::UDP => {
                encapsulation.ports().contains(&destination)
            }
            _ => encapsulation.protocols().contains(&protocol),
        };
        Encapsulation::ALL.into_iter().find(is_match)
    }

    /// Its name in lower case, as used in parameters and API responses.
    pub fn name(self) -> &'static str {
        match self {
            Encapsulation::Vxlan => "vxlan",
            Encapsulation::Geneve => "geneve",
            Encapsulation::Ipip => "ipip",
            Encapsulation::Gre => "gre",
        }
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encapsulation::Vxlan => "VXLAN",
            Encapsulation::Geneve => "Geneve",
            Encapsulation::Ipip => "IP in IP",
            Encapsulation::Gre => "GRE",
        })
    }
}

/// A set of encapsulations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encapsulations {
    /// Indexed as [`Encapsulation::ALL`].
    present: [bool; Encapsulation::ALL.len()],
}

impl Encapsulations {
    /// The empty set.
    pub const NONE: Encapsulations = Encapsulations {
        present: [false; 4],
    };
    /// The set of all encapsulations.
    pub const ALL: Encapsulations = Encapsulations { present: [true; 4] };

    /// Whether the set contains an encapsulation.
    pub fn contains(self, encapsulation: Encapsulation) -> bool {
        self.present[encapsulation as usize]
    }

    /// The encapsulations in the set.
    pub fn iter(self) -> impl Iterator<Item = Encapsulation> {
        let all = Encapsulation::ALL.into_iter();
        all.filter(move |encapsulation| self.contains(*encapsulation))
    }

    /// The encapsulations that are not in the set.
    #[must_use]
    pub fn complement(self) -> Encapsulations {
        Encapsulations {
            present: self.present.map(|has| !has),
        }
    }
}

impl FromIterator<Encapsulation> for Encapsulations {
    fn from_iter<I: IntoIterator<Item = Encapsulation>>(all: I) -> Self {
        let mut set = Encapsulations::NONE;
        for encapsulation in all {
            set.present[encapsulation as usize] = true;
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_known_by_protocol_and_destination_port() {
        let ports = |source, destination| L4::Ports {
            source,
            destination,
        };
        for (protocol, l4, expected) in [
            (17, ports(1, 4789), Some(Encapsulation::Vxlan)),
            (17, ports(1, 8472), Some(Encapsulation::Vxlan)),
            (17, ports(1, 6081), Some(Encapsulation::Geneve)),
            (17, ports(4789, 53), None),
            (6, ports(1, 4789), None),
            (132, ports(1, 6081), None),
            (4, L4::None, Some(Encapsulation::Ipip)),
            (41, L4::None, Some(Encapsulation::Ipip)),
            (47, L4::None, Some(Encapsulation::Gre)),
            (50, L4::None, None),
        ] {
            assert_eq!(
                Encapsulation::detect(Protocol(protocol), l4),
                expected,
                "{protocol} {l4:?}"
            );
        }
    }

    #[test]
    fn a_set_and_its_others_are_all() {
        let some: Encapsulations = [Encapsulation::Gre, Encapsulation::Vxlan]
            .into_iter()
            .collect();
        assert!(some.contains(Encapsulation::Gre) && !some.contains(Encapsulation::Ipip));
        let others: Encapsulations = some.complement().iter().collect();
        assert_eq!(others, some.complement());
        assert_eq!(
            some.iter().chain(others.iter()).collect::<Encapsulations>(),
            Encapsulations::ALL
        );
        assert_eq!(Encapsulations::ALL.complement(), Encapsulations::NONE);
    }
}
