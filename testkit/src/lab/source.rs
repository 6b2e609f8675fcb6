//! Connections on which the server speaks first, and the client never.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Lab, LabError, NodeId};

/// A TCP server that sends numbers, one after the other, to everyone who connects, until dropped.
#[derive(Debug)]
pub struct TcpSource {
    listener: Arc<TcpListener>,
    stop: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl TcpSource {
    /// Listens on a port of a node, for both families; a number goes out every `pace`.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the port is taken.
    pub fn start(lab: &Lab, node: NodeId, port: u16, pace: Duration) -> Result<Self, LabError> {
        let bound = lab.run_in(node, || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))?;
        let listener = Arc::new(bound.map_err(|source| LabError::Namespace {
            doing: "serving in",
            namespace: lab.namespace_name(node).to_owned(),
            source,
        })?);
        let stop = Arc::new(AtomicBool::new(false));
        let open = Arc::new(Mutex::new(Vec::new()));
        let (accepting, stopped, streams) = (listener.clone(), stop.clone(), open.clone());
        let thread = std::thread::spawn(move || {
            let mut workers = Vec::new();
            while let Ok((stream, _)) = accepting.accept() {
                if let Ok(handle) = stream.try_clone() {
                    let mut open = streams.lock().unwrap_or_else(PoisonError::into_inner);
                    open.push(handle);
                }
                let stopped = stopped.clone();
                workers.push(std::thread::spawn(move || {
                    send_stream(stream, &stopped, pace)
                }));
            }
            for worker in workers {
                let _ = worker.join(); // it has nothing to tell
            }
        });
        Ok(Self {
            listener,
            stop,
            open,
            thread: Some(thread),
        })
    }
}

fn send_stream(mut stream: TcpStream, stop: &AtomicBool, pace: Duration) {
    for number in 0_u64.. {
        let gone = stream.write_all(&number.to_be_bytes()).is_err();
        if gone || stop.load(Ordering::Acquire) {
            return;
        }
        #[allow(clippy::disallowed_methods, reason = "the stream's own pace")]
        std::thread::sleep(pace);
    }
}

impl Drop for TcpSource {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in open.iter() {
            let _ = stream.shutdown(Shutdown::Both); // closed already, perhaps
        }
        drop(open);
        // On Linux this wakes a thread in accept with an error.
        let _ =
            nix::sys::socket::shutdown(self.listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection to a [`TcpSource`] that only listens, until dropped.
#[derive(Debug)]
pub struct TcpTail {
    received: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl TcpTail {
    /// Connects from a node.
    ///
    /// # Errors
    /// If the connection cannot be made within two seconds, or the namespace entered.
    pub fn start(lab: &Lab, from: NodeId, to: SocketAddr) -> io::Result<Self> {
        let open = || TcpStream::connect_timeout(&to, Duration::from_secs(2));
        let stream = lab.run_in(from, open).map_err(io::Error::other)??;
        let received = Arc::new(AtomicU64::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let (count, end, mut reading) = (received.clone(), ended.clone(), stream.try_clone()?);
        let thread = std::thread::spawn(move || {
            let mut number = [0; 8];
            for expected in 0_u64.. {
                let read = reading.read_exact(&mut number);
                if read.is_err() || u64::from_be_bytes(number) != expected {
                    end.store(true, Ordering::Release);
                    return;
                }
                count.store(expected + 1, Ordering::Release);
            }
        });
        Ok(Self {
            received,
            ended,
            stream,
            thread: Some(thread),
        })
    }

    /// How many numbers came, all in order.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// Whether the connection has ended, by error or by the other side.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl Drop for TcpTail {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
