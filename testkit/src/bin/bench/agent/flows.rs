//! What an agent takes that follows and records flows, while 10,000 UDP flows a second begin and as many end.

use super::manifests;
use super::process::AgentProcess;
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::stopwatch::now;
use palisade_testkit::lab::{Lab, NodeId};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NAMESPACE: &str = "shop";
const PORT: u16 = 8_080;
const ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 2)),
    IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 3)),
];
/// Flows begin in groups, one each millisecond.
const GROUP: u32 = 10;
const PACE: Duration = Duration::from_millis(1);
/// Source ports come again after six seconds; flows end after two.
const PORTS: std::ops::Range<u16> = 2_000..62_000;
const FLOW_SECONDS: &str = "2";
/// Before anything is measured as many flows end as begin.
const WARM_UP: Duration = Duration::from_secs(8);
const MEASURED: Duration = Duration::from_secs(15);

pub(super) fn case() -> BenchCase {
    let name = "agent/flows";
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            Figure::of(format!("{name}/rate"), "/s"),
            Figure::of(format!("{name}/off"), "% of a core"),
            Figure::of(format!("{name}/on"), "% of a core").with_reference("aim", 15.0),
            Figure::of(format!("{name}/memory"), "MiB").with_reference("aim", 32.0),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 2,
        measure: Box::new(measure),
    }
}

/// What an agent took.
struct AgentLoad {
    rate: f64,
    processor: f64,
    anonymous: f64,
}

fn measure(_scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let off = measure_agent("off")?;
    let on = measure_agent("on")?;
    samples(vec![on.rate]);
    samples(vec![off.processor]);
    samples(vec![on.processor]);
    samples(vec![on.anonymous - off.anonymous]);
    Ok(())
}

fn measure_agent(flows: &str) -> Result<AgentLoad, String> {
    let mut lab = Lab::new("flows").map_err(|error| error.to_string())?;
    let mut agent = AgentProcess::new()?;
    agent.add_arguments(&["--flows", flows]);
    let mut objects = manifests::namespace(NAMESPACE);
    for (name, address) in ["web", "db"].into_iter().zip(ADDRESSES) {
        let labels = [("app", name.to_owned())];
        objects += &manifests::pod(NAMESPACE, name, &labels, "here", &[address]);
    }
    let policy = manifests::policy(NAMESPACE, "db", "db", &[("app", "web")], &[("UDP", PORT)]);
    agent.write("objects.yaml", &objects)?;
    agent.write("policy.yaml", &policy)?;
    agent.start(&lab)?;
    let mut pods = Vec::new();
    for (name, address) in ["web", "db"].into_iter().zip(ADDRESSES) {
        let pod = lab.add_namespace(name, vec![address]);
        let pod = pod.map_err(|error| error.to_string())?;
        agent.attach(&lab, pod, NAMESPACE, name)?;
        pods.push(pod);
    }
    let [web, db] = pods[..] else {
        return Err("two pods were made".to_owned());
    };
    let shorten = || {
        let path = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout";
        io::Write::write_all(&mut std::fs::File::create(path)?, FLOW_SECONDS.as_bytes())
    };
    let shortened: io::Result<()> = run_in(&lab, lab.host(), shorten)?;
    shortened.map_err(|error| format!("shortening flows: {error}"))?;
    // Nobody reads: what does not fit is dropped behind policy.
    let receive = || UdpSocket::bind((ADDRESSES[1], PORT));
    let receiver = run_in(&lab, db, receive)?.map_err(|error| format!("receiving: {error}"))?;
    let sender = run_in(&lab, web, open)?.map_err(|error| format!("sending: {error}"))?;
    let is_over = AtomicBool::new(false);
    let load = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&sender, &is_over));
        let load = watch(&agent);
        is_over.store(true, Ordering::Release);
        let rate = sending.join().map_err(|_| "the sender panicked")?;
        let rate = rate.map_err(|error| format!("sending: {error}"))?;
        load.map(|load| AgentLoad { rate, ..load })
    });
    drop(receiver);
    load
}

fn run_in<T: Send + 'static>(
    lab: &Lab,
    node: NodeId,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    lab.run_in(node, work).map_err(|error| error.to_string())
}

fn open() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
    socket.connect(&SockAddr::from(SocketAddr::from((ADDRESSES[1], 0))))?;
    Ok(socket)
}

/// Begins flows until it is over; the number a second.
fn send(socket: &Socket, is_over: &AtomicBool) -> io::Result<f64> {
    let (began, mut groups) = (now(), 0_u32);
    let mut ports = PORTS.cycle();
    while !is_over.load(Ordering::Acquire) {
        for port in ports.by_ref().take(GROUP as usize) {
            let mut header = [0; 8];
            for (place, value) in header.chunks_mut(2).zip([port, PORT, 8, 0]) {
                place.copy_from_slice(&value.to_be_bytes());
            }
            socket.send(&header)?;
        }
        groups += 1;
        #[allow(clippy::disallowed_methods, reason = "the pace of the flows")]
        std::thread::sleep((PACE * groups).saturating_sub(began.elapsed()));
    }
    Ok(f64::from(groups * GROUP) / began.elapsed().as_secs_f64())
}

/// What the agent takes meanwhile.
fn watch(agent: &AgentProcess) -> Result<AgentLoad, String> {
    let wait = |time| {
        #[allow(clippy::disallowed_methods, reason = "the time that is measured")]
        std::thread::sleep(time);
    };
    wait(WARM_UP);
    let (began, before) = (now(), agent.processor_seconds()?);
    wait(MEASURED);
    let used = agent.processor_seconds()? - before;
    Ok(AgentLoad {
        rate: 0.0,
        processor: 100.0 * used / began.elapsed().as_secs_f64(),
        anonymous: agent.proc_kilobytes("status", "RssAnon")? / 1024.0,
    })
}
