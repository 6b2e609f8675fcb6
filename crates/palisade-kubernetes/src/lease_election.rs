//! Which agent writes what only one writes: it holds a `Lease` (`coordination.k8s.io/v1`).
//!
//! The rules are those of client-go's leader election. Another's lease counts until it was seen unchanged for
//! its duration by this host's clock: the times in it are never compared with that clock, so wrong clocks give
//! no two holders. A write names the version that was read, so of two agents that take a lease at once the
//! server refuses one. Pure: time is an argument, and requests are values.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::Instant;

/// How long a lease counts that its holder does not renew.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew it for so long stops writing: earlier than others may take it.
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// A holder renews it at this interval.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(4);

/// `spec` of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    /// Who holds it; empty if nobody does.
    pub(crate) holder_identity: Option<String>,
    pub(crate) lease_duration_seconds: Option<u64>,
    pub(crate) acquire_time: Option<String>,
    pub(crate) renew_time: Option<String>,
    pub(crate) lease_transitions: Option<u64>,
}

/// A lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadLease {
    pub(crate) spec: LeaseSpec,
    /// Its resource version, which a write names.
    pub(crate) version: String,
}

/// What to do after a lease was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseStep {
    /// Create it, as there is none.
    Create(LeaseSpec),
    /// Replace the version that was read.
    Replace(LeaseSpec, String),
    /// Another holds it.
    Wait,
}

/// One candidate.
#[derive(Debug)]
pub(crate) struct LeaseElection {
    identity: String,
    /// The version that was read last, and when it was read first.
    observed: Option<(String, Instant)>,
    /// When the request was sent that acquired or renewed it last.
    renewed: Option<Instant>,
}

impl LeaseElection {
    pub(crate) fn new(identity: String) -> Self {
        LeaseElection {
            identity,
            observed: None,
            renewed: None,
        }
    }

    /// Whether this candidate may write.
    pub(crate) fn is_holder(&self, now: Instant) -> bool {
        let renewed = self.renewed;
        renewed.is_some_and(|at| now.saturating_duration_since(at) < RENEW_DEADLINE)
    }

    /// The step after the lease was read at `now`; `wall` is the time that is written.
    pub(crate) fn decide(
        &mut self,
        read: Option<&ReadLease>,
        now: Instant,
        wall: &str,
    ) -> LeaseStep {
        let Some(read) = read else {
            return LeaseStep::Create(self.spec(None, wall));
        };
        let version = self.observed.as_ref().map(|(version, _)| version);
        if version != Some(&read.version) {
            self.observed = Some((read.version.clone(), now));
        }
        let holder = read.spec.holder_identity.as_deref().unwrap_or_default();
        let since = self.observed.as_ref().map_or(now, |(_, at)| *at);
        let seconds = read.spec.lease_duration_seconds;
        let duration = seconds.map_or(LEASE_DURATION, Duration::from_secs);
        let is_free = holder.is_empty() || now.saturating_duration_since(since) >= duration;
        if holder == self.identity || is_free {
            let spec = self.spec(Some(&read.spec), wall);
            return LeaseStep::Replace(spec, read.version.clone());
        }
        self.renewed = None;
        LeaseStep::Wait
    }

    /// The write of a step that was sent at `sent_at` succeeded.
    pub(crate) fn take_success(&mut self, sent_at: Instant) {
        self.renewed = Some(sent_at);
    }

