//! What a packet costs: real packets between namespaces, over a host that only routes, one that also
//! tracks connections, and ones that enforce so many rules.
//!
//! All hosts stand beside each other for the whole case and are tried in turns, many short times, so
//! that what else the machine does strikes them alike; a ratio is to plain routing in the same turn.
//! The load runs on the first CPU, what it speaks to on the last. Unless said, both ends are judged:
//! the sender by its egress rules, the receiver by its ingress rules, and only the last rule of each
//! allows what is sent.

mod beside;
mod flow_reader;
mod foreign;
mod loads;
mod memory;
mod place;
mod tuples;

use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use beside::NamesBeside;
use foreign::ForeignHost;
use loads::Load;
use palisade_model::Family;
use place::{DatapathLab, HostSetup};

pub(crate) use place::{chain, config};

/// How often each host has its turn.
const ROUNDS: usize = 21;

/// The numbers of rules.
const RULES: [usize; 3] = [1, 1_000, 10_000];
/// The numbers of rules with the fast path.
const FAST_RULES: [usize; 2] = [1, 10_000];
/// The numbers of networks.
const NETS: [usize; 3] = [10, 1_000, 10_000];

/// Readies a load between the two ends of a place.
type LoadStarter = fn(&DatapathLab, Family) -> Result<Box<dyn Load>, String>;

/// What is sent.
#[derive(Clone, Copy)]
struct LoadKind {
    name: &'static str,
    unit: &'static str,
    start: LoadStarter,
    /// What a trial layout had on this kind of machine, and connection tracking alone.
    trial: [f64; 2],
    /// What it is to have with the fast path.
    fast: f64,
}

const KINDS: [LoadKind; 4] = [
    LoadKind {
        name: "rr",
        unit: "/s",
        start: loads::exchange,
        trial: [0.86, 0.92],
        fast: 1.08,
    },
    LoadKind {
        name: "crr",
        unit: "/s",
        start: loads::connect,
        trial: [0.87, 0.88],
        fast: 1.08,
    },
    LoadKind {
        name: "throughput",
        unit: "Gbit/s",
        start: loads::bulk,
        trial: [0.94, 0.96],
        fast: 1.12,
    },
    LoadKind {
        name: "udp-new",
        unit: "/s",
        start: tuples::new_tuples,
        trial: [0.52, 0.62],
        fast: 1.0,
    },
];

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    let mut cases: Vec<BenchCase> = KINDS.map(|kind| by_rules(kind, Family::V4)).into();
    cases.extend(KINDS.map(|kind| with_fast_path(kind, Family::V4)));
    cases.extend([KINDS[0], KINDS[3]].map(|kind| with_fast_path(kind, Family::V6)));
    cases.extend([KINDS[0], KINDS[3]].map(passed_by_the_fast_path));
    cases.push(denied());
    cases.push(memory::case());
    cases.push(flow_reader::case());
    cases.push(by_networks());
    cases.extend(KINDS.map(|kind| by_rules(kind, Family::V6)));
    cases.extend([KINDS[0], KINDS[3]].map(of_foreign_traffic));
    cases.extend([KINDS[0], KINDS[3]].map(beside_names));
    cases.extend([KINDS[0], KINDS[1], KINDS[3]].map(followed));
    cases
}

fn ratio(name: String, baseline: &str, trial: Option<f64>) -> Figure {
    let figure = Figure::of(name, "ratio").relative_to(baseline);
    match trial {
        Some(trial) => figure.with_reference("trial", trial),
        None => figure,
    }
}

fn by_rules(kind: LoadKind, family: Family) -> BenchCase {
    // What a trial had was measured over IPv4.
    let (what, trial) = match family {
        Family::V4 => (kind.name.to_owned(), kind.trial.map(Some)),
        Family::V6 => (format!("{}/6", kind.name), [None, None]),
    };
    let name = format!("datapath/nft/{what}");
    let plain = format!("datapath/plain/{what}");
    let tracked = format!("datapath/conntrack/{what}");
    let mut figures = vec![
        Figure::of(plain.clone(), kind.unit),
        ratio(tracked, &plain, trial[1]),
    ];
    figures.extend(RULES.map(|n| ratio(format!("{name}/{n}"), &plain, trial[0])));
    figures.push(flatness(&name, RULES));
    BenchCase {
        name,
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(move |_, samples| {
            let mut hosts = vec![HostSetup::Plain, HostSetup::Tracking];
            hosts.extend(RULES.map(HostSetup::Rules));
            compare(&hosts, kind, family, samples)
        }),
    }
}

