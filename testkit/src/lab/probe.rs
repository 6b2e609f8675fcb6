//! Did it arrive? Real packets, many at once, judged exactly.
//!
//! The sender's raw sockets put whole packets into the sender's namespace; packet sockets in the
//! receivers' namespaces see what reaches their interfaces, before their own stacks. For the host
//! that would be before its rules, so there raw sockets see what its rules let in.
//!
//! Nothing is guessed from time. All packets of a batch, and then a *mark*, are sent from one CPU,
//! whose receive queue is first in, first out; the mark crosses a link of its own that no rule of
//! the host sees. A packet crosses at most two or three links, and each round of the mark passes
//! the queue once, so after [`ROUNDS`] rounds what has not arrived will not arrive. A queue that
//! overflowed in the meantime shows in the kernel's own count, and then the missing are sent again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::socket::{LinkAddr, recvfrom, setsockopt, sockopt};
use nix::unistd::Pid;
use socket2::{Domain, Protocol, Socket, Type};

use super::craft::CraftedPacket;
use super::packet::{PacketKind, ProbeFlow, build_packet, find_token, packet_kind, payload_kind};
use super::{HOST, Lab, LabError, MARK, NodeId, OUTSIDE};

/// The addresses of the two ends of the mark's link: in outside and in mark.
pub(super) const MARK_ADDRESSES: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd70, 0x616c, 0, 0, 0, 0, 0, 0),
    Ipv6Addr::new(0xfd70, 0x616c, 0, 0, 0, 0, 0, 1),
];
const MARK_PORT: u16 = 9;
/// How often the mark passes the queue: more than the links any packet crosses.
const ROUNDS: usize = 5;
/// Packets in flight at once: far below the kernel's receive queue of 1,000.
const BATCH: usize = 64;
/// How often a batch is repeated where the kernel's queue overflowed.
const ATTEMPTS: usize = 5;
/// How long a mark may take before the lab is called broken; it takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);
const ETH_P_ALL: u16 = 3;
const IPPROTO_RAW: i32 = 255;
const RECEIVE_BUFFER: usize = 8 << 20;

/// Why a batch could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A node's namespace could not be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A socket could not be made or set up.
    #[error("opening the prober's sockets in {node}: {source}")]
    Open {
        /// The node's name.
        node: String,
        /// What the system said.
        source: io::Error,
    },
    /// A packet was refused by the sender's own stack, as where there is no route.
    #[error("sending {flow:?}: {source}")]
    Send {
        /// The flow.
        flow: ProbeFlow,
        /// What the system said.
        source: io::Error,
    },
    /// A packet made by hand was refused.
    #[error("sending a packet made by hand to {to}: {source}")]
    SendCrafted {
        /// Where to.
        to: IpAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A packet could not be received.
    #[error("receiving in {node}: {source}")]
    Receive {
        /// The node's name.
        node: String,
        /// What the system said.
        source: io::Error,
    },
    /// The sender has no address of the destination's family.
    #[error("{0:?}: the sender has no address of that family")]
    Family(ProbeFlow),
    /// A packet reached a node that is not the flow's receiver.
    #[error("{flow:?} reached {node}")]
    Misrouted {
        /// The flow.
        flow: ProbeFlow,
        /// Where it was seen.
        node: String,
    },
    /// The mark did not come through: the lab is broken, or the machine stands still.
    #[error("the mark did not come through within {PATIENCE:?}: {0}")]
    Mark(io::Error),
    /// The kernel's receive queue overflowed each time.
    #[error("the kernel dropped packets of {ATTEMPTS} batches for want of room")]
    Overloaded,
}

/// The prober's sockets, kept from batch to batch; each belongs to the namespace it was made in.
#[derive(Debug, Default)]
pub(super) struct ProbeSockets {
    nodes: BTreeMap<NodeId, NodeSockets>,
    /// What the host's rules let in, by IP version and protocol.
    host_raw: BTreeMap<(bool, u8), Socket>,
    mark: Option<[UdpSocket; 2]>,
    next: u64,
}

#[derive(Debug)]
struct NodeSockets {
    send_v4: Socket,
    send_v6: Socket,
    /// Not on the host, where a packet would be seen before the rules judge it.
    capture: Option<Socket>,
}

impl ProbeSockets {
    /// Closes a node's sockets, which would keep its namespace alive.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Closes every socket.
    pub(super) fn clear(&mut self) {
        *self = Self {
            next: self.next,
            ..Self::default()
        };
    }
}

