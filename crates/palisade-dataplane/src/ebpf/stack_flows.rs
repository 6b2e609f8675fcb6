//! The flows that the stack delivers already when programs are attached: their answers are to go by it as well, since it
//! may translate them. The program that sees what goes to a workload remembers them; it is run on one packet of each.
//!
//! Never: sends a packet.

use std::net::IpAddr;

use palisade_bpf::FastPathMaps;
use palisade_sys::conntrack::{
    Conntrack as _, ConntrackFilter, ConntrackTuple, KernelConntrack, TupleProto,
};
use palisade_sys::netns::NetNs;

use super::error::FastPathError;

/// IP protocol numbers.
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Has the programs know all flows of UDP and ICMP that connection tracking knows, between ends that take part.
pub(super) fn record_stack_flows(
    maps: &FastPathMaps,
    netns: &NetNs,
    take_part: impl Fn(IpAddr, IpAddr) -> bool,
) -> Result<(), FastPathError> {
    let program = maps.loaded().program("to_pod");
    let program = program.ok_or(FastPathError::Missing("to_pod"))?;
    let entries = KernelConntrack::open(netns)?.entries(&ConntrackFilter::default())?;
    for entry in entries {
        // What answers is sent, in the direction in which the receiver sees it.
        let answer = entry.reply;
        if !take_part(answer.source, answer.destination) {
            continue;
        }
        if let Some(frame) = frame_of_question(&answer) {
            program.test_run(&frame, &[], 1)?;
        }
    }
    Ok(())
}

/// The packet that an answer is to, as it arrives at who answers; `None` for protocols that begin flows by themselves.
fn frame_of_question(answer: &ConntrackTuple) -> Option<Vec<u8>> {
    let header = match (answer.protocol, answer.proto) {
        (UDP, TupleProto::Ports(from, to)) => {
            [to.to_be_bytes(), from.to_be_bytes(), [0, 8], [0, 0]].concat()
        }
        (ICMP, TupleProto::Icmp { kind, id, .. }) => {
            // The request of each answer (RFC 792, RFC 950).
            let request = match kind {
                0 => 8,
                14 => 13,
                16 => 15,
                18 => 17,
                _ => return None,
            };
            [[request, 0], [0, 0], id.to_be_bytes(), [0, 1]].concat()
        }
        (ICMPV6, TupleProto::Icmp { kind: 129, id, .. }) => {
            [[128, 0], [0, 0], id.to_be_bytes(), [0, 1]].concat()
        }
        _ => return None,
    };
    let mut frame = vec![0; 12];
    match (answer.destination, answer.source) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = 20 + header.len() as u16;
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, answer.protocol, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((header.len() as u16).to_be_bytes());
            frame.extend([answer.protocol, 64]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        _ => return None,
    }
    frame.extend(header);
    Some(frame)
}
