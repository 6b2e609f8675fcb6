//! What the reader of the fast path's table of flows takes, with 100,000 flows in the table of which nothing changes.

use super::loads::TrafficSide;
use super::place::{DatapathLab, HostSetup, chain};
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::stopwatch::now;
use palisade_dataplane::{Dataplane as _, FlowEventBatch, Subscription};
use palisade_model::Family;
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

/// The source ports of the flows, of each family.
const PORTS: std::ops::Range<u16> = 2_000..52_000;
/// How many flows must be there.
const FLOWS: u64 = 95_000;
/// Flows of UDP live half a minute.
const MEASURED: Duration = Duration::from_secs(8);

pub(super) fn case() -> BenchCase {
    let name = "datapath/ebpf/flow-reader";
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            Figure::of(name, "% of a core"),
            Figure::of(format!("{name}/flows"), "flows"),
            Figure::of(format!("{name}/first"), "ms"),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 1,
        measure: Box::new(measure),
    }
}

fn measure(_: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let place = DatapathLab::new(HostSetup::Fast(1))?;
    let dataplane = place.dataplane().ok_or("there is no dataplane")?;
    let flows = dataplane.flow_events().map_err(|error| chain(&error))?;
    let mut reader = flows.into_iter().next_back().ok_or("nobody reads flows")?;
    for family in [Family::V4, Family::V6] {
        begin_flows(&place, family)?;
    }
    let count = dataplane.flow_counts().ok_or("there is no table")?.owned;
    if count < FLOWS {
        return Err(format!("{count} flows have begun"));
    }
    let before = processor_milliseconds()?;
    read_until_quiet(&mut reader)?;
    let first = processor_milliseconds()? - before;
    let (began, before) = (now(), processor_milliseconds()?);
    while began.elapsed() < MEASURED {
        wait(&mut reader, Duration::from_millis(250))?;
    }
    let used = processor_milliseconds()? - before;
    samples(vec![used / began.elapsed().as_secs_f64() / 10.0]);
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    samples(vec![count as f64]);
    samples(vec![first]);
    Ok(())
}

/// A datagram from each port.
fn begin_flows(place: &DatapathLab, family: Family) -> Result<(), String> {
    let to = place.server(family);
    let receiver = place.run_in(TrafficSide::Other, || UdpSocket::bind(to))?;
    let _receiver = receiver.map_err(|error| format!("receiving: {error}"))?;
    let send = || -> io::Result<()> {
        for port in PORTS {
            let unspecified = if to.is_ipv4() { "0.0.0.0" } else { "::" };
            let socket = UdpSocket::bind((unspecified, port))?;
            socket.send_to(b"flow", to)?;
        }
        Ok(())
    };
    let sent = place.run_in(TrafficSide::Load, send)?;
    sent.map_err(|error| format!("sending: {error}"))
}

fn read_until_quiet(reader: &mut Subscription<FlowEventBatch>) -> Result<(), String> {
    while wait(reader, Duration::from_secs(1))? {}
    Ok(())
}

fn wait(reader: &mut Subscription<FlowEventBatch>, time: Duration) -> Result<bool, String> {
    let batch = reader.wait(time).map_err(|error| chain(&error))?;
    Ok(batch.is_some())
}

/// The time that this thread has had a processor.
fn processor_milliseconds() -> Result<f64, String> {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let nanoseconds = text.split_whitespace().next();
    let nanoseconds = nanoseconds.and_then(|text| text.parse::<f64>().ok());
    Ok(nanoseconds.ok_or_else(|| format!("{path}: {text}"))? / 1e6)
}