    /// It is given up: what another needs to take it at once.
    pub(crate) fn release(&mut self, read: &ReadLease) -> Option<(LeaseSpec, String)> {
        self.renewed = None;
        let is_own = read.spec.holder_identity.as_deref() == Some(&*self.identity);
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            ..read.spec.clone()
        };
        is_own.then(|| (spec, read.version.clone()))
    }

    fn spec(&self, before: Option<&LeaseSpec>, wall: &str) -> LeaseSpec {
        let own = before.filter(|spec| spec.holder_identity.as_deref() == Some(&*self.identity));
        let transitions = before.map(|spec| spec.lease_transitions.unwrap_or_default());
        let acquired = own.and_then(|spec| spec.acquire_time.clone());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE_DURATION.as_secs()),
            acquire_time: Some(acquired.unwrap_or_else(|| wall.to_owned())),
            renew_time: Some(wall.to_owned()),
            lease_transitions: Some(match (own, transitions) {
                (None, Some(transitions)) => transitions + 1,
                (_, transitions) => transitions.unwrap_or_default(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with one lease: it refuses a write of another version than it has.
    #[derive(Default)]
    struct LeaseServer {
        lease: Option<ReadLease>,
        version: u64,
    }

    impl LeaseServer {
        fn write(&mut self, step: LeaseStep) -> bool {
            let (spec, expected) = match step {
                LeaseStep::Create(spec) => (spec, None),
                LeaseStep::Replace(spec, version) => (spec, Some(version)),
                LeaseStep::Wait => return false,
            };
            if self.lease.as_ref().map(|lease| lease.version.clone()) != expected {
                return false;
            }
            self.version += 1;
            let version = self.version.to_string();
            self.lease = Some(ReadLease { spec, version });
            true
        }

        /// A candidate reads, decides and writes.
        fn try_by(&mut self, candidate: &mut LeaseElection, now: Instant, wall: &str) -> bool {
            let step = candidate.decide(self.lease.as_ref(), now, wall);
            let is_written = self.write(step);
            if is_written {
                candidate.take_success(now);
            }
            candidate.is_holder(now)
        }

        fn spec(&self) -> LeaseSpec {
            self.lease.clone().unwrap().spec
        }
    }

    fn candidates() -> (LeaseElection, LeaseElection) {
        (
            LeaseElection::new("a".to_owned()),
            LeaseElection::new("b".to_owned()),
        )
    }

    #[test]
    fn one_holds_it_until_it_is_not_renewed_for_its_duration() {
        let (mut a, mut b) = candidates();
        let mut server = LeaseServer::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(server.try_by(&mut a, at(0), "w0"));
        // The clock of the second is a day behind: this does not matter.
        assert!(!server.try_by(&mut b, at(1), "yesterday"));
        assert!(server.try_by(&mut a, at(4), "w4"));
        assert!(!server.try_by(&mut b, at(14), "yesterday"));
        // The first dies; the second has seen the last change at 14.
        assert!(!server.try_by(&mut b, at(28), "yesterday"));
        assert!(!a.is_holder(at(15)));
        assert!(server.try_by(&mut b, at(29), "yesterday"));
        let spec = server.spec();
        assert_eq!(spec.lease_transitions, Some(1));
        assert_eq!(spec.acquire_time.as_deref(), Some("yesterday"));
        // The first comes back.
        assert!(!server.try_by(&mut a, at(30), "w30"));
        assert!(server.try_by(&mut b, at(31), "later"));
        let renewed = server.spec();
        assert_eq!(renewed.acquire_time, spec.acquire_time);
        assert_eq!(renewed.lease_transitions, Some(1));
    }

    #[test]
    fn of_two_that_take_it_at_once_the_server_refuses_one() {
        let now = Instant::now();
        for is_new in [true, false] {
            let (mut a, mut b) = candidates();
            let mut server = LeaseServer::default();
            if !is_new {
                let spec = LeaseSpec::default();
                let version = String::new();
                server.lease = Some(ReadLease { spec, version });
            }
            let first = a.decide(server.lease.as_ref(), now, "w");
            let second = b.decide(server.lease.as_ref(), now, "w");
            assert!(server.write(first) && !server.write(second));
            a.take_success(now);
            assert!(a.is_holder(now) && !b.is_holder(now));
        }
    }

    #[test]
    fn one_that_is_released_can_be_taken_at_once() {
        let (mut a, mut b) = candidates();
        let mut server = LeaseServer::default();
        let now = Instant::now();
        assert!(server.try_by(&mut a, now, "w"));
        assert_eq!(b.release(server.lease.as_ref().unwrap()), None);
        let (spec, version) = a.release(server.lease.as_ref().unwrap()).unwrap();
        assert!(!a.is_holder(now));
        assert!(server.write(LeaseStep::Replace(spec, version)));
        assert!(server.try_by(&mut b, now, "w"));
    }

    /// However they are delayed and whatever they are told, no two hold it at one time.
    #[test]
    fn never_two_at_one_time() {
        use rand::rngs::SmallRng;
        use rand::{Rng, SeedableRng};
        let fresh = rand::random::<u64>();
        for seed in [1, fresh] {
            println!("seed {seed}");
            let mut random = SmallRng::seed_from_u64(seed);
            let mut server = LeaseServer::default();
            let names = ["a", "b", "c"];
            let mut all = names.map(|name| LeaseElection::new(name.to_owned()));
            // What each has read and decided, but not written yet.
            let mut decided: [Option<(LeaseStep, Instant)>; 3] = [None, None, None];
            let mut now = Instant::now();
            let mut terms = 0;
            for _ in 0..20_000 {
                now += Duration::from_millis(random.random_range(0..3_000));
                let who = random.random_range(0..3);
                match decided[who].take() {
                    None => {
                        let step = all[who].decide(server.lease.as_ref(), now, "w");
                        decided[who] = Some((step, now));
                    }
                    // A write takes at most as long as its answer is waited for.
                    Some((step, sent_at)) => {
                        if server.write(step) {
                            all[who].take_success(sent_at);
                        }
                    }
                }
                let holders = all.iter().filter(|one| one.is_holder(now)).count();
                assert!(holders <= 1, "seed {seed}");
                terms += holders;
            }
            assert!(terms > 1_000, "{terms}");
        }
    }
}
