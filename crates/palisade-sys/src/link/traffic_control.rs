//! BPF programs as filters of traffic control, at the qdisc `clsact` of an interface. Kernels since 4.5 have them, also
//! where there are no tcx links.
//!
//! A filter says by itself what becomes of a packet (direct action). It stays until it is deleted, or its interface is.
//!
//! Promises: replacing a filter is one step: each packet is seen by the former program or by the new one.
//!
//! Never: deletes a qdisc; changes a filter with another number than the one that is given.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;

use super::types::LinkAction;
use super::{KernelLinks, LinkError};
use crate::Errno;
use crate::bpf::{AttachPoint, BpfProgram};
use crate::netlink::{AttrWriter, Attrs, KernelError, WireError};

const NLM_F_CREATE: u16 = libc::NLM_F_CREATE as u16;
const NLM_F_EXCL: u16 = libc::NLM_F_EXCL as u16;

/// The length of `struct tcmsg`.
const HEADER_LEN: usize = 20;
/// Offsets in it.
const INTERFACE: usize = 4;
const HANDLE: usize = 8;
const PARENT: usize = 12;
const INFO: usize = 16;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;
/// `TCA_BPF_FLAG_ACT_DIRECT`.
const DIRECT_ACTION: u32 = 1;

/// The parent of the qdisc that filters of an interface belong to (`TC_H_CLSACT`).
const FILTER_QDISC: u32 = 0xffff_fff1;
/// The handle that this qdisc has.
const QDISC_HANDLE: u32 = 0xffff_0000;
/// Its classes, which are the parents of filters (`TC_H_MIN_INGRESS`, `TC_H_MIN_EGRESS`).
const INGRESS: u32 = QDISC_HANDLE | 0xfff2;
const EGRESS: u32 = QDISC_HANDLE | 0xfff3;
/// Packets of all protocols (`ETH_P_ALL`).
const ALL_PROTOCOLS: u16 = 3;
/// The qdisc that has filters at both attach points.
const CLSACT: &str = "clsact";
/// The kind of filters that are BPF programs.
const BPF: &str = "bpf";

/// The number of a filter at one attach point of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TcFilterId {
    /// Filters see packets in the order of their priorities; the least one is first.
    pub priority: u16,
    /// Which of this priority; not 0.
    pub handle: u32,
}

/// A filter, as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcFilter {
    /// Its number.
    pub id: TcFilterId,
    /// Its kind, such as `bpf`, `u32` or `flower`.
    pub kind: String,
    /// The name that a BPF program was attached with.
    pub name: Option<String>,
    /// The kernel's number of a BPF program.
    pub program: Option<u32>,
    /// Whether a BPF program says what becomes of a packet.
    pub is_direct_action: bool,
}

fn parent(point: AttachPoint) -> u32 {
    match point {
        AttachPoint::Ingress => INGRESS,
        AttachPoint::Egress => EGRESS,
    }
}

