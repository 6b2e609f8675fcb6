//! What the kernel's tables cost to change and to hold, through the real driver in a namespace.

use crate::case::{BenchCase, Samples};
use crate::datapath::{chain, config};
use crate::parsed_objects::{
    BenchNamespace, BenchObject, BenchPeer, BenchPod, BenchPolicy, BenchRule, LabelTest,
};
use crate::report::Figure;
use crate::states::{self, BenchInput, Families};
use crate::stopwatch::now;
use palisade_dataplane::PolicyDriver;
use palisade_engine::{Engine, EngineOptions};
use palisade_model::{Action, Protocol, Update};
use palisade_sys::netns::NetNs;
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::Lab;
use palisade_testkit::test_driver::open_nftables;
use std::time::Duration;

const NAMESPACE: &str = "bench";
/// How often an endpoint is added.
const TIMES: usize = 100;
/// Policy sets and addresses of the memory figure.
const SETS: usize = 200;
const ADDRESSES: usize = 50_000;
/// How many kinds of pods there are, how many tags, and how many of these a kind has.
const KINDS: usize = 500;
const TAGS: usize = 50;
const HAS: usize = 10;
/// Rules of a policy, where memory is measured.
const RULES: usize = 5;
/// How often the tables are made and removed.
const MEMORY_TIMES: usize = 5;

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    vec![endpoint_added(200), endpoint_added(1_000), memory()]
}

fn endpoint_added(sets: usize) -> BenchCase {
    let name = format!("nft/endpoint-added/{sets}");
    BenchCase {
        figures: vec![
            Figure::of(name.clone(), "micros"),
            Figure::of(format!("{name}/with-grace"), "micros"),
        ],
        name,
        processes: 1,
        asks_the_oracle: false,
        limits: 2,
        measure: Box::new(move |_, samples| {
            let mut held = TablesUnderTest::new(&input(sets, TAGS, 2))?;
            let (mut written, mut all) = (Vec::new(), Vec::new());
            for n in 0..TIMES {
                // A second pod of one of the apps.
                let pod = BenchObject::Pod(local(sets + n, n * 7 % sets));
                let (took, waited) = held.apply(pod.update())?;
                written.push((took.saturating_sub(waited)).as_secs_f64() * 1e6);
                all.push(took.as_secs_f64() * 1e6);
                held.apply(Update::Delete(pod.lower().key()))?;
            }
            samples(written);
            samples(all);
            Ok(())
        }),
    }
}

/// The memory is what the kernel's slab, per-CPU and vmalloc areas grow by when the tables are made,
/// and shrink by when they go: of the whole machine, so other work on it shows in the spread.
fn memory() -> BenchCase {
    let name = "nft/memory";
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            Figure::of(name, "MiB"),
            Figure::of(format!("{name}/bytes-per-address"), "B"),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 2,
        measure: Box::new(|_, samples| memory_of(samples)),
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn memory_of(samples: &mut Samples<'_>) -> Result<(), String> {
    let input = input(SETS, ADDRESSES, RULES);
    let mut held = TablesUnderTest::new(&input)?;
    let counts = held.engine.counts();
    eprintln!(
        "    {} address entries, {} identities, {} policy sets, {} class entries, {} classes",
        counts.addresses,
        counts.identities,
        counts.policy_sets,
        counts.class_entries,
        counts.classes
    );
    let mut grown = Vec::new();
    for _ in 0..MEMORY_TIMES {
        let full = kernel_memory()?;
        held.dataplane.remove().map_err(|error| chain(&error))?;
        let empty = kernel_memory()?;
        held.start()?;
        grown.push(full - empty);
        grown.push(kernel_memory()? - empty);
    }
    let per_address = grown.iter().map(|bytes| bytes / ADDRESSES as f64).collect();
    let mebibytes = grown
        .iter()
        .map(|bytes| bytes / (1024.0 * 1024.0))
        .collect();
    samples(mebibytes);
    samples(per_address);
    Ok(())
}

/// What the kernel holds in slabs, per-CPU areas and vmalloc, in bytes, once it has freed what it
/// frees later.
fn kernel_memory() -> Result<f64, String> {
    #[allow(
        clippy::disallowed_methods,
        reason = "the kernel frees tables some grace periods later, and tells nobody"
    )]
    std::thread::sleep(Duration::from_millis(500));
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| error.to_string())?;
    let mut sum = 0.0;
    for field in ["Slab:", "Percpu:", "VmallocUsed:"] {
        let number = text.lines().find_map(|line| {
            let rest = line.strip_prefix(field)?.trim();
            rest.strip_suffix("kB")?.trim().parse::<f64>().ok()
        });
        sum += number.ok_or_else(|| format!("/proc/meminfo says nothing of {field}"))?;
    }
    Ok(sum * 1024.0)
}

