//! Supervision of the agent's threads: each has a name, and no thread ends unnoticed.
//!
//! The end of a *supervised* thread, by return, error or panic, is reported once with its name. The
//! first one to end makes the agent stop the others in order. Enforcement continues in the kernel
//! meanwhile, and the service manager restarts the agent.

use palisade_text::error_chain;
use std::io;
use std::thread::{Builder, JoinHandle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The end of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadExit {
    /// Its name.
    pub name: &'static str,
    /// Its error, if there was one.
    pub reason: Option<String>,
}

/// Starts threads and receives their exits.
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
    /// Starts a supervised thread.
    ///
    /// # Errors
    /// If the thread cannot be created.
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

    /// The receiver of exits; can be taken once.
    pub fn take_exits(&mut self) -> UnboundedReceiver<ThreadExit> {
        self.receiver
            .take()
            .unwrap_or_else(|| unbounded_channel().1)
    }
}

/// Reports the exit of the thread when dropped.
struct ExitNotifier {
    ends: UnboundedSender<ThreadExit>,
    exit: ThreadExit,
}

impl Drop for ExitNotifier {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.exit.reason = Some("it panicked; the message is above in the log".to_owned());
        }
        // During shutdown there is no receiver any more.
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
            // A panic is reported as an exit too.
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