/// With and without the fast path, with few rules and with many.
fn with_fast_path(kind: LoadKind, family: Family) -> BenchCase {
    let what = match family {
        Family::V4 => kind.name.to_owned(),
        Family::V6 => format!("{}/6", kind.name),
    };
    let name = format!("datapath/ebpf/{what}");
    let plain = format!("{name}/plain");
    let mut figures = vec![Figure::of(plain.clone(), kind.unit)];
    for rules in FAST_RULES {
        figures.push(ratio(format!("{name}/nft/{rules}"), &plain, None));
        let fast = ratio(format!("{name}/{rules}"), &plain, None);
        figures.push(fast.with_reference("aim", kind.fast));
    }
    let fewest = format!("{name}/{}", FAST_RULES[0]);
    let flat = ratio(format!("{name}/flat"), &fewest, None);
    figures.push(flat.with_reference("aim", 1.0));
    BenchCase {
        name,
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(move |_, samples| {
            let mut hosts = vec![HostSetup::Plain];
            for rules in FAST_RULES {
                hosts.extend([HostSetup::Rules(rules), HostSetup::Fast(rules)]);
            }
            compare(&hosts, kind, family, samples)
        }),
    }
}

/// What packets pay for the programs that pass them to the stack: those to the outside.
fn passed_by_the_fast_path(kind: LoadKind) -> BenchCase {
    let hosts = [
        HostSetup::PlainToOutside,
        HostSetup::Networks(NETS[0]),
        HostSetup::Networks(NETS[1]),
        HostSetup::FastNetworks(NETS[0]),
    ];
    beside_nftables(&format!("outside/{}", kind.name), hosts, kind)
}

/// What denied packets pay for the same.
fn denied() -> BenchCase {
    let kind = LoadKind {
        name: "denied",
        unit: "/s",
        start: tuples::denied_tuples,
        trial: [0.0; 2],
        fast: 0.0,
    };
    let hosts = [
        HostSetup::Plain,
        HostSetup::Rules(RULES[0]),
        HostSetup::Rules(RULES[1]),
        HostSetup::Fast(RULES[0]),
    ];
    beside_nftables(kind.name, hosts, kind)
}

/// The last host, which has the fast path, against the second one, which has nftables alone.
fn beside_nftables(what: &str, hosts: [HostSetup; 4], kind: LoadKind) -> BenchCase {
    let name = format!("datapath/ebpf/{what}");
    let [plain, nft] = ["plain", "nft"].map(|host| format!("{name}/{host}"));
    let figures = vec![
        Figure::of(plain.clone(), kind.unit),
        ratio(nft.clone(), &plain, None),
        ratio(format!("{name}/nft-more"), &plain, None),
        ratio(format!("{name}/fast"), &plain, None),
        ratio(name.clone(), &nft, None).with_reference("aim", 0.97),
    ];
    BenchCase {
        name,
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(move |_, samples| compare(&hosts, kind, Family::V4, samples)),
    }
}

/// New flows to the outside, judged once, by egress rules of so many networks.
fn by_networks() -> BenchCase {
    let name = "datapath/nft/cidr".to_owned();
    let plain = "datapath/plain/cidr".to_owned();
    let mut figures = vec![Figure::of(plain.clone(), "/s")];
    figures.extend(NETS.map(|n| ratio(format!("{name}/{n}"), &plain, None)));
    figures.push(flatness(&name, NETS));
    BenchCase {
        name,
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(move |_, samples| {
            let mut hosts = vec![HostSetup::PlainToOutside];
            hosts.extend(NETS.map(HostSetup::Networks));
            compare(&hosts, KINDS[3], Family::V4, samples)
        }),
    }
}

/// What the host forwards between interfaces that no endpoint is about, with host endpoints elsewhere: at most one
/// lookup at each hook that has rules.
fn of_foreign_traffic(kind: LoadKind) -> BenchCase {
    let name = format!("datapath/foreign/{}", kind.name);
    let plain = format!("{name}/plain");
    let mut figures = vec![
        Figure::of(plain.clone(), kind.unit),
        ratio(format!("{name}/conntrack"), &plain, None),
    ];
    let with_palisade = ForeignHost::WITH_PALISADE.map(|host| format!("{name}/{}", host.name()));
    figures.extend(
        with_palisade
            .iter()
            .map(|figure| ratio(figure.clone(), &plain, None)),
    );
    // The early stages against an endpoint alone.
    figures.push(ratio(
        format!("{name}/stages"),
        &with_palisade[1],
        Some(1.0),
    ));
    BenchCase {
        name,
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(move |_, samples| {
            let mut hosts = vec![
                HostSetup::Foreign(ForeignHost::Plain),
                HostSetup::Foreign(ForeignHost::Tracking),
            ];
            hosts.extend(ForeignHost::WITH_PALISADE.map(HostSetup::Foreign));
            compare(&hosts, kind, Family::V4, samples)
        }),
    }
}

