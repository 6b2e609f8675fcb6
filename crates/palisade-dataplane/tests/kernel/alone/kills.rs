//! Agents of the fast path that die of SIGKILL under traffic: inside a flush, while interfaces are armed, while a start
//! takes over what an earlier agent has attached, in each state of a hand-over to nftables, and at any time.
//!
//! A child process runs the driver, and dies where it comes to a point of `palisade_sys::fault::reach`. No allowed packet
//! is lost and no denied one arrives: the design has no exception for TCP that does not close and for UDP. The next agent
//! comes up, has nothing that differs from its tables, and leaves pinned what one start has.
//!
//! `LOAD_KILLS` sets the number, `SEED` the seed.

mod agent;
mod points;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use palisade_dataplane::ebpf;
use palisade_generators::Dice;
use palisade_sys::bpf::{AttachPoint, attached_programs};
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::run_in;
use palisade_testkit::lab::{OUTSIDE_INTERFACE, PodSpec};
use palisade_testkit::need_root;

use super::asked;
use super::traffic::Traffic;
use crate::flows::place::Place;
use agent::{Agent, Answer, Mode};
use points::{POINTS, Point};

/// The third pod: some policies have it, and no packet is sent to it.
const THIRD: (&str, [&str; 2]) = ("pal-c", ["10.88.0.3", "fd88::3"]);
/// So many changes of policy are made until an agent must have come to a point of a flush.
const CHANGES: usize = 6;

/// Waits for some time below this number of milliseconds.
fn wait(dice: &mut Dice, milliseconds: usize) {
    let micros = dice.below(milliseconds * 1000) as u64;
    std::thread::sleep(Duration::from_micros(micros));
}

