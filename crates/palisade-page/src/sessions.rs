//! Who has proved to know the token: sessions of browsers, and the limit of attempts. Secrets are compared in a time that
//! does not depend on their content. Both tables are bounded.

use rand::RngCore;
use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a session lasts.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// The most sessions; the oldest ends when there would be more.
const MOST_SESSIONS: usize = 64;
/// Attempts that a peer has at once.
const ATTEMPTS: f64 = 5.0;
/// Attempts that a peer gets back in a second.
const ATTEMPTS_A_SECOND: f64 = 0.5;
/// The most peers whose attempts are counted.
const MOST_PEERS: usize = 1_024;

/// Whether two secrets are equal; the time depends on their lengths only.
pub(crate) fn equals_secret(left: &[u8], right: &[u8]) -> bool {
    let mut difference = left.len() ^ right.len();
    for (one, other) in left.iter().zip(right) {
        difference |= usize::from(black_box(one ^ other));
    }
    black_box(difference) == 0
}

/// The sessions and the attempts.
#[derive(Debug, Default)]
pub(crate) struct LoginTable {
    sessions: Mutex<VecDeque<(String, Instant)>>,
    attempts: Mutex<BTreeMap<IpAddr, (f64, Instant)>>,
}

impl LoginTable {
    /// Begins a session and returns its secret.
    pub(crate) fn begin_session(&self, now: Instant) -> String {
        let mut bytes = [0; 32];
        rand::rng().fill_bytes(&mut bytes);
        let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= MOST_SESSIONS {
            sessions.pop_front();
        }
        sessions.push_back((secret.clone(), now + SESSION_LIFETIME));
        secret
    }

    /// Whether a session with this secret has begun and not ended.
    pub(crate) fn has_session(&self, secret: &str, now: Instant) -> bool {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|(_, end)| *end > now);
        let mut is_known = false;
        for (known, _) in sessions.iter() {
            is_known |= equals_secret(known.as_bytes(), secret.as_bytes());
        }
        is_known
    }

    /// Whether a peer may try a token now.
    pub(crate) fn may_try(&self, peer: IpAddr, now: Instant) -> bool {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts
            .get(&network(peer))
            .is_none_or(|entry| recovered(*entry, now) >= 1.0)
    }

    /// Counts a wrong token of a peer.
    pub(crate) fn count_failure(&self, peer: IpAddr, now: Instant) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() >= MOST_PEERS {
            attempts.retain(|_, entry| recovered(*entry, now) < ATTEMPTS);
        }
        let oldest = attempts.iter().min_by_key(|(_, entry)| entry.1);
        if attempts.len() >= MOST_PEERS
            && let Some(oldest) = oldest.map(|(peer, _)| *peer)
        {
            attempts.remove(&oldest);
        }
        let entry = attempts.entry(network(peer)).or_insert((ATTEMPTS, now));
        *entry = ((recovered(*entry, now) - 1.0).max(0.0), now);
    }
}

/// The attempts of a peer now.
fn recovered((left, since): (f64, Instant), now: Instant) -> f64 {
    let seconds = now.saturating_duration_since(since).as_secs_f64();
    (left + seconds * ATTEMPTS_A_SECOND).min(ATTEMPTS)
}

/// What counts as one peer: an address, of IPv6 the network of 64 bits.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_equal_as_a_whole() {
        assert!(equals_secret(b"abc", b"abc"));
        assert!(equals_secret(b"", b""));
        for (left, right) in [("abc", "abd"), ("abc", "ab"), ("abc", "abcd"), ("", "a")] {
            assert!(!equals_secret(left.as_bytes(), right.as_bytes()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_run_out_and_come_back() {
        let table = LoginTable::default();
        let (guesser, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let start = Instant::now();
        for _ in 0..5 {
            assert!(table.may_try(guesser, start));
            table.count_failure(guesser, start);
        }
        assert!(!table.may_try(guesser, start));
        assert!(table.may_try(other, start));
        assert!(table.may_try(guesser, start + Duration::from_secs(2)));
        // However many peers there are, the table stays bounded.
        for number in 0..5_000_u32 {
            table.count_failure(IpAddr::from(number.to_be_bytes()), start);
        }
        assert_eq!(table.attempts.lock().unwrap().len(), MOST_PEERS);
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_end_and_are_bounded() {
        let table = LoginTable::default();
        let start = Instant::now();
        let first = table.begin_session(start);
        assert_eq!(first.len(), 64);
        assert!(table.has_session(&first, start));
        assert!(!table.has_session(&first[1..], start));
        assert!(!table.has_session(&first, start + SESSION_LIFETIME));
        let first = table.begin_session(start);
        for _ in 0..MOST_SESSIONS {
            table.begin_session(start);
        }
        assert!(!table.has_session(&first, start), "the oldest has ended");
    }
}
