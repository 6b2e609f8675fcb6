//! The connection to the agent: offers and reports go out, confirmations come in, and answers are held in between.
//!
//! Promises: an answer is held for as long as the agent needs, and never longer than the hold; a connection that ends is
//! made again, and what was not confirmed is offered again.
//!
//! Never: drops an answer, whatever the agent does.

use crate::clock::ProxyClock;
use crate::config::Config;
use crate::counts::{ProxyCounts, SharedCounts};
use crate::offer::{AgentMessage, AnswerOffer, LONGEST_LINE, OfferConfirmation};
use crate::offer_queue::{AnswerOrigin, OfferQueue};
use crate::report::{ProxyId, ProxyReport};
use palisade_names::AnsweredAddress;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// The time after the first failure to reach the agent; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How often the agent is told what changed of the counts.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// How long a proxy that ends waits until the last report is sent.
const LAST_REPORT: Duration = Duration::from_millis(100);

/// Offers the addresses of answers to the agent.
#[derive(Debug)]
pub(crate) struct AnswerTeacher {
    queue: RefCell<OfferQueue>,
    /// An offer was added, or confirmed, so that one may be sent.
    changed: Notify,
    path: PathBuf,
    hold: Duration,
    longest_pause: Duration,
    most_answers: usize,
    answers: Cell<usize>,
    clock: ProxyClock,
    counts: SharedCounts,
    id: ProxyId,
    /// A report is asked for, and was sent.
    report_wanted: Notify,
    report_sent: Notify,
}

/// One of the answers that may be held, also if its connection ends meanwhile.
struct HoldPlace<'a>(&'a Cell<usize>);

impl<'a> HoldPlace<'a> {
    fn take(answers: &'a Cell<usize>) -> Self {
        answers.set(answers.get() + 1);
        HoldPlace(answers)
    }
}

impl Drop for HoldPlace<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl AnswerTeacher {
    /// No offers, and no connection until [`AnswerTeacher::run`].
    pub(crate) fn new(config: &Config, clock: ProxyClock, counts: SharedCounts) -> Self {
        let limits = config.limits.teaching.clone();
        AnswerTeacher {
            changed: Notify::new(),
            path: config.agent_socket.clone(),
            hold: config.hold,
            longest_pause: limits.reconnect,
            most_answers: limits.answers,
            answers: Cell::new(0),
            queue: RefCell::new(OfferQueue::new(limits)),
            clock,
            counts,
            id: ProxyId::draw(),
            report_wanted: Notify::new(),
            report_sent: Notify::new(),
        }
    }

    /// Offers the addresses of an answer, and returns when it may be released.
    pub(crate) async fn teach(&self, origin: AnswerOrigin, answered: &[AnsweredAddress]) {
        let receiver = {
            let mut queue = self.queue.borrow_mut();
            let dropped = queue.dropped();
            let receiver = queue.offer(origin, answered, self.clock.now());
            let dropped = queue.dropped() - dropped;
            self.counts
                .update(|counts| counts.offers.dropped += dropped);
            receiver
        };
        self.changed.notify_one();
        let Some(receiver) = receiver else { return };
        if self.answers.get() < self.most_answers {
            let _place = HoldPlace::take(&self.answers);
            if timeout(self.hold, receiver).await.is_ok() {
                return;
            }
        }
        self.counts
            .update(|counts| counts.answers.held_too_long += 1);
    }

    /// Whether answers wait for the agent.
    pub(crate) fn has_held(&self) -> bool {
        self.answers.get() > 0
    }

    /// Reports the counts at once, since the proxy ends. Without the agent they are lost.
    pub(crate) async fn report_last(&self) {
        if self.queue.borrow().is_connected() {
            self.report_wanted.notify_one();
            // An agent that hangs does not hold up the end.
            let _ = timeout(LAST_REPORT, self.report_sent.notified()).await;
        }
    }

    /// Keeps a connection to the agent, for ever.
    pub(crate) async fn run(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Ok(stream) = UnixStream::connect(&self.path).await {
                self.queue.borrow_mut().connect();
                self.counts.update(|counts| counts.offers.connections += 1);
                let start = Instant::now();
                let error = self.serve(stream).await;
                tracing::warn!(%error, "the connection to the agent ended; answers are released at once");
                self.queue.borrow_mut().disconnect();
                // An agent that closes each connection at once is not asked without pause.
                if start.elapsed() > self.longest_pause {
                    pause = FIRST_PAUSE;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.longest_pause);
        }
    }

    /// Serves one connection until it ends; returns why it did.
    async fn serve(&self, stream: UnixStream) -> io::Error {
        let (reader, writer) = stream.into_split();
        let outcome = tokio::select! {
            outcome = self.send_lines(writer) => outcome,
            outcome = self.read_confirmations(reader) => outcome,
        };
        match outcome {
            Ok(()) => io::ErrorKind::UnexpectedEof.into(),
            Err(error) => error,
        }
    }

    async fn send_lines(&self, mut writer: OwnedWriteHalf) -> io::Result<()> {
        let mut reports = interval(REPORT_PERIOD);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = None;
        loop {
            tokio::select! {
                // Offers without end do not keep the counts back.
                biased;
                _ = reports.tick() => self.report(&mut writer, &mut reported).await?,
                () = self.report_wanted.notified() => {
                    self.report(&mut writer, &mut reported).await?;
                    self.report_sent.notify_one();
                }
                offer = self.next_offer() => {
                    let mut line = serde_json::to_vec(&offer)?;
                    line.push(b'\n');
                    writer.write_all(&line).await?;
                    self.counts.update(|counts| counts.offers.sent += 1);
                }
            }
        }
    }

    /// Waits for the next offer to send.
    async fn next_offer(&self) -> AnswerOffer {
        loop {
            let offer = self.queue.borrow_mut().next_offer(self.clock.now());
            match offer {
                Some(offer) => return offer,
                None => self.changed.notified().await,
            }
        }
    }

    /// Sends the counts if they are not those that were reported last.
    async fn report(
        &self,
        writer: &mut OwnedWriteHalf,
        reported: &mut Option<ProxyCounts>,
    ) -> io::Result<()> {
        let counts = self.counts.snapshot();
        if *reported == Some(counts) {
            return Ok(());
        }
        let report = ProxyReport {
            proxy: self.id,
            counts,
        };
        writer.write_all(&report.line()?).await?;
        *reported = Some(counts);
        Ok(())
    }

    async fn read_confirmations(&self, reader: OwnedReadHalf) -> io::Result<()> {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut part = (&mut reader).take(LONGEST_LINE as u64);
            part.read_until(b'\n', &mut line).await?;
            if line.last() != Some(&b'\n') {
                return Ok(());
            }
            match serde_json::from_slice(&line)? {
                AgentMessage::Confirmed(OfferConfirmation { id }) => {
                    if self.queue.borrow_mut().confirm(id) {
                        self.counts.update(|counts| counts.offers.confirmed += 1);
                        self.changed.notify_one();
                    }
                }
                AgentMessage::Withdrawn { client } => self.queue.borrow_mut().withdraw(client),
            }
        }
    }
}
