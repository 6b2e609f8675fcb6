//! Real connections: echo servers, connection attempts, and flows that go on for as long as a test.

use std::io::{self, Read as _, Write as _};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream,
    UdpSocket,
};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, SockaddrStorage, recvfrom, shutdown};
use socket2::{Domain, Protocol, Socket, Type};

use super::packet::fill_checksum;
use super::{Lab, LabError, NodeId, has_ipv6};

/// Every address of both families; of IPv4 where the kernel has nothing else.
fn unspecified() -> IpAddr {
    if has_ipv6() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

fn serve_error(lab: &Lab, node: NodeId, source: io::Error) -> LabError {
    LabError::Namespace {
        doing: "serving in",
        namespace: lab.namespace_name(node).to_owned(),
        source,
    }
}

/// A TCP server that sends back what it gets, on every address of a node, until dropped.
#[derive(Debug)]
pub struct TcpEcho {
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

impl TcpEcho {
    /// Listens on a port of a node, for both families.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the port is taken.
    pub fn start(lab: &Lab, node: NodeId, port: u16) -> Result<Self, LabError> {
        let bound = lab.run_in(node, || TcpListener::bind((unspecified(), port)))?;
        let listener = Arc::new(bound.map_err(|source| serve_error(lab, node, source))?);
        let accepting = Arc::clone(&listener);
        let thread = std::thread::spawn(move || {
            let open = Arc::new(Mutex::new(Vec::new()));
            let mut workers = Vec::new();
            while let Ok((stream, _)) = accepting.accept() {
                let Ok(handle) = stream.try_clone() else {
                    continue;
                };
                open.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(handle);
                workers.push(std::thread::spawn(move || echo(stream)));
            }
            for stream in open
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .drain(..)
            {
                let _ = stream.shutdown(std::net::Shutdown::Both); // closed already, perhaps
            }
            for worker in workers {
                let _ = worker.join(); // it has nothing to tell
            }
        });
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                if stream.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
        }
    }
}

impl Drop for TcpEcho {
    fn drop(&mut self) {
        // On Linux this wakes a thread in accept with an error.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A UDP server that sends back what it gets, until dropped.
#[derive(Debug)]
pub struct UdpEcho {
    socket: Arc<UdpSocket>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UdpEcho {
    /// Serves a port of a node, for both families.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the port is taken.
    pub fn start(lab: &Lab, node: NodeId, port: u16) -> Result<Self, LabError> {
        let bound = lab.run_in(node, || UdpSocket::bind((unspecified(), port)))?;
        let socket = Arc::new(bound.map_err(|source| serve_error(lab, node, source))?);
        let stop = Arc::new(AtomicBool::new(false));
        let (serving, stopped) = (Arc::clone(&socket), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Acquire) {
                // The standard library's own panics where a shutdown wakes it without a sender.
                let received = recvfrom::<SockaddrStorage>(serving.as_raw_fd(), &mut buffer);
                if let Ok((length, Some(from))) = received {
                    let v6 = from
                        .as_sockaddr_in6()
                        .map(|from| SocketAddrV6::from(*from).into());
                    let v4 = from
                        .as_sockaddr_in()
                        .map(|from| SocketAddrV4::from(*from).into());
                    let Some(from) = v6.or(v4) else { continue };
                    let from: SocketAddr = from;
                    let _ = serving.send_to(&buffer[..length], from); // an answer may be refused
                }
            }
        });
        Ok(Self {
            socket,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes a thread in recv even though nothing is connected.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Connects from a node and has one line echoed.
///
/// # Errors
/// What the connection failed with; `TimedOut` where nothing answered in time. A namespace that
/// cannot be entered is an error of the kind `Other`.
pub fn connect(lab: &Lab, from: NodeId, to: SocketAddr, timeout: Duration) -> io::Result<()> {
    let attempt = || {
        let mut stream = TcpStream::connect_timeout(&to, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.write_all(b"ping")?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).map_err(as_timeout)
    };
    lab.run_in(from, attempt).map_err(io::Error::other)?
}

/// Sends a datagram from a node and waits for its echo.
///
/// # Errors
/// `TimedOut` where nothing came back in time; otherwise as [`connect`].
pub fn udp_exchange(lab: &Lab, from: NodeId, to: SocketAddr, timeout: Duration) -> io::Result<()> {
    let attempt = || {
        let any: SocketAddr = if to.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.connect(to)?;
        socket.send(b"ping")?;
        let mut answer = [0; 4];
        socket.recv(&mut answer).map_err(as_timeout)?;
        Ok(())
    };
    lab.run_in(from, attempt).map_err(io::Error::other)?
}

/// Sends an echo request from a node and waits for its reply.
///
/// # Errors
/// `TimedOut` where nothing came back in time; otherwise as [`connect`].
pub fn ping(lab: &Lab, from: NodeId, to: IpAddr, timeout: Duration) -> io::Result<()> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let (domain, protocol, request, reply) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let identifier = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let mut message = [request, 0, 0, 0, identifier[0], identifier[1], 0, 1];
    // Of ICMPv6 the kernel makes the checksum, which covers the source address.
    if to.is_ipv4() {
        fill_checksum(&mut message, to, to, 1);
    }
    let attempt = || {
        let mut socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        socket.connect(&SocketAddr::new(to, 0).into())?;
        socket.send(&message)?;
        let deadline = now() + timeout;
        let mut buffer = [0; 128];
        loop {
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left))?;
            let length = socket.read(&mut buffer).map_err(as_timeout)?;
            let header = match to {
                IpAddr::V4(_) => usize::from(buffer[0] & 15) * 4,
                IpAddr::V6(_) => 0,
            };
            let got = buffer[..length].get(header..).unwrap_or_default();
            if got.first() == Some(&reply) && got.get(4..6) == Some(&identifier) {
                return Ok(());
            }
        }
    };
    lab.run_in(from, attempt).map_err(io::Error::other)?
}

/// A read that ran out of time says `WouldBlock`.
fn as_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::ErrorKind::TimedOut.into();
    }
    error
}

/// What a long flow has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongFlowCounts {
    /// Messages sent.
    pub sent: u64,
    /// Messages whose echo came back, in order.
    pub received: u64,
    /// The longest time between two echoes, the time since the last one included.
    pub longest_silence: Duration,
    /// The time since the last echo.
    pub silent_for: Duration,
    /// Whether the connection has ended, by error or by the other side.
    pub ended: bool,
}

