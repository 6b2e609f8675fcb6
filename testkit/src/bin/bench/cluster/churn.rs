//! Pods of a cluster that change at a steady rate, written straight into etcd.

use super::objects::{self, PodState};
use super::server::{ClusterSize, text};
use crate::stopwatch::now;
use palisade_testkit::cluster::{EtcdChange, EtcdWriter};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Changes are written so often a second.
const BATCHES: usize = 20;

/// Changes pods until it is finished; none of the first node's.
pub(super) struct Churn {
    stop: Arc<AtomicBool>,
    changes: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<Result<(), String>>,
}

impl Churn {
    /// Changes so many pods a second.
    pub(super) fn start(namespace: &str, size: ClusterSize, rate: usize) -> Result<Self, String> {
        let mut writer = EtcdWriter::connect(namespace).map_err(text)?;
        let stop = Arc::new(AtomicBool::new(false));
        let changes: Arc<AtomicUsize> = Arc::default();
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&changes));
        let thread = std::thread::spawn(move || {
            let mut random = SmallRng::seed_from_u64(1);
            let mut states = vec![PodState::default(); size.pods];
            let (began, mut batches) = (now(), 0_u32);
            while !stopped.load(Ordering::Acquire) {
                // A transaction has each key once.
                let mut pods = BTreeSet::new();
                while pods.len() < rate / BATCHES {
                    let pod = random.random_range(0..size.pods);
                    if pod % size.nodes != 0 {
                        pods.insert(pod);
                    }
                }
                let written: Vec<EtcdChange> = pods
                    .into_iter()
                    .map(|pod| change(&mut random, pod, &mut states[pod], size))
                    .collect();
                writer.write(&written).map_err(text)?;
                counted.fetch_add(written.len(), Ordering::Relaxed);
                batches += 1;
                let due =
                    began + Duration::from_secs(1) * batches / u32::try_from(BATCHES).unwrap_or(1);
                pause(due.saturating_duration_since(now()));
            }
            let seconds = began.elapsed().as_secs_f64();
            let count = counted.load(Ordering::Relaxed) as f64;
            eprintln!("    {:.0} pod changes a second", count / seconds);
            Ok(())
        });
        Ok(Self {
            stop,
            changes,
            thread,
        })
    }

    /// The changes so far.
    pub(super) fn changes(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub(super) fn finish(self) -> Result<(), String> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| "the churn panicked")?
    }
}

/// As pods change: half of it is status alone, three tenths a label, two tenths a new pod in place of an old.
fn change(
    random: &mut SmallRng,
    pod: usize,
    state: &mut PodState,
    size: ClusterSize,
) -> EtcdChange {
    match random.random_range(0..10) {
        0..5 => state.status += 1,
        5..8 => state.version += 1,
        _ => state.generation += 1,
    }
    objects::pod(pod, size.nodes, *state)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a steady rate is what the churn is for, and what is measured takes time"
)]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}
