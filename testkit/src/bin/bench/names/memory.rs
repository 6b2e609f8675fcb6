//! How much an agent grows by names with addresses.

use super::responder::address;
use super::site::{CLIENT, NamesSite, SERVER};
use crate::agent::{AgentProcess, wait};
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::states::scaled;
use crate::stopwatch::now;
use palisade_testkit::lab::Lab;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const NAMES: usize = 10_000;
const ADDRESSES: usize = 10;
/// Offers that may wait for their confirmation at the same time, as those of the proxy.
const UNCONFIRMED: usize = 256;
/// How long the allocator may take to give back what it does not use.
const SETTLE: Duration = Duration::from_secs(12);

/// 10,000 names of 10 addresses each, offered as the proxy does: in the cache, the engine, the tables, and what is
/// kept of the kernel's sets.
pub(super) fn case() -> BenchCase {
    let name = "names/memory";
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            Figure::of(name, "MiB").with_reference("aim", 20.0),
            Figure::of(format!("{name}/without"), "MiB"),
            Figure::of(format!("{name}/peak"), "MiB"),
            Figure::of(format!("{name}/offered-in"), "s"),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 2,
        measure: Box::new(measure),
    }
}

fn measure(scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let names = scaled(NAMES, scale);
    let servers = SERVER.to_string();
    let arguments = ["--dns-servers", &servers, "--dns-max-addresses", "1000000"];
    let connect = |agent: &AgentProcess, _: &Lab| {
        let socket = agent.socket().with_file_name("dns-answers.sock");
        let stream = wait(|| UnixStream::connect(&socket).ok());
        stream.ok_or(format!("{} does not open", socket.display()))
    };
    let (site, stream) = NamesSite::with_proxy(&arguments, connect)?;
    let agent = site.agent.as_ref().ok_or("there is no agent")?;
    offer(&stream, 0..1)?;
    settle();
    let resident = |field| Ok::<f64, String>(agent.proc_kilobytes("status", field)? / 1024.0);
    let before = resident("VmRSS")?;
    let began = now();
    offer(&stream, 1..names)?;
    let took = began.elapsed();
    settle();
    let status = agent.status()?;
    let held = &status["names"];
    if held["names"] != names || held["addresses"] != names * ADDRESSES {
        return Err(format!("the agent holds something else: {held}"));
    }
    samples(vec![resident("VmRSS")? - before]);
    samples(vec![before]);
    samples(vec![resident("VmHWM")? - before]);
    samples(vec![took.as_secs_f64()]);
    Ok(())
}

#[allow(
    clippy::disallowed_methods,
    reason = "nothing tells when memory was given back"
)]
fn settle() {
    std::thread::sleep(SETTLE);
}

/// Offers the addresses of names, and waits until all are in force.
fn offer(stream: &UnixStream, names: std::ops::Range<usize>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("offering answers: {error}");
    let mut confirmations = BufReader::new(stream).lines();
    let mut writer = stream;
    let mut waiting = 0;
    for name in names {
        writer
            .write_all(offer_line(name).as_bytes())
            .map_err(failed)?;
        waiting += 1;
        if waiting == UNCONFIRMED {
            confirmations
                .next()
                .ok_or("the agent has closed")?
                .map_err(failed)?;
            waiting -= 1;
        }
    }
    for confirmation in confirmations.take(waiting) {
        confirmation.map_err(failed)?;
    }
    Ok(())
}

fn offer_line(name: usize) -> String {
    let mut line = format!(
        r#"{{"id":{name},"client":"{}","server":"{SERVER}:53","name":"n{name}.example.com","addresses":["#,
        CLIENT[0]
    );
    for at in 0..ADDRESSES {
        let number = u32::try_from(name * ADDRESSES + at).unwrap_or(0);
        let comma = if at > 0 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            line,
            r#"{comma}{{"address":"{}","ttl_seconds":3600}}"#,
            address(number)
        );
    }
    line.push_str("]}\n");
    line
}
