//! The ways in which the server fails: once, or for as long as it is told to.

use super::FakeApiServer;
use std::time::Duration;

/// How the server fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiFault {
    /// The next request is answered with this status.
    Status(u16),
    /// The next watch ends in the middle of its first object.
    CutObject,
    /// The next event of a watch ends in its middle, and with it the connection.
    CutEvent,
    /// The next list, a page or the first events of a watch, ends in its middle.
    CutList,
    /// The next watch reports an error object with this status.
    WatchError(u16),
    /// The next write is answered with this status.
    Write(u16),
    /// The next request is answered with bytes that are no HTTP.
    Garbage,
}

impl FakeApiServer {
    /// Adds a fault; each happens once, in order.
    pub fn add_fault(&self, fault: ApiFault) {
        self.shared.lock().faults.push_back(fault);
    }

    /// Whether it has a resource of the Network Policy API; its objects go with it, without a word.
    pub fn set_installed(&self, path: &str, is_installed: bool) {
        let mut state = self.shared.lock();
        if is_installed {
            state.installed.insert(path.to_owned());
        } else {
            state.installed.remove(path);
            state.objects.remove(path);
        }
    }

    /// The number of faults that have not happened yet.
    pub fn waiting_faults(&self) -> usize {
        self.shared.lock().faults.len()
    }

    /// Whether watches may begin with a list.
    pub fn set_streaming_lists(&self, has: bool) {
        self.shared.lock().refused_streaming_lists = (!has).then_some(422);
    }

    /// Refuses watches that begin with a list, with this status.
    pub fn refuse_streaming_lists(&self, status: u16) {
        self.shared.lock().refused_streaming_lists = Some(status);
    }

    /// Stops or continues answering; connections stay open.
    pub fn set_paused(&self, is_paused: bool) {
        self.shared.lock().is_paused = is_paused;
        self.shared.changed.notify_all();
    }

    /// Ends all connections, and refuses others until it is up again.
    pub fn set_down(&self, is_down: bool) {
        let mut state = self.shared.lock();
        state.is_down = is_down;
        if is_down {
            state.close_connections();
        }
        self.shared.changed.notify_all();
    }

    /// Ends all connections.
    pub fn cut_connections(&self) {
        self.shared.lock().close_connections();
    }

    /// Answers requests and sends events with this delay in their middle; zero: at once.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Forgets the faults that have not happened yet; returns their number.
    pub fn clear_faults(&self) -> usize {
        std::mem::take(&mut self.shared.lock().faults).len()
    }

    /// The port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}
