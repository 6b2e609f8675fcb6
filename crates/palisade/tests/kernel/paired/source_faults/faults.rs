//! The ways in which a server fails its agent: how each begins, and how it ends.

use std::time::Duration;

use nix::sys::signal::Signal;
use palisade_generators::Dice;
use palisade_testkit::ApiFault;

use super::world::{Server, World};
use crate::agent::nft;

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    // Of both servers.
    Killed,
    Paused,
    Compacted,
    CredentialsReplaced,
    /// The agent's clock is wrong by years while the server restarts.
    ClockSkewed,
    // Of the fake one.
    Refused,
    NoPackets,
    Slow,
    Gone,
    WatchError,
    TooManyRequests,
    ServerError,
    CutEvent,
    CutObject,
    CutList,
    CutPage,
    Garbage,
    ConnectionsCut,
}

/// The faults of the fake server; the rare ones take seconds.
const FAKE: [Fault; 17] = [
    Fault::Killed,
    Fault::ClockSkewed,
    Fault::Paused,
    Fault::Compacted,
    Fault::Refused,
    Fault::NoPackets,
    Fault::Slow,
    Fault::Gone,
    Fault::WatchError,
    Fault::TooManyRequests,
    Fault::ServerError,
    Fault::CutEvent,
    Fault::CutObject,
    Fault::CutList,
    Fault::CutPage,
    Fault::Garbage,
    Fault::ConnectionsCut,
];

impl Fault {
    /// The fault of a step: each in turn, with those between that take seconds.
    pub(crate) fn of_step(server: &Server, step: u64, first: u64) -> Fault {
        let turn = step + first;
        match server {
            Server::Fake(_) if turn % 19 == 18 => Fault::CredentialsReplaced,
            Server::Fake(_) => FAKE[(turn % FAKE.len() as u64) as usize],
            Server::Real { .. } => match turn % 12 {
                3 => Fault::Killed,
                8 => Fault::CredentialsReplaced,
                10 => Fault::ClockSkewed,
                1 | 4 | 6 => Fault::Compacted,
                _ => Fault::Paused,
            },
        }
    }
}

/// Begins a fault.
pub(crate) fn begin(world: &mut World, fault: Fault, dice: &mut Dice) {
    if fault == Fault::ClockSkewed {
        // Before the server's certificate is valid, or after.
        let offset = dice.pick(&["-900d", "-2d", "+2d", "+9000d"]);
        world.set_clock(offset);
    }
    let host = &world.lab;
    let server = match &mut world.server {
        Server::Fake(server) => server,
        Server::Real { plane, .. } => {
            match fault {
                Fault::Killed | Fault::CredentialsReplaced | Fault::ClockSkewed => {
                    plane.kill_api_server();
                }
                Fault::Paused => plane.signal_api_server(Signal::SIGSTOP),
                _ => {}
            }
            return;
        }
    };
    let add = |fault: ApiFault, count: usize| {
        for _ in 0..count {
            server.add_fault(fault.clone());
        }
    };
    let some = dice.between(1, 4);
    match fault {
        Fault::Killed => server.set_down(true),
        Fault::Paused => server.set_paused(true),
        Fault::Compacted => {}
        Fault::CredentialsReplaced => {
            world.token += 1;
            server.set_token(&format!("token-{}", world.token));
        }
        Fault::Refused | Fault::NoPackets => {
            let verdict = match fault {
                Fault::Refused => "reject with tcp reset",
                _ => "drop",
            };
            let port = server.port();
            nft(
                host,
                &format!(
                    "add table inet outage {{ chain c {{ type filter hook input priority 0; tcp dport {port} {verdict}; }}; }}"
                ),
            );
            if fault == Fault::Refused {
                server.cut_connections();
            }
        }
        Fault::Slow => {
            server.set_delay(Duration::from_millis(dice.between(20, 150) as u64));
            if dice.chance(60) {
                server.cut_connections();
            }
        }
        Fault::WatchError => add(ApiFault::WatchError(*dice.pick(&[410, 500, 504])), some),
        Fault::TooManyRequests => add(ApiFault::Status(429), some),
        Fault::ServerError => add(ApiFault::Status(*dice.pick(&[500, 503, 504])), some),
        Fault::CutEvent => add(ApiFault::CutEvent, 1),
        Fault::CutObject => add(ApiFault::CutObject, some),
        Fault::Garbage => add(ApiFault::Garbage, some),
        Fault::CutPage => server.set_streaming_lists(false),
        Fault::Gone | Fault::CutList | Fault::ConnectionsCut | Fault::ClockSkewed => {}
    }
    if matches!(
        fault,
        Fault::WatchError
            | Fault::TooManyRequests
            | Fault::ServerError
            | Fault::CutObject
            | Fault::Garbage
            | Fault::ConnectionsCut
            | Fault::ClockSkewed
    ) {
        server.cut_connections();
    }
}

/// Goes on with a fault once the objects have changed.
pub(crate) fn go_on(world: &mut World, fault: Fault) {
    match &mut world.server {
        Server::Fake(server) => match fault {
            Fault::Gone | Fault::CutList | Fault::CutPage => {
                if fault != Fault::Gone {
                    // One for each resource, so that no list is complete at first.
                    (0..6).for_each(|_| server.add_fault(ApiFault::CutList));
                }
                server.compact();
                server.cut_connections();
            }
            Fault::Compacted => server.compact(),
            _ => {}
        },
        Server::Real { plane, .. } => match fault {
            Fault::Compacted => plane.compact().unwrap(),
            Fault::ClockSkewed => plane.start_api_server().unwrap(),
            _ => {}
        },
    }
}

/// Ends a fault.
pub(crate) fn end(world: &mut World, fault: Fault) {
    if fault == Fault::CredentialsReplaced {
        world.write_credentials();
    }
    if fault == Fault::ClockSkewed {
        world.set_clock("+0");
    }
    match &mut world.server {
        Server::Fake(server) => match fault {
            Fault::Killed => server.set_down(false),
            Fault::Paused => server.set_paused(false),
            Fault::Refused | Fault::NoPackets => {
                nft(&world.lab, "delete table inet outage");
            }
            Fault::Slow => server.set_delay(Duration::ZERO),
            Fault::CutPage => server.set_streaming_lists(true),
            _ => {}
        },
        Server::Real { plane, .. } => match fault {
            Fault::Killed | Fault::CredentialsReplaced => plane.start_api_server().unwrap(),
            Fault::Paused => plane.signal_api_server(Signal::SIGCONT),
            _ => {}
        },
    }
}
