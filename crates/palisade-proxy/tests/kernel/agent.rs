//! An agent that reads offers and reports, and confirms all offers, or those that a test names.

use palisade_proxy::{AnswerConnection, AnswerListener, AnswerOffer, ProxyMessage, ProxyReport};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The agent, until dropped.
pub(crate) struct TestAgent {
    offers: Receiver<AnswerOffer>,
    reports: Receiver<ProxyReport>,
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
        let (reporter, reports) = channel();
        std::thread::spawn(move || {
            while let Ok(Some(message)) = reader.read() {
                let offer = match message {
                    ProxyMessage::Offer(offer) => offer,
                    ProxyMessage::Report(report) => {
                        // Few tests look at it.
                        let _ = reporter.send(*report);
                        continue;
                    }
                };
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
        TestAgent {
            offers,
            reports,
            connection,
        }
    }

    /// The next offer.
    pub(crate) fn read(&self) -> AnswerOffer {
        self.offers.recv_timeout(Duration::from_secs(3)).unwrap()
    }

    /// The next report.
    pub(crate) fn read_report(&self) -> ProxyReport {
        self.reports.recv_timeout(Duration::from_secs(3)).unwrap()
    }

    /// The last report that came until the proxy ended.
    pub(crate) fn read_last_report(&self) -> ProxyReport {
        let mut last = self.read_report();
        // Fails when the reading thread has ended with the connection.
        while let Ok(report) = self.reports.recv_timeout(Duration::from_secs(3)) {
            last = report;
        }
        last
    }

    /// Whether nothing is reported for more than a period.
    pub(crate) fn is_silent(&self) -> bool {
        let patience = Duration::from_millis(1_500);
        self.reports.recv_timeout(patience).is_err()
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
