//! Addresses and the networks around them.
//!
//! Pods live at the low end of two small networks of each family, outsiders beside them and far
//! away; networks are drawn around both so that their edges fall between.

use super::Dice;
use crate::naive::in_cidr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address that a pod may hold.
pub(crate) fn pod_address(v6: bool, number: u8) -> IpAddr {
    let (net, host) = (u16::from(number) / 12, u16::from(number) % 12 + 1);
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, net, 0, 0, 0, host))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 0, net as u8, host as u8))
    }
}

/// How many addresses of a family pods may hold.
pub(crate) const POD_ADDRESSES: usize = 24;

/// An address that no pod ever holds: right beside them, or far away.
pub(crate) fn outside(dice: &mut Dice, v6: bool) -> IpAddr {
    let host = dice.between(1, 8) as u16;
    match (v6, dice.chance(35)) {
        (false, true) => IpAddr::V4(Ipv4Addr::new(10, 0, dice.below(3) as u8, 12 + host as u8)),
        (false, false) => IpAddr::V4(Ipv4Addr::new(198, 51, 100, host as u8)),
        (true, true) => IpAddr::V6(Ipv6Addr::new(
            0xfd00,
            0,
            0,
            dice.below(3) as u16,
            0,
            0,
            0,
            0x10 + host,
        )),
        (true, false) => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host)),
    }
}

/// The address of this number that is far from all pods.
pub(crate) fn far_away(v6: bool, number: u8) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()))
    } else {
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, number))
    }
}

/// Any address of a family, pods' and others.
fn any(dice: &mut Dice, v6: bool) -> IpAddr {
    if dice.chance(50) {
        outside(dice, v6)
    } else {
        let number = dice.below(POD_ADDRESSES) as u8;
        pod_address(v6, number)
    }
}

const LENGTHS_V4: [u8; 12] = [0, 8, 8, 16, 23, 24, 24, 28, 29, 30, 31, 32];
const LENGTHS_V6: [u8; 12] = [0, 7, 16, 48, 63, 64, 64, 124, 125, 126, 127, 128];

/// A network around some address, as text, with its length.
pub(crate) fn network(dice: &mut Dice, v6: bool) -> (String, u8) {
    let length = *dice.pick(if v6 { &LENGTHS_V6 } else { &LENGTHS_V4 });
    (text(any(dice, v6), length), length)
}

/// A network strictly inside another, or none where the other is a single address.
pub(crate) fn subnet(dice: &mut Dice, outer: &str, length: u8, v6: bool) -> Option<String> {
    let lengths: Vec<u8> = if v6 { LENGTHS_V6 } else { LENGTHS_V4 }
        .into_iter()
        .filter(|l| *l > length)
        .collect();
    if lengths.is_empty() {
        return None;
    }
    let inner = *dice.pick(&lengths);
    (0..40)
        .map(|_| any(dice, v6))
        .find(|address| in_cidr(outer, *address))
        .map(|address| text(address, inner))
}

/// A network written by another address in it, or none where it has no other.
pub(crate) fn with_host_bits(dice: &mut Dice, cidr: &str) -> Option<String> {
    let (network, length) = cidr.split_once('/')?;
    let network: IpAddr = network.parse().ok()?;
    let bits = if network.is_ipv6() { 128 } else { 32 };
    let host = bits - length.parse::<u32>().ok()?;
    if host == 0 {
        return None;
    }
    // The low bits are enough to differ in.
    let number = dice.between(1, (1 << host.min(8)) - 1) as u8;
    match network {
        IpAddr::V4(a) => {
            let address = Ipv4Addr::from(u32::from(a) | u32::from(number));
            Some(format!("{address}/{length}"))
        }
        IpAddr::V6(a) => {
            let address = Ipv6Addr::from(u128::from(a) | u128::from(number));
            Some(format!("{address}/{length}"))
        }
    }
}

/// The addresses of the node that all pods run on.
pub const NODE: [&str; 2] = ["198.51.100.1", "2001:db8::1"];

/// The network of this length around an address, host bits clear.
fn text(address: IpAddr, length: u8) -> String {
    match address {
        IpAddr::V4(a) => {
            let kept = u32::MAX.checked_shl(u32::from(32 - length)).unwrap_or(0);
            format!("{}/{length}", Ipv4Addr::from(u32::from(a) & kept))
        }
        IpAddr::V6(a) => {
            let kept = u128::MAX.checked_shl(u32::from(128 - length)).unwrap_or(0);
            format!("{}/{length}", Ipv6Addr::from(u128::from(a) & kept))
        }
    }
}
