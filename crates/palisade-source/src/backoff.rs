//! Delays between attempts to reach the server: growing, and random, so that the agents of a cluster do not
//! return together after an outage. Takes its randomness as an argument, and never waits itself.

use rand::Rng;
use std::time::Duration;

/// The longest first delay.
const FIRST: Duration = Duration::from_millis(200);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(30);
/// A delay that a server asks for is not kept beyond this: an agent must not be blind for long.
const LONGEST_REQUESTED: Duration = Duration::from_secs(60);

/// The delays after failures in a row.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The delay before the next attempt: between half of the present limit and the limit, which doubles.
    pub fn next_delay(&mut self, random: &mut impl Rng) -> Duration {
        let limit = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        limit.mul_f64(random.random_range(0.5..=1.0))
    }

    /// The same where the server asked for a delay (HTTP, `Retry-After`): never less than that, up to a minute,
    /// and at most half as much again.
    pub fn next_delay_after(
        &mut self,
        retry_after: Option<Duration>,
        random: &mut impl Rng,
    ) -> Duration {
        let own = self.next_delay(random);
        let requested = retry_after.unwrap_or_default().min(LONGEST_REQUESTED);
        own.max(requested.mul_f64(random.random_range(1.0..=1.5)))
    }

    /// An attempt succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    #[test]
    fn delays_double_up_to_a_limit_and_are_spread() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut backoff = Backoff::default();
        let mut limit = FIRST;
        for _ in 0..50 {
            let delay = backoff.next_delay(&mut random);
            assert!(
                delay >= limit / 2 && delay <= limit,
                "{delay:?} of {limit:?}"
            );
            limit = (limit * 2).min(LONGEST);
        }
        backoff.reset();
        assert!(backoff.next_delay(&mut random) <= FIRST);
        let first = |seed| Backoff::default().next_delay(&mut SmallRng::seed_from_u64(seed));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn a_requested_delay_is_kept() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut delay = |seconds| {
            let requested = Some(Duration::from_secs(seconds));
            Backoff::default().next_delay_after(requested, &mut random)
        };
        let within = |from, to| Duration::from_millis(from)..=Duration::from_millis(to);
        for _ in 0..50 {
            assert!(within(100, 200).contains(&delay(0)));
            assert!(within(7_000, 10_500).contains(&delay(7)));
            assert!(within(60_000, 90_000).contains(&delay(86_400)));
        }
    }
}
