//! Packets that were denied, dropped or asked for by a Log rule, told as they happen.
//!
//! The dataplane reports packets; here each is judged again by the tables that were in force, led
//! back to its rule, given names, and told to whoever listens. It promises that whatever is not told
//! is counted, with the rule where that is known; that a flood costs the core a bounded share of its
//! time, and that no reader is ever waited for.

pub mod attribute;
mod event;
pub mod feed;
mod history;
pub mod hub;
pub mod limiter;
mod names;

use crate::clock::rfc3339_micros;
use crate::core::Core;
use attribute::Judgement;
use history::History;
use hub::Hub;
use limiter::Limiter;
use names::Retired;
use palisade_api::{LostEvents, MonitorQuery};
use palisade_dataplane::{Sighting, Sightings, Why};
use palisade_model::{Direction, Object, ObjectKey, Update};
use palisade_tables::{Credit, Undo};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often what was lost is told, at most.
const LOSSES_EVERY: Duration = Duration::from_secs(1);

/// What is told of a second at most `monitor-rate` times: why, in which direction, by which rule.
type Key = (Why, Option<Direction>, Option<Arc<Credit>>);

/// What the core keeps for telling of packets.
pub(crate) struct Monitor {
    history: History,
    retired: Retired,
    limiter: Limiter<Key>,
    hub: Hub,
    /// Not told one by one, by where they were left out; told together from time to time.
    lost: BTreeMap<(&'static str, Why), u64>,
    /// Where the limiter's time begins, and when losses were told.
    began: Instant,
    told: Duration,
}

/// Packets on their way from the dataplane to the core, and what the way had no room for.
#[derive(Debug, Default)]
pub struct Seen {
    /// From the dataplane.
    pub sightings: Sightings,
    /// What was left out between there and here.
    pub left_out: BTreeMap<Why, u64>,
}

impl Monitor {
    pub(crate) fn new(rate: u32, now: Instant) -> Self {
        Monitor {
            history: History::default(),
            retired: Retired::default(),
            limiter: Limiter::new(rate),
            hub: Hub::default(),
            lost: BTreeMap::new(),
            began: now,
            told: Duration::ZERO,
        }
    }

    /// Another rate of each rule, from now on.
    pub(crate) fn set_rate(&mut self, rate: u32) {
        self.limiter.set_rate(rate);
    }

    /// Takes note of a flush: between which times, what revision it replaced, and what of it.
    pub(crate) fn flushed(
        &mut self,
        times: (Duration, Duration),
        revision: u64,
        undo: Option<Undo>,
    ) {
        self.history.flushed(times, revision, undo);
    }

    /// The kernel was brought in line from an unknown state.
    pub(crate) fn forget(&mut self) {
        self.history.forget();
    }
}

impl Core {
    /// One more reader of the stream.
    pub fn listen(
        &mut self,
        query: MonitorQuery,
    ) -> tokio::sync::mpsc::Receiver<axum::body::Bytes> {
        self.monitor.hub.subscribe(query)
    }

    /// Remembers whose addresses these updates take away.
    pub(crate) fn retire(&mut self, updates: &[Update]) {
        if !self.in_sync {
            return;
        }
        let now = self.clock.wall();
        for update in updates {
            let (id, kept) = match update {
                Update::Upsert(Object::Endpoint(endpoint)) => {
                    (&endpoint.id, endpoint.addresses.as_slice())
                }
                Update::Delete(ObjectKey::Endpoint(id)) => (id, [].as_slice()),
                _ => continue,
            };
            let Some(old) = self.engine.endpoint(id) else {
                continue;
            };
            for address in old.addresses.iter().filter(|a| !kept.contains(a)) {
                self.monitor.retired.retire(*address, id.clone(), now);
            }
        }
    }

    /// Tells of packets that the dataplane saw.
    pub fn see(&mut self, seen: Seen) {
        let quiet = seen.sightings.packets.is_empty();
        let mut lose = |cause, lost: BTreeMap<Why, u64>| {
            for (why, count) in lost {
                *self.monitor.lost.entry((cause, why)).or_default() += count;
            }
        };
        lose("kernel", seen.sightings.lost);
        lose("agent", seen.left_out);
        for sighting in seen.sightings.packets {
            self.tell(&sighting);
        }
        let now = self.monitor_time();
        if quiet || now.saturating_sub(self.monitor.told) >= LOSSES_EVERY {
            self.monitor.told = now;
            self.tell_losses();
        }
    }

    /// Time since the start, for rates.
    fn monitor_time(&self) -> Duration {
        let now = self.clock.monotonic();
        now.saturating_duration_since(self.monitor.began)
    }

    fn tell(&mut self, sighting: &Sighting) {
        let at = sighting.time.unwrap_or_else(|| self.clock.wall());
        let judged = sighting.judged();
        let tables = self.engine.tables();
        let states = self.monitor.history.states(tables, self.realised, at);
        let mut states = states.into_iter();
        let found = states.find_map(|(tables, revision, past)| {
            let judgement = attribute::judgement(&tables, sighting.why, &judged)?;
            Some((judgement, revision, past))
        });
        let key = key_of(
            sighting.why,
            found.as_ref().map(|(judgement, ..)| judgement),
        );
        let now = self.monitor_time();
        if !self.monitor.limiter.pass(&key, now) {
            return;
        }
        let event = self.event(sighting, &judged, found, at);
        self.monitor.hub.packet(event);
    }

    fn tell_losses(&mut self) {
        let time = rfc3339_micros(self.clock.wall());
        for ((cause, why), count) in std::mem::take(&mut self.monitor.lost) {
            self.monitor.hub.lost(LostEvents {
                api_version: palisade_api::api_version(),
                time: time.clone(),
                cause: cause.to_owned(),
                count,
                reason: Some(why.name().to_owned()),
                rule: None,
                policies: Vec::new(),
            });
        }
        for ((why, _, credit), count) in self.monitor.limiter.take_lost() {
            let decided = self.decided(why, credit.as_deref());
            self.monitor.hub.lost(LostEvents {
                api_version: palisade_api::api_version(),
                time: time.clone(),
                cause: "rate".to_owned(),
                count,
                reason: Some(decided.reason.to_owned()),
                rule: decided.rule,
                policies: decided.policies,
            });
        }
    }
}

/// What a packet is counted under: of a denied one the rule that decided, of a logged one as well.
fn key_of(why: Why, judgement: Option<&Judgement>) -> Key {
    match judgement {
        Some(of) => (why, Some(of.direction), of.hits.last().cloned()),
        None => (why, None, None),
    }
}
