//! What the proxy adds to the time of an answer, at 5,000 queries a second.

use super::client::{QUERIES, ask_for, percentile};
use super::site::NamesSite;
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use std::cell::Cell;
use std::net::UdpSocket;
use std::time::Duration;

/// How often each kind of turn has its turn, on either host.
const ROUNDS: usize = 9;
/// Names that are asked for again and again.
const KNOWN: u32 = 100;
/// The percentiles, and what the proxy may add to each, in milliseconds.
const PERCENTILES: [(usize, f64); 2] = [(50, 0.3), (99, 2.0)];

/// What is asked, and how.
struct TurnKind {
    name: &'static str,
    /// From how many ports of the workload.
    ports: usize,
    /// Every how many queries one is for a name that was never asked for; these alone are timed. None if 0.
    new_every: u16,
}

const KINDS: [TurnKind; 3] = [
    // As a resolver of a workload that keeps its socket does.
    TurnKind {
        name: "known",
        ports: 1,
        new_every: 0,
    },
    // A lookup of a C library has a port of its own: more than the proxy keeps sockets for, so that it opens one for
    // each query.
    TurnKind {
        name: "ports",
        ports: 1_024,
        new_every: 0,
    },
    // The answer is held until the kernel has the address.
    TurnKind {
        name: "new",
        ports: 1,
        new_every: 10,
    },
];

/// The same client and the same server, over a host that routes and over one that enforces, in turns.
pub(super) fn case() -> BenchCase {
    let name = "names/latency";
    let mut figures = Vec::new();
    for kind in &KINDS {
        for (percent, aim) in PERCENTILES {
            let figure = |what: &str| {
                let of = format!("{name}/{}{what}/p{percent}", kind.name);
                Figure::of(of, "ms")
            };
            figures.push(figure("/plain"));
            figures.push(figure(""));
            figures.push(figure("/added").with_reference("aim", aim));
        }
    }
    BenchCase {
        name: name.to_owned(),
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 2,
        measure: Box::new(|_, samples| measure(samples)),
    }
}

/// A host with the workload's sockets for each kind.
struct LatencyHost {
    site: NamesSite,
    sockets: Vec<Vec<UdpSocket>>,
    next_name: Cell<u32>,
}

impl LatencyHost {
    fn new(site: NamesSite) -> Result<Self, String> {
        let open = |kind: &TurnKind| (0..kind.ports).map(|_| site.open()).collect();
        let sockets: Result<_, String> = KINDS.iter().map(open).collect();
        Ok(LatencyHost {
            sockets: sockets?,
            site,
            next_name: Cell::new(KNOWN),
        })
    }

    /// How long the answers of one turn took.
    fn turn(&self, kind: usize) -> Result<Vec<Duration>, String> {
        let new_every = KINDS[kind].new_every;
        let is_new = |id: u16| new_every > 0 && id.is_multiple_of(new_every);
        let name_of = |id: u16| {
            if is_new(id) {
                let number = self.next_name.get();
                self.next_name.set(number + 1);
                number
            } else {
                u32::from(id) % KNOWN
            }
        };
        let took = ask_for(&self.sockets[kind], name_of)?.into_iter();
        let timed = took.filter(|(id, _)| new_every == 0 || is_new(*id));
        Ok(timed.map(|(_, took)| took).collect())
    }
}

fn measure(samples: &mut Samples<'_>) -> Result<(), String> {
    let hosts = [
        LatencyHost::new(NamesSite::plain()?)?,
        LatencyHost::new(NamesSite::enforced()?)?,
    ];
    for host in &hosts {
        // Every known name has its address, and what is set up once is.
        host.turn(0)?;
    }
    eprintln!("    {QUERIES} queries a turn, {ROUNDS} rounds");
    for kind in 0..KINDS.len() {
        let mut figures = vec![Vec::new(); 3 * PERCENTILES.len()];
        for round in 0..ROUNDS {
            // They change places.
            let first = round % 2;
            let mut turns = [const { Vec::new() }; 2];
            for host in [first, 1 - first] {
                turns[host] = hosts[host].turn(kind)?;
            }
            for ((percent, _), figures) in PERCENTILES.iter().zip(figures.chunks_mut(3)) {
                let [plain, enforced] = turns.each_mut().map(|took| percentile(took, *percent));
                for (figure, value) in figures.iter_mut().zip([plain, enforced, enforced - plain]) {
                    figure.push(value);
                }
            }
        }
        for figure in figures {
            samples(figure);
        }
    }
    let agent = hosts[1].site.agent.as_ref().ok_or("there is no agent")?;
    let status = agent.status()?;
    eprintln!("    {}", status["names"]);
    Ok(())
}