/// A host with its traffic, and what was done to its agents.
struct World {
    place: Place,
    traffic: Traffic,
    dice: Dice,
    /// The policy that was asked for last.
    policy: u64,
    /// What the last agent that came up was.
    last: Mode,
    /// How many died, by the point.
    kills: BTreeMap<&'static str, u64>,
    /// How many agents came up and were compared with their tables.
    revived: u64,
    /// The longest time from the start of an agent until it enforced.
    longest_start: Duration,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut place = Place::new("kills");
        let (interface, addresses) = THIRD;
        place
            .lab
            .add_pod(PodSpec::new("c", interface, &addresses))
            .unwrap();
        let mut first = Agent::start(&place, Mode::Fast, 0, None);
        assert_eq!(first.wait(), Answer::Line("ready".to_owned()));
        first.kill();
        let traffic = Traffic::start(&place);
        World {
            place,
            traffic,
            dice: Dice::new(seed, 0),
            policy: 0,
            last: Mode::Fast,
            kills: BTreeMap::new(),
            revived: 0,
            longest_start: Duration::ZERO,
        }
    }

    fn total(&self) -> u64 {
        self.kills.values().sum()
    }

    fn note(&mut self, point: &'static str) {
        *self.kills.entry(point).or_default() += 1;
    }

    /// Starts an agent that nothing happens to, and compares everything with what it should be.
    fn revive(&mut self, mode: Mode, context: &str) -> Agent {
        self.policy += self.dice.below(2) as u64;
        let began = Instant::now();
        let mut agent = Agent::start(&self.place, mode, self.policy, None);
        let answer = agent.wait();
        assert_eq!(answer, Answer::Line("ready".to_owned()), "{context}");
        self.longest_start = self.longest_start.max(began.elapsed());
        assert_eq!(agent.ask("check"), "equal", "{context}");
        check_pins(&self.place, mode, context);
        if self.dice.below(2) == 0 {
            self.traffic.renew_turning(&self.place);
        }
        self.traffic.check_turning(self.policy, context);
        // The flow that is judged otherwise by the next policy.
        self.policy += 1;
        assert_eq!(
            agent.change(self.policy),
            Answer::Line("done".to_owned()),
            "{context}"
        );
        self.traffic.check_turning(self.policy, context);
        self.traffic.check(context);
        self.last = mode;
        self.revived += 1;
        agent
    }

    /// Has an agent die at a point.
    fn kill_at(&mut self, point: &'static Point) {
        let is_prepared = self.dice.below(3) > 0;
        if is_prepared || self.last != point.before {
            self.revive(point.before, point.name).kill();
        }
        let times = 1 + self.dice.below(point.times);
        let target = format!("{}:{times}", point.name);
        let mut agent = Agent::start(&self.place, point.mode, self.policy, Some(&target));
        let mut answer = agent.wait();
        for _ in 0..CHANGES {
            if answer == Answer::Died {
                break;
            }
            self.policy += 1;
            answer = agent.change(self.policy);
        }
        if answer == Answer::Died {
            agent.expect_killed(&target);
            self.note(point.name);
        } else {
            // What an earlier kill left has no such point.
            agent.kill();
            self.note("idle");
        }
        // Unknown: a kill may have been anywhere in it.
        self.last = point.mode;
    }

    /// Kills an agent at any time of its start, or of a change.
    fn kill_at_random(&mut self) {
        let mode = [Mode::Fast, Mode::Fast, Mode::Nftables][self.dice.below(3)];
        let mut agent = Agent::start(&self.place, mode, self.policy, None);
        if self.dice.below(2) == 0 {
            wait(&mut self.dice, 250);
            agent.kill();
            self.note("random, start");
        } else {
            assert_eq!(agent.wait(), Answer::Line("ready".to_owned()));
            self.policy += 1;
            agent.send(&format!("policy {}", self.policy));
            wait(&mut self.dice, 80);
            agent.kill();
            self.note("random, flush");
        }
        self.last = mode;
    }

    /// The agent is nftables alone at last, and then nothing.
    fn finish(mut self) -> u64 {
        let mut agent = self.revive(Mode::Nftables, "at last");
        self.traffic.finish("kills");
        assert_eq!(agent.ask("remove"), "done");
        drop(agent);
        assert!(!ebpf::pin_folder(&self.place.netns()).exists());
        let host = self.place.lab.host();
        assert_eq!(self.place.nft(host, "list tables"), "");
        let netns = self.place.netns();
        for name in ["pal-a", "pal-b", THIRD.0, OUTSIDE_INTERFACE] {
            let link = KernelLinks::open(&netns).unwrap().link(name).unwrap();
            let index = link.unwrap().index;
            for point in [AttachPoint::Ingress, AttachPoint::Egress] {
                let found = run_in(&netns, || attached_programs(index, point));
                assert_eq!(found.unwrap().unwrap().len(), 0, "{name}");
            }
        }
        for (point, count) in &self.kills {
            println!("  {point:<28} {count:>5}");
        }
        println!(
            "account: {} kills of agents of the fast path, {} that came up and were compared, the slowest in {:?}",
            self.total(),
            self.revived,
            self.longest_start
        );
        self.total()
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What is pinned is what one start has.
fn check_pins(place: &Place, mode: Mode, context: &str) {
    let folder = ebpf::pin_folder(&place.netns());
    if mode == Mode::Nftables {
        assert!(!folder.exists(), "{context}");
        return;
    }
    let [layout] = &names(&folder)[..] else {
        panic!("{context}: {:?}", names(&folder));
    };
    let layout = folder.join(layout);
    let found = names(&layout);
    let [shared @ .., set] = &found[..] else {
        panic!("{context}: {found:?}");
    };
    let expected = ["config", "events", "flows", "links", "lost_events"];
    assert_eq!(shared, expected, "{context}");
    let maps = names(&layout.join(set));
    assert_eq!(maps, ["counters", "endpoints", "slots"], "{context}: {set}");
    let links = names(&layout.join("links"));
    // Those of two pods and of the interface to other hosts; from the first policy on that has the third pod, its own.
    assert!([6, 8].contains(&links.len()), "{context}: {links:?}");
    for pair in links.chunks(2) {
        let stems = pair.iter().map(|name| name.split_once('-').unwrap());
        let stems: Vec<(&str, &str)> = stems.collect();
        assert_eq!(stems[0].0, stems[1].0, "{context}: {links:?}");
        assert_eq!([stems[0].1, stems[1].1], ["egress", "ingress"]);
    }
}

#[test]
fn no_packet_is_lost_or_let_through_wherever_an_agent_of_the_fast_path_dies() {
    if !need_root() {
        return;
    }
    let wanted = asked("LOAD_KILLS", 100);
    let seeds = palisade_generators::seeds(1);
    let share = wanted.div_ceil(seeds.len() as u64);
    println!("kills: LOAD_KILLS={wanted} SEED={seeds:?}");
    for seed in seeds {
        let mut world = World::new(seed);
        // Each seed begins elsewhere, so that few kills come to all points in the end.
        let first = world.dice.below(POINTS.len());
        for turn in 0.. {
            if world.total() >= share {
                break;
            }
            if turn % 5 == 4 {
                world.kill_at_random();
            } else {
                let at = (first + turn * 7) % POINTS.len();
                world.kill_at(&POINTS[at]);
            }
        }
        let idle = world.kills.get("idle").copied().unwrap_or(0);
        let total = world.finish();
        // Most must be where they were meant to be.
        assert!(idle <= total / 5, "{idle} of {total} came to no point");
    }
}