/// A TCP connection that sends a numbered message at a steady pace and reads its echo, until
/// dropped. It never reconnects: a connection that was cut stays cut.
#[derive(Debug)]
pub struct LongFlow {
    shared: Arc<LongFlowState>,
    stream: TcpStream,
    stop: mpsc::Sender<()>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct LongFlowState {
    sent: AtomicU64,
    received: AtomicU64,
    ended: AtomicBool,
    /// When the last echo came, and the longest silence up to then.
    echo: Mutex<(Instant, Duration)>,
}

#[allow(
    clippy::disallowed_methods,
    reason = "a witness of real time: how long traffic stood still"
)]
fn now() -> Instant {
    Instant::now()
}

impl LongFlow {
    /// Connects from a node to an echo server and begins to send, one message every `pace`.
    ///
    /// # Errors
    /// If the connection cannot be made within two seconds, or the namespace entered.
    pub fn start(lab: &Lab, from: NodeId, to: SocketAddr, pace: Duration) -> io::Result<Self> {
        let open = || TcpStream::connect_timeout(&to, Duration::from_secs(2));
        let stream = lab.run_in(from, open).map_err(io::Error::other)??;
        stream.set_nodelay(true)?;
        let shared = Arc::new(LongFlowState {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            echo: Mutex::new((now(), Duration::ZERO)),
        });
        let (stop, stopped) = mpsc::channel();
        let (mut writing, mut reading) = (stream.try_clone()?, stream.try_clone()?);
        let (writer, reader) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            std::thread::spawn(move || {
                while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(pace) {
                    let number = writer.sent.load(Ordering::Relaxed);
                    if writing.write_all(&number.to_be_bytes()).is_err() {
                        writer.ended.store(true, Ordering::Release);
                        return;
                    }
                    writer.sent.store(number + 1, Ordering::Release);
                }
            }),
            std::thread::spawn(move || {
                let mut number = [0; 8];
                for expected in 0_u64.. {
                    let read = reading.read_exact(&mut number);
                    if read.is_err() || u64::from_be_bytes(number) != expected {
                        reader.ended.store(true, Ordering::Release);
                        return;
                    }
                    let mut echo = reader.echo.lock().unwrap_or_else(PoisonError::into_inner);
                    let at = now();
                    *echo = (at, echo.1.max(at.duration_since(echo.0)));
                    reader.received.store(expected + 1, Ordering::Release);
                }
            }),
        ];
        Ok(Self {
            shared,
            stream,
            stop,
            threads,
        })
    }

    /// What the flow has done so far.
    #[must_use]
    pub fn counts(&self) -> LongFlowCounts {
        let echo = self
            .shared
            .echo
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let silent_for = now().duration_since(echo.0);
        LongFlowCounts {
            sent: self.shared.sent.load(Ordering::Acquire),
            received: self.shared.received.load(Ordering::Acquire),
            longest_silence: echo.1.max(silent_for),
            silent_for,
            ended: self.shared.ended.load(Ordering::Acquire),
        }
    }

    /// The flow's own address and port.
    ///
    /// # Errors
    /// If the socket has none any more.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }
}

impl Drop for LongFlow {
    fn drop(&mut self) {
        let _ = self.stop.send(()); // the writer may have ended already
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
