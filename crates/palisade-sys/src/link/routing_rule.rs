//! Rules of routing: which table packets with a mark are routed by.
//!
//! Promises: a rule is read as it was written; a rule with a condition that [`RoutingRule`] does not have is not read as
//! one.
//!
//! Never: reads or writes a route.

use super::types::{AddressFamily, RoutingRule};
use crate::netlink::{AttrWriter, Attrs, WireError};

/// The length of `struct fib_rule_hdr`.
const HEADER_LEN: usize = 12;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
/// Offset in the header: the type of service, which is a condition.
const TOS: usize = 3;
const TABLE: usize = 4;
const ACTION: usize = 7;
const FLAGS: usize = 8;
const FIB_RULE_INVERT: u32 = 2;
/// `FIB_RULE_IIF_DETACHED`: its interface does not exist now.
const FIB_RULE_IIF_DETACHED: u32 = 8;

pub(super) fn write_rule(out: &mut Vec<u8>, rule: &RoutingRule) -> Result<(), WireError> {
    let mut head = [0; HEADER_LEN];
    head[0] = rule.family.number();
    head[TABLE] = u8::try_from(rule.table).unwrap_or(0);
    head[ACTION] = FR_ACT_TO_TBL;
    out.extend_from_slice(&head);
    let mut w = AttrWriter::new(out);
    w.u32(FRA_PRIORITY, rule.priority)
        .u32(FRA_FWMARK, rule.mark.0)
        .u32(FRA_FWMASK, rule.mark.1)
        .u32(FRA_TABLE, rule.table)
        .u8(FRA_PROTOCOL, rule.protocol);
    if let Some(interface) = &rule.interface {
        w.text(FRA_IIFNAME, interface);
    }
    w.finish()
}

pub(super) fn write_rule_dump(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; HEADER_LEN]);
}

/// A rule; `None` for one of another form.
pub(super) fn read_rule(payload: &[u8]) -> Result<Option<RoutingRule>, WireError> {
    let attrs = Attrs::after_header(payload, HEADER_LEN, "routing rule")?;
    let head = &payload[..HEADER_LEN];
    let Some(family) = AddressFamily::from_number(head[0]) else {
        return Ok(None);
    };
    let flags = head.last_chunk::<4>().map_or(0, |b| u32::from_ne_bytes(*b));
    debug_assert_eq!(HEADER_LEN - FLAGS, 4);
    let has_prefix = head[1] != 0 || head[2] != 0;
    if head[ACTION] != FR_ACT_TO_TBL || has_prefix || head[TOS] != 0 || flags & FIB_RULE_INVERT != 0
    {
        return Ok(None);
    }
    let mut rule = RoutingRule {
        family,
        priority: 0,
        interface: None,
        mark: (0, 0),
        table: head[TABLE].into(),
        protocol: 0,
    };
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            FRA_PRIORITY => rule.priority = attr.u32()?,
            FRA_FWMARK => rule.mark.0 = attr.u32()?,
            FRA_FWMASK => rule.mark.1 = attr.u32()?,
            FRA_TABLE => rule.table = attr.u32()?,
            FRA_PROTOCOL => rule.protocol = attr.u8()?,
            FRA_IIFNAME => rule.interface = Some(attr.text()?.to_owned()),
            // Without a value for a table without routes: no condition.
            FRA_SUPPRESS_PREFIXLEN | FRA_SUPPRESS_IFGROUP if attr.u32()? == u32::MAX => {}
            _ => return Ok(None),
        }
    }
    Ok(Some(rule).filter(|_| flags & !(FIB_RULE_IIF_DETACHED | 1) == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        for (family, interface, table) in [
            (AddressFamily::V4, None, 254),
            (AddressFamily::V6, Some("lo".to_owned()), 20_053),
        ] {
            let rule = RoutingRule {
                family,
                priority: 91,
                interface,
                mark: (0x1000_0000, 0x1000_0000),
                table,
                protocol: 112,
            };
            let mut bytes = Vec::new();
            write_rule(&mut bytes, &rule).unwrap();
            assert_eq!(read_rule(&bytes).unwrap(), Some(rule.clone()));
            bytes[FLAGS] |= FIB_RULE_INVERT as u8;
            assert_eq!(read_rule(&bytes).unwrap(), None, "an inverted rule");
            bytes[FLAGS] = 0;
            bytes[2] = 24;
            assert_eq!(read_rule(&bytes).unwrap(), None, "one of a source network");
        }
        assert!(read_rule(&[0; 3]).is_err());
    }

    #[test]
    fn a_rule_reads_like_that_of_ip() {
        let rule = RoutingRule {
            family: AddressFamily::V4,
            priority: 90,
            interface: Some("lo".to_owned()),
            mark: (0x10, 0x30),
            table: 254,
            protocol: 112,
        };
        assert_eq!(
            rule.to_string(),
            "IPv4 pref 90 iif lo fwmark 0x10/0x30 lookup 254"
        );
    }
}
