//! A DNS server in a thread of the bench: an address for each name with a number.

use super::site::{RECEIVE_BUFFER, SERVER};
use crate::stopwatch::now;
use palisade_testkit::lab::Lab;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The network of all addresses; it is for benchmarks. Source: RFC 2544.
const NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The length of a message's header. Source: RFC 1035, section 4.1.1.
const HEADER: usize = 12;
/// What answers add: a pointer to the name in the question, type A, class IN, a TTL of a minute, and four bytes.
const RECORD: [u8; 12] = [0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4];

/// The address of the name with this number.
pub(super) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(NETWORK) + number)
}

/// The query for it. The first label is `n` and the number.
pub(super) fn query(id: u16, number: u32) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message[..2].copy_from_slice(&id.to_be_bytes());
    // Recursion is desired, and there is one question.
    message[2] = 1;
    message[5] = 1;
    for label in [format!("n{number}").as_str(), "example", "com"] {
        message.push(u8::try_from(label.len()).unwrap_or(0));
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// Serves until the process ends.
pub(super) struct Responder {
    began: Instant,
    last: Arc<AtomicU64>,
}

impl Responder {
    /// Starts in the outside of a lab.
    pub(super) fn start(lab: &Lab) -> Result<Self, String> {
        let socket = lab.run_in(lab.outside(), || UdpSocket::bind((SERVER, 53)));
        let socket = socket.map_err(|error| error.to_string())?;
        let socket = socket.map_err(|error| format!("opening the server's socket: {error}"))?;
        palisade_sys::transparent::force_receive_buffer(&socket, RECEIVE_BUFFER)
            .map_err(|error| format!("opening the server's socket: {error}"))?;
        let (began, last) = (now(), Arc::new(AtomicU64::new(0)));
        let noted = Arc::clone(&last);
        std::thread::spawn(move || {
            let mut message = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut message) {
                let Some(answer) = answer(&message[..length]) else {
                    continue;
                };
                let time = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                noted.store(time, Ordering::Release);
                // One that is not sent is missed by who waits for it.
                let _ = socket.send_to(&answer, client);
            }
        });
        Ok(Responder { began, last })
    }

    /// When the last answer was sent.
    pub(super) fn last_answer(&self) -> Instant {
        self.began + Duration::from_nanos(self.last.load(Ordering::Acquire))
    }
}

/// The answer to a query of [`query`]; none to anything else.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let length = usize::from(*query.get(HEADER)?);
    let label = query.get(HEADER + 1..HEADER + 1 + length)?;
    let number = std::str::from_utf8(label.strip_prefix(b"n")?).ok()?;
    let number: u32 = number.parse().ok()?;
    let mut answer = query.to_vec();
    // A response with authority, and recursion is available.
    answer[2] |= 0x84;
    answer[3] = 0x80;
    answer[7] = 1;
    answer.extend(RECORD);
    answer.extend(address(number).octets());
    Some(answer)
}
