//! An agent that reads offers, and confirms all of them, or those that a test names.

use palisade_proxy::{AnswerConnection, AnswerListener, AnswerOffer};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The agent, until dropped.
pub(crate) struct TestAgent {
    offers: Receiver<AnswerOffer>,
    connection: AnswerConnection,
}

impl TestAgent {
    /// Waits for the proxy.
    pub(crate) fn start(path: &Path, confirms: bool) -> Self {
        let listener = AnswerListener::bind(path).unwrap();
        let mut reader = listener.accept().unwrap();
        let mut confirmer = reader.try_clone().unwrap();
        let connection = reader.try_clone().unwrap();
        let (sender, offers) = channel();
        std::thread::spawn(move || {
            while let Ok(Some(offer)) = reader.read() {
                let id = offer.id;
                // The test may have ended.
                if sender.send(offer).is_err() {
                    return;
                }
                if confirms {
                    confirmer.confirm(id).unwrap();
                }
            }
        });
        TestAgent { offers, connection }
    }

    /// The next offer.
    pub(crate) fn read(&self) -> AnswerOffer {
        self.offers.recv_timeout(Duration::from_secs(3)).unwrap()
    }

    /// Whether there is no offer now.
    pub(crate) fn has_none(&self) -> bool {
        self.offers
            .recv_timeout(Duration::from_millis(100))
            .is_err()
    }

    /// Confirms an offer.
    pub(crate) fn confirm(&mut self, id: u64) {
        self.connection.confirm(id).unwrap();
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        self.connection.close();
    }
}
