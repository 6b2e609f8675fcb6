//! TCP loads: one message to and fro, one connection for each message, one long stream.

use super::place::DatapathLab;
use crate::stopwatch::now;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use palisade_model::Family;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long one burst takes.
const BURST: Duration = Duration::from_millis(150);

/// Sends for a while.
pub(super) trait Load {
    /// The rate that was reached, in the unit of its kind.
    fn burst(&mut self, place: &DatapathLab) -> Result<f64, String>;
}

/// Which end of the traffic.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TrafficSide {
    /// The one that sends, and whose CPU carries packets.
    Load,
    /// The one it speaks to.
    Other,
}

/// Binds the calling thread to the CPU of a side.
pub(super) fn pin(side: TrafficSide) -> Result<(), String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = match side {
        TrafficSide::Load => 0,
        TrafficSide::Other => cpus - 1,
    };
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|errno| format!("binding to CPU {cpu}: {errno}"))
}

fn failed(doing: &str) -> impl Fn(io::Error) -> String + '_ {
    move |error| format!("{doing}: {error}")
}

/// A server that does `serve` with each connection, until the process ends.
fn serve(
    place: &DatapathLab,
    to: SocketAddr,
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let listener = place
        .run_in(TrafficSide::Other, || TcpListener::bind(to))?
        .map_err(failed("listening"))?;
    std::thread::spawn(move || {
        if let Err(error) = pin(TrafficSide::Other) {
            eprintln!("    {error}");
        }
        for stream in listener.incoming().flatten() {
            // An ended connection is the load's to notice.
            let _ = serve(stream);
        }
    });
    Ok(())
}

fn connected(place: &DatapathLab, to: SocketAddr) -> Result<TcpStream, String> {
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(5));
    let stream = place
        .run_in(TrafficSide::Load, connect)?
        .map_err(failed("connecting"))?;
    stream.set_nodelay(true).map_err(failed("connecting"))?;
    Ok(stream)
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

struct Exchange(TcpStream);

/// One byte there and one back, over one connection.
pub(super) fn exchange(place: &DatapathLab, family: Family) -> Result<Box<dyn Load>, String> {
    let to = place.server(family);
    serve(place, to, |mut stream| {
        stream.set_nodelay(true)?;
        let mut byte = [0];
        loop {
            stream.read_exact(&mut byte)?;
            stream.write_all(&byte)?;
        }
    })?;
    Ok(Box::new(Exchange(connected(place, to)?)))
}

impl Load for Exchange {
    fn burst(&mut self, _: &DatapathLab) -> Result<f64, String> {
        let mut byte = [1];
        let (mut count, began) = (0, now());
        while began.elapsed() < BURST {
            self.0.write_all(&byte).map_err(failed("sending"))?;
            self.0.read_exact(&mut byte).map_err(failed("receiving"))?;
            count += 1;
        }
        Ok(rate(count, began.elapsed()))
    }
}

struct Connect(SocketAddr);

/// A connection, one byte there and one back, and its end, again and again.
pub(super) fn connect(place: &DatapathLab, family: Family) -> Result<Box<dyn Load>, String> {
    let to = place.server(family);
    serve(place, to, |mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        // The server closes first: what waits for late packets is not in the client's way.
        stream.write_all(&byte)
    })?;
    Ok(Box::new(Connect(to)))
}

impl Load for Connect {
    fn burst(&mut self, place: &DatapathLab) -> Result<f64, String> {
        place.forget_flows()?;
        let to = self.0;
        let once = move || -> io::Result<()> {
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
            let mut answer = Vec::with_capacity(1);
            stream.write_all(&[1])?;
            match stream.read_to_end(&mut answer)? {
                1 => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        };
        place.run_in(TrafficSide::Load, move || {
            let (mut count, began) = (0, now());
            while began.elapsed() < BURST {
                once().map_err(failed("connecting"))?;
                count += 1;
            }
            Ok(rate(count, began.elapsed()))
        })?
    }
}

struct Bulk {
    stream: TcpStream,
    arrived: Arc<AtomicU64>,
}

/// One stream, as fast as it goes.
pub(super) fn bulk(place: &DatapathLab, family: Family) -> Result<Box<dyn Load>, String> {
    let to = place.server(family);
    let arrived = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&arrived);
    serve(place, to, move |mut stream| {
        let mut buffer = vec![0; 256 << 10];
        loop {
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            count.fetch_add(read as u64, Ordering::Relaxed);
        }
    })?;
    let stream = connected(place, to)?;
    Ok(Box::new(Bulk { stream, arrived }))
}

impl Load for Bulk {
    fn burst(&mut self, _: &DatapathLab) -> Result<f64, String> {
        let buffer = [7; 128 << 10];
        let (before, began) = (self.arrived.load(Ordering::Relaxed), now());
        while began.elapsed() < BURST {
            self.stream.write_all(&buffer).map_err(failed("sending"))?;
        }
        let took = began.elapsed();
        let arrived = self.arrived.load(Ordering::Relaxed) - before;
        Ok(rate(arrived, took) * 8.0 / 1e9)
    }
}
