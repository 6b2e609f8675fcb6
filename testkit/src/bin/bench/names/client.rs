//! A workload that asks at a steady pace, whether answers come or not, and times each answer.

use super::responder::query;
use crate::stopwatch::now;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};

/// The time between two queries: 5,000 a second.
const PACE: Duration = Duration::from_micros(200);
/// Queries of one turn.
pub(super) const QUERIES: u16 = 5_000;
/// How long after the last query answers are waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// Answers that may be missing without the figures being about something else.
const LOST: usize = QUERIES as usize / 1_000;

/// What the queries of a turn share.
struct TurnLog {
    began: Instant,
    /// When each was sent.
    sent: Vec<AtomicU64>,
    /// How long each answer took, by the number of the query.
    took: Mutex<Vec<(u16, Duration)>>,
    is_sent: AtomicBool,
}

/// Asks for names at the pace, from these sockets in turns, and says how long each answer took, by the number of its
/// query.
pub(super) fn ask_for(
    sockets: &[UdpSocket],
    name_of: impl Fn(u16) -> u32,
) -> Result<Vec<(u16, Duration)>, String> {
    let log = Arc::new(TurnLog {
        began: now(),
        sent: (0..QUERIES).map(|_| AtomicU64::new(0)).collect(),
        took: Mutex::default(),
        is_sent: AtomicBool::new(false),
    });
    let copies = sockets.iter().map(|socket| {
        // Of both copies.
        socket.set_nonblocking(true)?;
        socket.try_clone()
    });
    let copies: Result<Vec<_>, _> = copies.collect();
    let copies = copies.map_err(|error| format!("copying a socket: {error}"))?;
    let its = Arc::clone(&log);
    let receiving = std::thread::spawn(move || receive(copies, &its));
    let sent = send(sockets, name_of, &log);
    log.is_sent.store(true, Ordering::Release);
    receiving.join().map_err(|_| "the receiver panicked")??;
    sent?;
    let mut took = log.took.lock().unwrap_or_else(PoisonError::into_inner);
    if took.len() + LOST < usize::from(QUERIES) {
        return Err(format!("of {QUERIES} queries {} were answered", took.len()));
    }
    Ok(std::mem::take(&mut *took))
}

fn send(sockets: &[UdpSocket], name_of: impl Fn(u16) -> u32, log: &TurnLog) -> Result<(), String> {
    let queries: Vec<Vec<u8>> = (0..QUERIES).map(|id| query(id, name_of(id))).collect();
    let start = now();
    let paced = (0_u32..).map(|number| start + PACE * number);
    let sockets = sockets.iter().cycle();
    for (((query, sent), due), socket) in queries.iter().zip(&log.sent).zip(paced).zip(sockets) {
        let early = due.saturating_duration_since(now());
        if !early.is_zero() {
            #[allow(
                clippy::disallowed_methods,
                reason = "a steady pace is what is measured at"
            )]
            std::thread::sleep(early);
        }
        let time = u64::try_from(log.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        sent.store(time, Ordering::Release);
        socket
            .send(query)
            .map_err(|error| format!("asking: {error}"))?;
    }
    Ok(())
}

/// Receives until all answers have come, or the patience is over.
fn receive(sockets: Vec<UdpSocket>, log: &Arc<TurnLog>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| format!("receiving: {error}"))?;
    LocalSet::new().block_on(&runtime, async {
        let mut tasks = JoinSet::new();
        for socket in sockets {
            let socket = tokio::net::UdpSocket::from_std(socket);
            let socket = socket.map_err(|error| format!("receiving: {error}"))?;
            let log = Arc::clone(log);
            tasks.spawn_local(async move {
                let mut answer = [0; 512];
                // Ends with the turn.
                while let Ok(length) = socket.recv(&mut answer).await {
                    note(&log, &answer[..length]);
                }
            });
        }
        let mut waited = Duration::ZERO;
        while waited < PATIENCE {
            tokio::time::sleep(LOOK).await;
            if log.is_sent.load(Ordering::Acquire) {
                waited += LOOK;
                let took = log.took.lock().unwrap_or_else(PoisonError::into_inner);
                if took.len() == usize::from(QUERIES) {
                    break;
                }
            }
        }
        Ok(())
    })
}

/// Notes an answer that has an address.
fn note(log: &TurnLog, answer: &[u8]) {
    let &[high, low, _, flags, _, _, _, 1, ..] = answer else {
        return;
    };
    let id = u16::from_be_bytes([high, low]);
    let Some(sent) = log.sent.get(usize::from(id)) else {
        return;
    };
    if flags & 0xf == 0 {
        let sent = Duration::from_nanos(sent.load(Ordering::Acquire));
        let took = log.began.elapsed().saturating_sub(sent);
        let mut all = log.took.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((id, took));
    }
}

/// The value that a part of these does not exceed, in milliseconds.
pub(super) fn percentile(took: &mut [Duration], percent: usize) -> f64 {
    took.sort_unstable();
    let at = (took.len() * percent / 100).min(took.len().saturating_sub(1));
    took.get(at).map_or(0.0, |took| took.as_secs_f64() * 1e3)
}