/// An engine, and the kernel's tables that follow it.
struct TablesUnderTest {
    engine: Engine,
    dataplane: CountedDriver,
    _lab: Lab,
}

impl TablesUnderTest {
    fn new(input: &BenchInput) -> Result<Self, String> {
        let lab = Lab::new("nft").map_err(|error| error.to_string())?;
        let mut engine = Engine::new(EngineOptions::default());
        engine.apply(input.objects().map(|written| written.update()));
        let netns = NetNs::open(lab.namespace_name(lab.host())).map_err(|error| chain(&error))?;
        let dataplane = open_nftables(config(), &netns).map_err(|error| chain(&error))?;
        let mut held = TablesUnderTest {
            engine,
            dataplane: dataplane.into(),
            _lab: lab,
        };
        held.start()?;
        Ok(held)
    }

    fn start(&mut self) -> Result<(), String> {
        let started = self.dataplane.resync(self.engine.tables());
        started.map(drop).map_err(|error| chain(&error))
    }

    /// Makes a change real: how long that took once the delta was there, and how much of it was
    /// waiting for packets under way.
    fn apply(&mut self, update: Update) -> Result<(Duration, Duration), String> {
        let delta = self.engine.apply([update]);
        let waited = self.dataplane.status().grace_duration;
        let began = now();
        let done = self.dataplane.execute(&delta, self.engine.tables());
        let took = began.elapsed();
        done.map_err(|error| chain(&error))?;
        Ok((took, self.dataplane.status().grace_duration - waited))
    }
}

/// So many policies over a local endpoint each, every one with rules of its own about pods that have
/// some tag, and pods at so many addresses.
fn input(sets: usize, addresses: usize, rules: usize) -> BenchInput {
    let namespace = |_| {
        BenchObject::Namespace(BenchNamespace {
            name: NAMESPACE.into(),
            labels: Vec::new(),
        })
    };
    let peer = |n| BenchObject::Pod(pod(n, tags_of(n % KINDS), None));
    BenchInput::of(vec![
        (1, Box::new(namespace)),
        (
            sets,
            Box::new(move |n| BenchObject::Policy(policy(n, rules))),
        ),
        (addresses, Box::new(peer)),
        (sets, Box::new(|n| BenchObject::Pod(local(n, n)))),
    ])
}

/// The tags of a kind of pods.
fn tags_of(kind: usize) -> Vec<(String, String)> {
    let start = kind * 7;
    let tags = (0..HAS).map(|n| (start + n * n * (1 + kind / TAGS)) % TAGS);
    tags.map(|tag| (format!("tag-{tag}"), "yes".to_owned()))
        .collect()
}

fn policy(number: usize, rules: usize) -> BenchPolicy {
    let rule = |n: usize| BenchRule {
        action: Action::Allow,
        peer: BenchPeer::Labelled(vec![LabelTest::Has(format!(
            "tag-{}",
            (number + n * 11) % TAGS
        ))]),
        ports: vec![(Protocol::TCP, 8_000 + u16::try_from(n).unwrap_or(0))],
    };
    BenchPolicy {
        namespace: None,
        name: format!("policy-{number}"),
        tier: "default",
        file: states::file(number),
        line: states::line(number),
        subject: vec![LabelTest::Is("app".into(), format!("app-{number}"))],
        ingress: Some((0..rules).map(rule).collect()),
        egress: None,
    }
}

/// A pod of this host, of an app.
fn local(number: usize, app: usize) -> BenchPod {
    pod(
        1_000_000 + number,
        vec![("app".into(), format!("app-{app}"))],
        Some(format!("pal{number:08x}")),
    )
}

fn pod(number: usize, labels: Vec<(String, String)>, interface: Option<String>) -> BenchPod {
    BenchPod {
        namespace: NAMESPACE.into(),
        name: format!("pod-{number}"),
        labels,
        addresses: states::addresses(number, Families::V4),
        node: if interface.is_some() { "here" } else { "there" }.into(),
        interface,
    }
}