fn header(interface: u32, handle: u32, parent: u32, info: u32) -> [u8; HEADER_LEN] {
    let mut head = [0; HEADER_LEN];
    for (at, value) in [
        (INTERFACE, interface),
        (HANDLE, handle),
        (PARENT, parent),
        (INFO, info),
    ] {
        head[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    head
}

fn word(payload: &[u8], at: usize) -> Result<u32, WireError> {
    let rest = payload.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let bytes = rest.ok_or(WireError::Truncated {
        what: "tc message",
        need: at + 4,
        have: payload.len(),
    })?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn filter_header(interface: u32, point: AttachPoint, id: TcFilterId) -> [u8; HEADER_LEN] {
    let info = u32::from(id.priority) << 16 | u32::from(ALL_PROTOCOLS.to_be());
    header(interface, id.handle, parent(point), info)
}

fn write_filter(
    out: &mut Vec<u8>,
    (interface, point): (u32, AttachPoint),
    id: TcFilterId,
    program: (&BpfProgram, &str),
) -> Result<(), WireError> {
    out.extend_from_slice(&filter_header(interface, point, id));
    let (program, name) = program;
    let fd = program.descriptor().as_raw_fd().cast_unsigned();
    let mut w = AttrWriter::new(out);
    w.text(TCA_KIND, BPF).nest(TCA_OPTIONS, |w| {
        w.u32(TCA_BPF_FD, fd)
            .text(TCA_BPF_NAME, name)
            .u32(TCA_BPF_FLAGS, DIRECT_ACTION);
    });
    w.finish()
}

/// A filter; `None` for what the kernel tells of all filters of one priority.
fn read_filter(payload: &[u8]) -> Result<Option<TcFilter>, WireError> {
    let attrs = Attrs::after_header(payload, HEADER_LEN, "tc filter")?;
    let mut filter = TcFilter {
        id: TcFilterId {
            priority: (word(payload, INFO)? >> 16) as u16,
            handle: word(payload, HANDLE)?,
        },
        kind: String::new(),
        name: None,
        program: None,
        is_direct_action: false,
    };
    if filter.id.handle == 0 {
        return Ok(None);
    }
    filter.kind = attrs.require(TCA_KIND, "tc filter")?.text()?.to_owned();
    if let Some(options) = attrs.find(TCA_OPTIONS)?
        && filter.kind == BPF
    {
        for attr in options.nested() {
            let attr = attr?;
            match attr.kind {
                TCA_BPF_NAME => filter.name = Some(attr.text()?.to_owned()),
                TCA_BPF_ID => filter.program = Some(attr.u32()?),
                TCA_BPF_FLAGS => filter.is_direct_action = attr.u32()? & DIRECT_ACTION != 0,
                _ => {}
            }
        }
    }
    Ok(Some(filter))
}

/// The interface of a qdisc that filters belong to, and its kind; `None` for another qdisc.
fn read_filter_qdisc(payload: &[u8]) -> Result<Option<(u32, String)>, WireError> {
    let attrs = Attrs::after_header(payload, HEADER_LEN, "qdisc")?;
    if word(payload, PARENT)? != FILTER_QDISC {
        return Ok(None);
    }
    let kind = attrs.require(TCA_KIND, "qdisc")?.text()?.to_owned();
    Ok(Some((word(payload, INTERFACE)?, kind)))
}

/// Filters of traffic control; each fails with [`LinkError::Refused`]. Interfaces are given by their indexes.
impl KernelLinks {
    /// Adds the qdisc `clsact`, unless the interface has it, or `ingress`, whose place it would take.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface, `ENOENT` if the kernel has no such qdisc.
    pub fn add_clsact(&mut self, interface: u32) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::AddClsact(interface),
            |this| {
                let added = this.change(libc::RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, |out| {
                    out.extend_from_slice(&header(interface, QDISC_HANDLE, FILTER_QDISC, 0));
                    let mut w = AttrWriter::new(out);
                    w.text(TCA_KIND, CLSACT);
                    w.finish()
                });
                match added {
                    Err(error) if error.errno == Errno::EEXIST => Ok(()),
                    added => added,
                }
            },
        )
    }

    /// The interfaces that may have filters at their attach points, each with the kind of the qdisc that these belong to:
    /// `clsact`, or `ingress`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn filter_qdiscs(&mut self) -> Result<BTreeMap<u32, String>, LinkError> {
        self.with_action(
            || LinkAction::List("qdiscs"),
            |this| {
                // One alone is told to all who listen, not to who asks.
                let found = this.socket.dump(
                    libc::RTM_GETQDISC,
                    |out| out.extend_from_slice(&header(0, 0, 0, 0)),
                    |message| read_filter_qdisc(&message.payload),
                );
                match found {
                    Ok(found) => Ok(found.into_iter().collect()),
                    // A kernel without traffic control.
                    Err(error) if error.errno == Errno::EOPNOTSUPP => Ok(BTreeMap::new()),
                    Err(error) => Err(error),
                }
            },
        )
    }

    /// Adds a program of this name as a filter that says what becomes of a packet.
    ///
    /// # Errors
    /// `EEXIST` if there is one with this number; `ENODEV` if there is no such interface, `EINVAL` if it has no `clsact`,
    /// `ENOENT` if the kernel has no such filters.
    pub fn add_filter(
        &mut self,
        interface: u32,
        point: AttachPoint,
        id: TcFilterId,
        program: (&BpfProgram, &str),
    ) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::AddFilter(interface, point),
            |this| {
                this.change(libc::RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, |out| {
                    write_filter(out, (interface, point), id, program)
                })
            },
        )
    }

    /// Replaces the program of a filter, and its name; whether there was the filter.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn replace_filter(
        &mut self,
        interface: u32,
        point: AttachPoint,
        id: TcFilterId,
        program: (&BpfProgram, &str),
    ) -> Result<bool, LinkError> {
        self.with_action(
            || LinkAction::ReplaceFilter(interface, point),
            |this| {
                let replaced = this.change(libc::RTM_NEWTFILTER, 0, |out| {
                    write_filter(out, (interface, point), id, program)
                });
                this.existed(replaced, (interface, point), id)
            },
        )
    }

    /// Deletes a filter; whether there was one. The qdisc stays.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn delete_filter(
        &mut self,
        interface: u32,
        point: AttachPoint,
        id: TcFilterId,
    ) -> Result<bool, LinkError> {
        self.with_action(
            || LinkAction::DeleteFilter(interface, point),
            |this| {
                let deleted = this.change(libc::RTM_DELTFILTER, 0, |out| {
                    out.extend_from_slice(&filter_header(interface, point, id));
                    let mut w = AttrWriter::new(out);
                    w.text(TCA_KIND, BPF);
                    w.finish()
                });
                this.existed(deleted, (interface, point), id)
            },
        )
    }

    /// The filters of an interface; none if there is no such interface.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn filters(
        &mut self,
        interface: u32,
        point: AttachPoint,
    ) -> Result<Vec<TcFilter>, LinkError> {
        self.with_action(
            || LinkAction::ListFilters(interface, point),
            |this| this.all_filters((interface, point)),
        )
    }

    fn all_filters(
        &mut self,
        (interface, point): (u32, AttachPoint),
    ) -> Result<Vec<TcFilter>, KernelError> {
        self.socket.dump(
            libc::RTM_GETTFILTER,
            |out| out.extend_from_slice(&header(interface, 0, parent(point), 0)),
            |message| read_filter(&message.payload),
        )
    }

    /// Whether there was the filter that a change was for.
    fn existed(
        &mut self,
        change: Result<(), KernelError>,
        place: (u32, AttachPoint),
        id: TcFilterId,
    ) -> Result<bool, KernelError> {
        match change {
            Ok(()) => Ok(true),
            Err(error) if [Errno::ENOENT, Errno::ENODEV].contains(&error.errno) => Ok(false),
            // So answers an interface without the qdisc; and others do.
            Err(error) if error.errno == Errno::EINVAL => {
                let filters = self.all_filters(place)?;
                if filters.iter().any(|filter| filter.id == id) {
                    Err(error)
                } else {
                    Ok(false)
                }
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TcFilterId = TcFilterId {
        priority: 1,
        handle: 0x7a1,
    };

    #[test]
    fn filters_are_read_with_their_programs_and_without() {
        let mut bytes = filter_header(7, AttachPoint::Egress, ID).to_vec();
        assert!(read_filter(&bytes).is_err(), "without a kind");
        let mut w = AttrWriter::new(&mut bytes);
        w.text(TCA_KIND, "bpf").nest(TCA_OPTIONS, |w| {
            w.text(TCA_BPF_NAME, "one")
                .u32(TCA_BPF_ID, 9)
                .u32(TCA_BPF_FLAGS, DIRECT_ACTION);
        });
        w.finish().unwrap();
        let expected = TcFilter {
            id: ID,
            kind: "bpf".to_owned(),
            name: Some("one".to_owned()),
            program: Some(9),
            is_direct_action: true,
        };
        assert_eq!(read_filter(&bytes).unwrap(), Some(expected));
        bytes[HANDLE..HANDLE + 4].fill(0);
        assert_eq!(read_filter(&bytes).unwrap(), None, "of a priority");
        let mut other = filter_header(7, AttachPoint::Ingress, ID).to_vec();
        let mut w = AttrWriter::new(&mut other);
        w.text(TCA_KIND, "u32").u32(TCA_OPTIONS, 1);
        w.finish().unwrap();
        let other = read_filter(&other).unwrap().unwrap();
        assert_eq!((other.kind.as_str(), other.program), ("u32", None));
        assert!(read_filter(&[0; 9]).is_err());
    }

    #[test]
    fn only_qdiscs_of_filters_are_read() {
        for (parent, expected) in [
            (FILTER_QDISC, Some((3, CLSACT.to_owned()))),
            (u32::MAX, None),
        ] {
            let mut bytes = header(3, QDISC_HANDLE, parent, 1).to_vec();
            let mut w = AttrWriter::new(&mut bytes);
            w.text(TCA_KIND, CLSACT);
            w.finish().unwrap();
            assert_eq!(read_filter_qdisc(&bytes).unwrap(), expected);
        }
    }
}
