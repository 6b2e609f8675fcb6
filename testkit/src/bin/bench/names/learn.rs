//! From the answer of the server to its release, with its address in the kernel.

use super::client::percentile;
use super::responder::{address, query};
use super::site::{NamesSite, PORT};
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::stopwatch::now;
use std::net::UdpSocket;
use std::time::Duration;

/// Names that are asked for, one after the other.
const NAMES: u32 = 500;
/// How long an answer, or the first packet after it, may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The percentiles.
const PERCENTILES: [usize; 2] = [50, 99];

/// Each name once, so that its address is new, and then again. After each answer the workload sends at once to the
/// address: the packet has to arrive.
pub(super) fn case() -> BenchCase {
    let name = "names/learn";
    let mut figures = Vec::new();
    for of in ["", "/known"] {
        for percent in PERCENTILES {
            figures.push(Figure::of(format!("{name}{of}/p{percent}"), "ms"));
        }
    }
    BenchCase {
        name: name.to_owned(),
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 1,
        measure: Box::new(|_, samples| measure(samples)),
    }
}

fn measure(samples: &mut Samples<'_>) -> Result<(), String> {
    let site = NamesSite::enforced()?;
    let inside = |node, at: &str, port| {
        let open = || {
            let socket = UdpSocket::bind((at, port))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok::<_, std::io::Error>(socket)
        };
        let socket = site.lab.run_in(node, open);
        let socket = socket.map_err(|error| error.to_string())?;
        socket.map_err(|error| format!("opening a socket: {error}"))
    };
    let resolver = site.open()?;
    let timed = resolver.set_read_timeout(Some(PATIENCE));
    timed.map_err(|error| error.to_string())?;
    let sender = inside(site.client, "0.0.0.0", 0)?;
    let receiver = inside(site.lab.outside(), "0.0.0.0", PORT)?;
    for _ in 0..2 {
        let mut took = Vec::new();
        for number in 0..NAMES {
            took.push(ask(&site, &resolver, number)?);
            send(&sender, &receiver, number)?;
        }
        for percent in PERCENTILES {
            samples(vec![percentile(&mut took, percent)]);
        }
    }
    Ok(())
}

/// Asks for a name; how long the answer was on its way.
fn ask(site: &NamesSite, resolver: &UdpSocket, number: u32) -> Result<Duration, String> {
    let failed = |error| format!("asking for name {number}: {error}");
    let id = u16::try_from(number).unwrap_or(0);
    resolver.send(&query(id, number)).map_err(failed)?;
    let mut answer = [0; 512];
    let length = resolver.recv(&mut answer).map_err(failed)?;
    let came = now();
    if answer[..length].ends_with(&address(number).octets()) {
        Ok(came.saturating_duration_since(site.responder.last_answer()))
    } else {
        Err(format!("the answer for name {number} has another address"))
    }
}

/// The first packet to the address of a name.
fn send(sender: &UdpSocket, receiver: &UdpSocket, number: u32) -> Result<(), String> {
    let failed = |error| format!("the first packet to the address of name {number}: {error}");
    let text = number.to_be_bytes();
    let sent = sender.send_to(&text, (address(number), PORT));
    sent.map_err(failed)?;
    let mut packet = [0; 8];
    let length = receiver.recv(&mut packet).map_err(failed)?;
    if packet[..length] == text {
        Ok(())
    } else {
        Err(format!(
            "another packet than the one to name {number} arrived"
        ))
    }
}
