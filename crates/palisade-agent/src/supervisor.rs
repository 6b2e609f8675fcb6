//! The agent's threads: each has a name, and none ends unnoticed.
//!
//! A thread that the agent cannot do without is *kept*: its end, by itself, by an error or by a panic,
//! is told once with its name, and the first to end ends the agent, which stops the others in order.
//! Enforcement stays in the kernel meanwhile, and the service manager starts the agent again.

use crate::core::error_chain;
use std::io;
use std::thread::{Builder, JoinHandle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A thread ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadExit {
    /// Which.
    pub name: &'static str,
    /// Why, if it said so.
    pub reason: Option<String>,
}

/// Starts threads and hears of their ends.
pub struct Supervisor {
    exits: UnboundedSender<ThreadExit>,
    receiver: Option<UnboundedReceiver<ThreadExit>>,
}

impl Default for Supervisor {
    fn default() -> Self {
        let (ends, heard) = unbounded_channel();
        Supervisor {
            exits: ends,
            receiver: Some(heard),
        }
    }
}

impl Supervisor {
    /// Starts a thread that the agent cannot do without.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn spawn_supervised<E: std::error::Error>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let ends = self.exits.clone();
        Builder::new().name(name.to_owned()).spawn(move || {
            let mut notifier = ExitNotifier {
                ends,
                exit: ThreadExit { name, reason: None },
            };
            if let Err(error) = work() {
                notifier.exit.reason = Some(error_chain(&error));
            }
        })
    }

    /// Where ends are heard; once.
    pub fn take_exits(&mut self) -> UnboundedReceiver<ThreadExit> {
        self.receiver
            .take()
            .unwrap_or_else(|| unbounded_channel().1)
    }
}

/// Tells of the end, whichever it is.
struct ExitNotifier {
    ends: UnboundedSender<ThreadExit>,
    exit: ThreadExit,
}

impl Drop for ExitNotifier {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.exit.reason = Some("it panicked; the message is above in the log".to_owned());
        }
        // Nobody hears it any more when the agent is going down already.
        let _ = self.ends.send(self.exit.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_told_with_its_name() {
        let mut supervisor = Supervisor::default();
        let mut ends = supervisor.take_exits();
        let mut end = |work: fn() -> Result<(), io::Error>| {
            let thread = supervisor.spawn_supervised("watcher", work).unwrap();
            // A panic is an end like others here.
            let _ = thread.join();
            ends.try_recv().unwrap()
        };
        let ended = |why: Option<&str>| ThreadExit {
            name: "watcher",
            reason: why.map(str::to_owned),
        };
        assert_eq!(end(|| Ok(())), ended(None));
        assert_eq!(
            end(|| Err(io::Error::other("no more"))),
            ended(Some("no more"))
        );
        let panicked = end(|| panic!("on purpose"));
        assert_eq!(
            panicked,
            ended(Some("it panicked; the message is above in the log"))
        );
    }
}