/// Sends each flow's packet and says, in the same order, which ones reached their receivers.
///
/// Packets leave in the order of `flows`, in batches; answers of the receivers' stacks (resets,
/// echo replies, ICMP errors) flow as they would. A flow with a given source port that was seen
/// before is the same flow to connection tracking: see [`Lab::flush_conntrack`].
///
/// # Errors
/// If a batch cannot be judged exactly; see [`ProbeError`].
pub fn probe(lab: &Lab, flows: &[ProbeFlow]) -> Result<Vec<bool>, ProbeError> {
    let mut sockets = lab.lock_sockets();
    let sockets = &mut *sockets;
    open_missing(lab, sockets, flows)?;
    std::thread::scope(|scope| {
        let judge = || {
            pin_thread().map_err(|source| ProbeError::Open {
                node: "this CPU".to_owned(),
                source,
            })?;
            let mut arrived = Vec::with_capacity(flows.len());
            for batch in flows.chunks(BATCH) {
                arrived.extend(probe_batch(lab, sockets, batch)?);
            }
            Ok(arrived)
        };
        match scope.spawn(judge).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn probe_batch(
    lab: &Lab,
    sockets: &mut ProbeSockets,
    flows: &[ProbeFlow],
) -> Result<Vec<bool>, ProbeError> {
    let mut arrived = vec![false; flows.len()];
    for _ in 0..ATTEMPTS {
        let dropped = kernel_drops();
        drain(lab, sockets, &mut |_, _, _| Ok(()))?; // of what came since the last batch
        let first = sockets.next;
        sockets.next += flows.len() as u64;
        for (at, flow) in flows.iter().enumerate() {
            if !arrived[at] {
                send(lab, sockets, flow, first + at as u64)?;
            }
        }
        send_barrier(lab, sockets)?;
        drain(lab, sockets, &mut |node, seen, number| {
            let at = number.checked_sub(first).and_then(|at| at.try_into().ok());
            let Some((at, flow)) = at.and_then(|at: usize| Some((at, flows.get(at)?))) else {
                return Ok(());
            };
            // An echo or a quote of the probe carries its number too, but is another kind.
            if !is_kind_of_flow(seen, flow) {
                return Ok(());
            }
            if node != flow.receiver {
                // Passing by: the host routes, and the sender may be the host.
                return Err(ProbeError::Misrouted {
                    flow: flow.clone(),
                    node: lab.name(node).to_owned(),
                });
            }
            arrived[at] = true;
            Ok(())
        })?;
        if arrived.iter().all(|arrived| *arrived) || kernel_drops() == dropped {
            return Ok(arrived);
        }
    }
    Err(ProbeError::Overloaded)
}

fn is_kind_of_flow(seen: PacketKind, flow: &ProbeFlow) -> bool {
    let icmp = match flow.l4 {
        super::ProbeL4::Icmp { icmp_type, code } => Some((icmp_type, code)),
        _ => None,
    };
    let (protocol, seen_icmp) = seen;
    protocol == flow.l4.protocol(flow.to) && (icmp.is_none() || icmp == seen_icmp)
}

fn send(
    lab: &Lab,
    sockets: &ProbeSockets,
    flow: &ProbeFlow,
    number: u64,
) -> Result<(), ProbeError> {
    let source = flow
        .source
        .or_else(|| lab.address_of_family(flow.from, flow.to));
    let source = source.ok_or_else(|| ProbeError::Family(flow.clone()))?;
    let bytes = build_packet(source, flow.to, flow.l4, number);
    let Some(node) = sockets.nodes.get(&flow.from) else {
        return Err(ProbeError::Family(flow.clone()));
    };
    let socket = if flow.to.is_ipv4() {
        &node.send_v4
    } else {
        &node.send_v6
    };
    match socket.send_to(&bytes, &SocketAddr::new(flow.to, 0).into()) {
        Ok(_) => Ok(()),
        // A rule on the sender's own way out says no.
        Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => Ok(()),
        Err(source) => Err(ProbeError::Send {
            flow: flow.clone(),
            source,
        }),
    }
}

fn send_barrier(lab: &Lab, sockets: &mut ProbeSockets) -> Result<(), ProbeError> {
    if sockets.mark.is_none() {
        let [near, far] = MARK_ADDRESSES;
        let open = |address| UdpSocket::bind((address, MARK_PORT));
        let near = lab.run_in(OUTSIDE, || open(near))?;
        let far = lab.run_in(MARK, || open(far))?;
        let (near, far) = (
            near.map_err(ProbeError::Mark)?,
            far.map_err(ProbeError::Mark)?,
        );
        far.set_read_timeout(Some(PATIENCE))
            .map_err(ProbeError::Mark)?;
        sockets.mark = Some([near, far]);
    }
    let Some([near, far]) = &sockets.mark else {
        return Ok(());
    };
    for _ in 0..ROUNDS {
        sockets.next += 1;
        let number = sockets.next.to_be_bytes();
        near.send_to(&number, (MARK_ADDRESSES[1], MARK_PORT))
            .map_err(ProbeError::Mark)?;
        let mut seen = [0; 8];
        while seen != number {
            far.recv(&mut seen).map_err(ProbeError::Mark)?;
        }
    }
    Ok(())
}

/// Sends packets made by hand, in order, and says which ones reached their receivers: those whose
/// last sixteen bytes, which must be a packet's own, came in there. At most 64 at once.
///
/// # Errors
/// If it cannot be told exactly; see [`ProbeError`].
pub fn send_crafted_packets(lab: &Lab, packets: &[CraftedPacket]) -> Result<Vec<bool>, ProbeError> {
    let mut sockets = lab.lock_sockets();
    let sockets = &mut *sockets;
    for node in packets
        .iter()
        .flat_map(|packet| [packet.from, packet.receiver])
    {
        if let Entry::Vacant(vacant) = sockets.nodes.entry(node) {
            let opened = lab.run_in(node, || open_node(node != HOST))?;
            vacant.insert(opened.map_err(|source| ProbeError::Open {
                node: lab.name(node).to_owned(),
                source,
            })?);
        }
    }
    std::thread::scope(|scope| {
        let judge = || {
            pin_thread().map_err(ProbeError::Mark)?;
            drain(lab, sockets, &mut |_, _, _| Ok(()))?;
            for packet in packets {
                send_crafted(sockets, packet)?;
            }
            send_barrier(lab, sockets)?;
            let mut seen = Vec::new();
            read_captures(lab, sockets, &mut |node, bytes| {
                seen.push((node, bytes.to_vec()))
            })?;
            let tail = |bytes: &[u8]| bytes.last_chunk::<16>().copied();
            let arrived = packets.iter().map(|packet| {
                let is = |(node, bytes): &(NodeId, Vec<u8>)| {
                    *node == packet.receiver && tail(bytes) == tail(&packet.bytes)
                };
                seen.iter().any(is)
            });
            Ok(arrived.collect())
        };
        match scope.spawn(judge).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn send_crafted(sockets: &ProbeSockets, packet: &CraftedPacket) -> Result<(), ProbeError> {
    let Some(node) = sockets.nodes.get(&packet.from) else {
        return Ok(());
    };
    let to = packet.destination();
    let socket = if to.is_ipv4() {
        &node.send_v4
    } else {
        &node.send_v6
    };
    match socket.send_to(&packet.bytes, &SocketAddr::new(to, 0).into()) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => Ok(()),
        Err(source) => Err(ProbeError::SendCrafted { to, source }),
    }
}

/// Everything that came in at the nodes since the last look.
fn read_captures(
    lab: &Lab,
    sockets: &ProbeSockets,
    see: &mut dyn FnMut(NodeId, &[u8]),
) -> Result<(), ProbeError> {
    const OUTGOING: u8 = 4; // PACKET_OUTGOING
    let mut buffer = [0; 4096];
    for (&node, own) in &sockets.nodes {
        let Some(capture) = &own.capture else {
            continue;
        };
        while let Some((length, from)) = receive(lab, node, capture.as_raw_fd(), &mut buffer)? {
            if from.is_none_or(|from| from.pkttype() != OUTGOING) {
                see(node, &buffer[..length]);
            }
        }
    }
    Ok(())
}

type OnPacket<'a> = &'a mut dyn FnMut(NodeId, PacketKind, u64) -> Result<(), ProbeError>;

fn drain(lab: &Lab, sockets: &ProbeSockets, see: OnPacket<'_>) -> Result<(), ProbeError> {
    const OUTGOING: u8 = 4; // PACKET_OUTGOING
    const OTHER_HOST: u8 = 3; // PACKET_OTHERHOST
    let mut buffer = [0; 2048];
    for (&node, own) in &sockets.nodes {
        let Some(capture) = &own.capture else {
            continue;
        };
        let fd = capture.as_raw_fd();
        while let Some((length, from)) = receive(lab, node, fd, &mut buffer)? {
            let packet = &buffer[..length];
            let outward = from.is_some_and(|from| [OUTGOING, OTHER_HOST].contains(&from.pkttype()));
            if let (false, Some(kind), Some(number)) =
                (outward, packet_kind(packet), find_token(packet))
            {
                see(node, kind, number)?;
            }
        }
    }
    for (&(is_v4, protocol), socket) in &sockets.host_raw {
        while let Some((length, _)) = receive(lab, HOST, socket.as_raw_fd(), &mut buffer)? {
            let packet = &buffer[..length];
            let kind = if is_v4 {
                packet_kind(packet)
            } else {
                payload_kind(protocol, packet)
            };
            if let (Some(kind), Some(number)) = (kind, find_token(packet)) {
                see(HOST, kind, number)?;
            }
        }
    }
    Ok(())
}

type ReceivedPacket = Option<(usize, Option<LinkAddr>)>;

fn receive(
    lab: &Lab,
    node: NodeId,
    fd: i32,
    buffer: &mut [u8],
) -> Result<ReceivedPacket, ProbeError> {
    loop {
        match recvfrom::<LinkAddr>(fd, buffer) {
            Ok(received) => return Ok(Some(received)),
            Err(Errno::EAGAIN) => return Ok(None),
            // The interface went down or away under the socket; what was queued is still there.
            Err(Errno::EINTR | Errno::ENETDOWN) => {}
            Err(errno) => {
                return Err(ProbeError::Receive {
                    node: lab.name(node).to_owned(),
                    source: errno.into(),
                });
            }
        }
    }
}

fn open_missing(
    lab: &Lab,
    sockets: &mut ProbeSockets,
    flows: &[ProbeFlow],
) -> Result<(), ProbeError> {
    let opening = |node: NodeId| {
        move |source| ProbeError::Open {
            node: lab.name(node).to_owned(),
            source,
        }
    };
    for flow in flows {
        for node in [flow.from, flow.receiver] {
            if let Entry::Vacant(vacant) = sockets.nodes.entry(node) {
                let opened = lab.run_in(node, || open_node(node != HOST))?;
                vacant.insert(opened.map_err(opening(node))?);
            }
        }
        let key = (flow.to.is_ipv4(), flow.l4.protocol(flow.to));
        if flow.receiver != HOST {
            continue;
        }
        if let Entry::Vacant(vacant) = sockets.host_raw.entry(key) {
            let opened = lab.run_in(HOST, || open_raw(key.0, i32::from(key.1)))?;
            vacant.insert(opened.map_err(opening(HOST))?);
        }
    }
    Ok(())
}

fn open_node(captures: bool) -> io::Result<NodeSockets> {
    Ok(NodeSockets {
        send_v4: open_raw(true, IPPROTO_RAW)?,
        send_v6: open_raw(false, IPPROTO_RAW)?,
        capture: captures.then(open_capture).transpose()?,
    })
}

pub(super) fn open_capture() -> io::Result<Socket> {
    // Without link-layer headers: what arrives begins with the IP header.
    let every = Protocol::from(i32::from(ETH_P_ALL.to_be()));
    let capture = Socket::new(Domain::PACKET, Type::DGRAM, Some(every))?;
    prepare(&capture)?;
    Ok(capture)
}

pub(super) fn open_raw(is_v4: bool, protocol: i32) -> io::Result<Socket> {
    let domain = if is_v4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(protocol)))?;
    prepare(&socket)?;
    Ok(socket)
}

fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    setsockopt(socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
    Ok(())
}

/// Keeps the calling thread on one CPU, so that what it sends stays in order.
fn pin_thread() -> io::Result<()> {
    let own = Pid::from_raw(0);
    let allowed = sched_getaffinity(own)?;
    let allowed: Vec<_> = (0..CpuSet::count())
        .filter(|&cpu| allowed.is_set(cpu).unwrap_or(false))
        .collect();
    // Different processes, and different threads of one, on different CPUs.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = std::process::id() as usize + NEXT.fetch_add(1, Ordering::Relaxed);
    let chosen = allowed.get(number % allowed.len().max(1));
    let mut one = CpuSet::new();
    one.set(*chosen.unwrap_or(&0))?;
    sched_setaffinity(own, &one)?;
    Ok(())
}

/// Packets that the kernel dropped so far because a CPU's receive queue was full, by CPU.
#[must_use]
pub fn kernel_drops() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let dropped = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    table.lines().filter_map(dropped).collect()
}