/// What workloads without names pay for those of another on the same host.
fn beside_names(kind: LoadKind) -> BenchCase {
    let name = format!("names/none/{}", kind.name);
    let [plain, without] = ["plain", "without"].map(|host| format!("{name}/{host}"));
    let figures = vec![
        Figure::of(plain.clone(), kind.unit),
        ratio(without.clone(), &plain, None),
        ratio(format!("{name}/conntrack"), &plain, None),
        ratio(format!("{name}/with"), &plain, None),
        ratio(name.clone(), &without, None).with_reference("aim", 1.0),
    ];
    BenchCase {
        name: name.clone(),
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(move |_, samples| {
            let hosts = [
                HostSetup::Plain,
                HostSetup::Beside(NamesBeside::Without),
                HostSetup::Tracking,
                HostSetup::Beside(NamesBeside::With),
            ];
            compare(&hosts, kind, Family::V4, samples)
        }),
    }
}

/// What flows pay for being followed.
fn followed(kind: LoadKind) -> BenchCase {
    let name = format!("flows/{}", kind.name);
    let [plain, off, on] = ["plain", "off", "on"].map(|host| format!("{name}/{host}"));
    let figures = vec![
        Figure::of(plain.clone(), kind.unit),
        ratio(off.clone(), &plain, None),
        ratio(format!("{name}/conntrack"), &plain, None),
        ratio(on, &plain, None),
        ratio(name.clone(), &off, None).with_reference("aim", 0.97),
    ];
    BenchCase {
        name: name.clone(),
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(move |_, samples| {
            let hosts = [
                HostSetup::Plain,
                HostSetup::Rules(1),
                HostSetup::Tracking,
                HostSetup::Followed,
            ];
            compare(&hosts, kind, Family::V4, samples)
        }),
    }
}

/// The most rules against the fewest.
fn flatness(name: &str, numbers: [usize; 3]) -> Figure {
    let fewest = format!("{name}/{}", numbers[0]);
    Figure::of(format!("{name}/flat"), "ratio")
        .relative_to(&fewest)
        .with_reference("aim", 1.0)
}

/// Tries the hosts in turns, and hands out the rate of the first and the others as ratios to it.
fn compare(
    hosts: &[HostSetup],
    kind: LoadKind,
    family: Family,
    samples: &mut Samples<'_>,
) -> Result<(), String> {
    let mut places = Vec::new();
    for host in hosts {
        eprintln!("    {}: making {host}", kind.name);
        places.push(DatapathLab::new(*host)?);
    }
    loads::pin(loads::TrafficSide::Load)?;
    let mut loads = Vec::new();
    for place in &places {
        let mut load = (kind.start)(place, family)?;
        place.check()?;
        load.burst(place)?;
        loads.push(load);
    }
    let mut ratios = vec![Vec::new(); hosts.len()];
    let mut flat = Vec::new();
    for round in 0..ROUNDS {
        let mut rates = vec![0.0; hosts.len()];
        // Plain routing before and after the others, which change places.
        let before = burst(&places, &mut loads, 0)?;
        for turn in 0..hosts.len() - 1 {
            let host = 1 + (turn + round) % (hosts.len() - 1);
            rates[host] = burst(&places, &mut loads, host)?;
        }
        rates[0] = f64::midpoint(before, burst(&places, &mut loads, 0)?);
        for (ratios, rate) in ratios.iter_mut().zip(&rates).skip(1) {
            ratios.push(rate / rates[0]);
        }
        ratios[0].push(rates[0]);
        flat.push(rates[hosts.len() - 1] / rates[hosts.len() - 3]);
    }
    for ratios in ratios {
        samples(ratios);
    }
    samples(flat);
    Ok(())
}

fn burst(places: &[DatapathLab], loads: &mut [Box<dyn Load>], host: usize) -> Result<f64, String> {
    loads[host].burst(&places[host])
}
