//! What nftables and the fast path above it hold of one node's policy: in the driver's heap, and in the maps.
//!
//! 200 pods of the node with both families, 1,000 policies, 3,000 other pods with an identity each.

use super::place::{chain, config};
use crate::case::{BenchCase, Samples};
use crate::heap::{self, mebibytes};
use crate::parsed_objects::{
    BenchNamespace, BenchObject, BenchPeer, BenchPod, BenchPolicy, BenchRule, LabelTest,
};
use crate::report::Figure;
use crate::states::{self, BenchInput, Families};
use palisade_dataplane::ebpf::EbpfDataplane;
use palisade_dataplane::{CounterLedger, Dataplane as _, PolicyDriver as _};
use palisade_engine::{Engine, EngineOptions};
use palisade_model::{Action, Protocol};
use palisade_sys::netns::NetNs;
use palisade_testkit::lab::Lab;
use palisade_testkit::test_driver::{open_fast_path, open_nftables};

const NAMESPACE: &str = "bench";
/// Pods of this node.
const LOCAL: usize = 200;
/// Pods of others, each with labels that some policy tells apart.
const REMOTE: usize = 3_000;
const POLICIES: usize = 1_000;

pub(super) fn case() -> BenchCase {
    let name = "datapath/ebpf/memory";
    let figure = |what: &str, unit| Figure::of(format!("{name}/{what}"), unit);
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            figure("nft", "MiB"),
            figure("fast", "MiB"),
            figure("maps", "MiB"),
            figure("flow-table", "MiB"),
            figure("rows", "rows"),
            figure("identities", "identities"),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 2,
        measure: Box::new(measure),
    }
}

/// Pods have an app of their own; policy `n` is about the app of a local pod, and takes from three others.
fn input() -> BenchInput {
    let app = |number: usize| LabelTest::Is("app".into(), format!("app-{number}").as_str().into());
    let pod = |number: usize| {
        let is_local = number < LOCAL;
        BenchObject::Pod(BenchPod {
            namespace: NAMESPACE.into(),
            name: format!("pod-{number}").as_str().into(),
            labels: vec![("app".into(), format!("app-{number}").as_str().into())],
            addresses: states::addresses(number, Families::Both),
            interface: is_local.then(|| format!("pal{number:08x}").as_str().into()),
            node: if is_local { "here" } else { "there" }.into(),
        })
    };
    let policy = move |number: usize| {
        let peers = (0..3).map(|at| LOCAL + (number * 3 + at) % REMOTE);
        let peers = peers.chain([(number * 7 + 1) % LOCAL, (number * 11 + 5) % LOCAL]);
        let rules = peers.map(|peer| BenchRule {
            action: Action::Allow,
            peer: BenchPeer::Labelled(vec![app(peer)]),
            ports: vec![
                (Protocol::TCP, 8_000 + (number % 50) as u16),
                (Protocol::UDP, 53),
            ],
        });
        BenchObject::Policy(BenchPolicy {
            namespace: None,
            name: format!("policy-{number}").as_str().into(),
            tier: "default",
            file: states::file(number),
            line: states::line(number),
            subject: vec![app(number % LOCAL)],
            ingress: Some(rules.collect()),
            egress: None,
        })
    };
    BenchInput::of(vec![
        (
            1,
            Box::new(|_| {
                BenchObject::Namespace(BenchNamespace {
                    name: NAMESPACE.into(),
                    labels: Vec::new(),
                })
            }),
        ),
        (POLICIES, Box::new(policy)),
        (LOCAL + REMOTE, Box::new(pod)),
    ])
}

fn measure(_: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let mut engine = Engine::new(EngineOptions::default());
    let input = input();
    engine.apply(input.objects().map(|object| object.update()));
    let lab = Lab::new("memory").map_err(|error| error.to_string())?;
    let netns = NetNs::open(lab.namespace_name(lab.host())).map_err(|error| chain(&error))?;
    let enforce = |driver: &mut EbpfDataplane| -> Result<(), String> {
        let mut ledger = CounterLedger::default();
        let done = driver.resync(engine.tables(), &mut ledger);
        done.map(|_| ()).map_err(|error| chain(&error))
    };
    let before = heap::live();
    let mut nft = open_nftables(config(), &netns).map_err(|error| chain(&error))?;
    enforce(&mut nft)?;
    let alone = heap::live().saturating_sub(before);
    drop(nft);
    let before = heap::live();
    let mut fast = open_fast_path(config(), &netns).map_err(|error| chain(&error))?;
    enforce(&mut fast)?;
    let both = heap::live().saturating_sub(before);
    let figures = fast.fast_path().ok_or("the fast path does not run")?;
    let maps = map_memory()?;
    let largest = maps.iter().copied().max().unwrap_or(0);
    samples(vec![mebibytes(alone as u64)]);
    samples(vec![mebibytes(both as u64)]);
    samples(vec![mebibytes(maps.iter().sum())]);
    samples(vec![mebibytes(largest)]);
    let identities: std::collections::BTreeSet<_> = engine.tables().addresses.values().collect();
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    {
        samples(vec![figures.rows as f64]);
        samples(vec![identities.len() as f64]);
    }
    Ok(())
}

/// The bytes of each map that this process has open, as the kernel accounts for them.
fn map_memory() -> Result<Vec<u64>, String> {
    let failed = |error: std::io::Error| format!("reading what is open: {error}");
    let mut found = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // One that was open for the listing itself is not there any more.
        let Ok(text) = std::fs::read_to_string(path) else {
            continue;
        };
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        if let (Some(map), Some(bytes)) = (field("map_id:"), field("memlock:")) {
            found.insert(map, bytes);
        }
    }
    Ok(found.into_values().collect())
}
