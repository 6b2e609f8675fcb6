//! The proxy: one thread that serves all listening sockets.
//!
//! Promises: it serves from the return of [`Proxy::start`] until it is stopped or dropped, in the network namespace of
//! the thread that started it.
//!
//! Never: ends for what a client, a server or the agent does.

use crate::ProxyError;
use crate::clock::ProxyClock;
use crate::config::Config;
use crate::counts::{ProxyCounts, SharedCounts};
use crate::listeners::Listeners;
use crate::query_judge::QueryJudge;
use crate::tcp::TcpProxy;
use crate::teacher::AnswerTeacher;
use crate::udp::UdpProxy;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

/// How often a proxy that ends looks whether something waits.
const DRAIN_PERIOD: Duration = Duration::from_millis(10);

/// A proxy that runs.
#[derive(Debug)]
pub struct Proxy {
    counts: SharedCounts,
    /// Dropped to stop the thread.
    stopper: Option<oneshot::Sender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts to serve these listening sockets, as [`crate::bind`] makes them.
    ///
    /// # Errors
    /// If a socket cannot be used or made, or there is no thread.
    pub fn start(config: Config, listeners: Listeners) -> Result<Proxy, ProxyError> {
        let counts = SharedCounts::default();
        let (stopper, stop) = oneshot::channel();
        let (report, reports) = mpsc::channel();
        let thread_counts = counts.clone();
        let thread = std::thread::Builder::new()
            .name("dns-proxy".to_owned())
            .spawn(move || run(config, listeners, thread_counts, stop, &report))
            .map_err(ProxyError::Thread)?;
        let proxy = Proxy {
            counts,
            stopper: Some(stopper),
            thread: Some(thread),
        };
        // Without a report the thread has ended.
        let ended = || ProxyError::Thread(std::io::ErrorKind::BrokenPipe.into());
        reports.recv().map_err(|_| ended())??;
        Ok(proxy)
    }

    /// What it did until now.
    #[must_use]
    pub fn counts(&self) -> ProxyCounts {
        self.counts.snapshot()
    }

    /// Ends it; connections are closed, and queries that wait have no answer.
    pub fn stop(self) {}

    /// Listens no longer, and ends when no query and no connection waits any more, or after this time.
    pub fn drain(mut self, patience: Duration) {
        if let Some(stopper) = self.stopper.take() {
            // Its thread has ended if this fails.
            let _ = stopper.send(patience);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopper = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by it.
            let _ = thread.join();
        }
    }
}

/// The thread of the proxy: reports whether it could start, and runs until it is stopped.
fn run(
    config: Config,
    listeners: Listeners,
    counts: SharedCounts,
    stop: oneshot::Receiver<Duration>,
    report: &mpsc::Sender<Result<(), ProxyError>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = report.send(Err(ProxyError::Thread(error)));
            return;
        }
    };
    LocalSet::new().block_on(&runtime, async {
        match serve(config, listeners, counts) {
            Ok(mut tasks) => {
                let _ = report.send(Ok(()));
                // Ends with an error when the other end is dropped: nothing is waited for.
                if let Ok(patience) = stop.await {
                    tasks.drain(patience).await;
                }
                tasks.teacher.report_last().await;
            }
            Err(error) => {
                let _ = report.send(Err(error));
            }
        }
    });
}

/// The tasks of a proxy; dropping them ends them.
struct ProxyTasks {
    /// Those that accept queries and connections.
    listening: JoinSet<()>,
    /// All others.
    _serving: JoinSet<()>,
    udp: Rc<UdpProxy>,
    teacher: Rc<AnswerTeacher>,
    counts: SharedCounts,
}

impl ProxyTasks {
    /// Ends those that listen, and waits until nothing waits for an answer.
    async fn drain(&mut self, patience: Duration) {
        self.listening.abort_all();
        let is_idle = async {
            while self.udp.has_pending()
                || self.teacher.has_held()
                || self.counts.snapshot().tcp.open > 0
            {
                sleep(DRAIN_PERIOD).await;
            }
        };
        // What waits longer is lost.
        let _ = timeout(patience, is_idle).await;
    }
}

/// Starts all tasks.
fn serve(
    config: Config,
    listeners: Listeners,
    counts: SharedCounts,
) -> Result<ProxyTasks, ProxyError> {
    let clock = ProxyClock::start();
    let teacher = Rc::new(AnswerTeacher::new(&config, clock, counts.clone()));
    let judge = Rc::new(QueryJudge::new(config.clone(), clock, counts.clone()));
    let udp = UdpProxy::new(
        &config,
        Rc::clone(&judge),
        Rc::clone(&teacher),
        clock,
        counts.clone(),
    );
    let udp = Rc::new(udp.map_err(ProxyError::Sender)?);
    let tcp = Rc::new(TcpProxy::new(
        &config,
        judge,
        Rc::clone(&teacher),
        clock,
        counts.clone(),
    ));
    let mut listening = JoinSet::new();
    for listener in listeners.udp {
        let nonblocking = listener.set_nonblocking(true);
        let listener = nonblocking.and_then(|()| UdpSocket::from_std(listener));
        let listener = listener.map_err(ProxyError::Listener)?;
        listening.spawn_local(Rc::clone(&udp).serve(listener));
    }
    for listener in listeners.tcp {
        let nonblocking = listener.set_nonblocking(true);
        let listener = nonblocking.and_then(|()| TcpListener::from_std(listener));
        let listener = listener.map_err(ProxyError::Listener)?;
        listening.spawn_local(Rc::clone(&tcp).serve(listener));
    }
    let mut serving = JoinSet::new();
    let expiring = Rc::clone(&udp);
    serving.spawn_local(async move { expiring.expire_queries().await });
    let teaching = Rc::clone(&teacher);
    serving.spawn_local(async move { teaching.run().await });
    Ok(ProxyTasks {
        listening,
        _serving: serving,
        udp,
        teacher,
        counts,
    })
}
