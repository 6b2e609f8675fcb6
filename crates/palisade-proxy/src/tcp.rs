//! Queries over TCP: several on a connection, each with its length before it.
//!
//! Promises: a connection towards the server exists only from the first allowed query on; answers come in the order of
//! the server, refusals at once; what a connection holds is bounded, and one on which nothing moves is closed; a client
//! that has sent all still gets its answers; giant answers are read one at a time. Source: RFC 7766.
//!
//! Never: passes a second answer to a query, so zones are not transferred.

use crate::answers::MatchedAnswer;
use crate::clock::ProxyClock;
use crate::config::{Config, TcpLimits};
use crate::counts::SharedCounts;
use crate::query_judge::{QueryJudge, QueryVerdict};
use crate::sockets::open_stream_socket;
use crate::teacher::AnswerTeacher;
use palisade_dns::{Exchange, PassedQuery, PendingLimits, PendingQueries};
use palisade_model::Protocol;
use socket2::SockRef;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

/// An answer longer than this is a giant one: it has hundreds of addresses, which cost proxy and agent time.
const GIANT_ANSWER: usize = 8_192;

/// The pause after a failure of a listening socket, which would repeat at once.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// The proxy of all queries over TCP.
#[derive(Debug)]
pub(crate) struct TcpProxy {
    judge: Rc<QueryJudge>,
    teacher: Rc<AnswerTeacher>,
    clock: ProxyClock,
    counts: SharedCounts,
    upstream_mark: u32,
    answer_mark: u32,
    limits: TcpLimits,
    clients: RefCell<BTreeMap<IpAddr, usize>>,
    /// Taken by a giant answer until it has taught: one at a time, so that others wait for one at most.
    giant_turn: Arc<Semaphore>,
}

/// One of the connections that may be open.
struct TcpPlace {
    proxy: Rc<TcpProxy>,
    client: IpAddr,
}

/// A connection of a client.
struct ClientConnection {
    proxy: Rc<TcpProxy>,
    exchange: Exchange,
    mark: u32,
    pending: RefCell<PendingQueries>,
    /// Room for one query each, taken until its answer is written.
    room: Arc<Semaphore>,
    /// The room of the queries that wait for the server.
    waiting: RefCell<Vec<OwnedSemaphorePermit>>,
}

/// An answer on its way to the client.
struct StreamAnswer {
    message: Vec<u8>,
    /// Its room, given back when it is written.
    room: Option<OwnedSemaphorePermit>,
    /// From when on the proxy has it, by [`ProxyClock::elapsed`]; `None` if it is the proxy's own.
    since: Option<Duration>,
}

type AnswerSender = mpsc::UnboundedSender<StreamAnswer>;
type AnswerReceiver = mpsc::UnboundedReceiver<StreamAnswer>;

impl Drop for TcpPlace {
    fn drop(&mut self) {
        let mut clients = self.proxy.clients.borrow_mut();
        if let Some(connections) = clients.get_mut(&self.client) {
            *connections -= 1;
            if *connections == 0 {
                clients.remove(&self.client);
            }
        }
        self.proxy.counts.update(|counts| counts.tcp.open -= 1);
    }
}

impl TcpProxy {
    /// Without connections.
    pub(crate) fn new(
        config: &Config,
        judge: Rc<QueryJudge>,
        teacher: Rc<AnswerTeacher>,
        clock: ProxyClock,
        counts: SharedCounts,
    ) -> Self {
        TcpProxy {
            judge,
            teacher,
            clock,
            counts,
            upstream_mark: config.upstream_mark,
            answer_mark: config.answer_mark,
            limits: config.limits.tcp.clone(),
            clients: RefCell::default(),
            giant_turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// The turn of an answer; `None` if it needs none.
    async fn take_turn(&self, answer: &[u8]) -> Option<OwnedSemaphorePermit> {
        if answer.len() <= GIANT_ANSWER {
            return None;
        }
        let turn = Arc::clone(&self.giant_turn).acquire_owned().await;
        turn.ok()
    }

    /// Serves the connections of one listening socket, for ever.
    pub(crate) async fn serve(self: Rc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, client)) = listener.accept().await else {
                sleep(FAILURE_PAUSE).await;
                continue;
            };
            let Some(place) = self.take_place(client.ip()) else {
                continue;
            };
            let proxy = Rc::clone(&self);
            spawn_local(async move {
                // Fails if the client is gone already.
                if let Ok(connection) = proxy.open_connection(&stream, client) {
                    connection.serve(stream).await;
                }
                drop(place);
            });
        }
    }

    /// A place for one more connection of a client, if no bound is reached.
    fn take_place(self: &Rc<Self>, client: IpAddr) -> Option<TcpPlace> {
        let mut clients = self.clients.borrow_mut();
        let open: usize = clients.values().sum();
        let connections = clients.get(&client).copied().unwrap_or_default();
        if open >= self.limits.connections || connections >= self.limits.connections_of_client {
            self.counts.update(|counts| counts.tcp.refused += 1);
            return None;
        }
        clients.insert(client, connections + 1);
        self.counts.update(|counts| {
            counts.tcp.accepted += 1;
            counts.tcp.open += 1;
        });
        Some(TcpPlace {
            proxy: Rc::clone(self),
            client,
        })
    }

    fn open_connection(
        self: &Rc<Self>,
        stream: &TcpStream,
        client: SocketAddr,
    ) -> io::Result<Rc<ClientConnection>> {
        let socket = SockRef::from(stream);
        let mark = socket.mark()?;
        if mark == 0 {
            self.counts.update(|counts| counts.tcp.unmarked += 1);
            return Err(io::ErrorKind::InvalidData.into());
        }
        // By its mark the kernel would take what is sent to the client for a packet of the client.
        socket.set_mark(self.answer_mark)?;
        stream.set_nodelay(true)?;
        let limits = PendingLimits {
            timeout: Duration::MAX,
            queries_of_client: self.limits.pending,
            queries: self.limits.pending,
        };
        Ok(Rc::new(ClientConnection {
            proxy: Rc::clone(self),
            exchange: Exchange {
                client,
                server: stream.local_addr()?,
            },
            mark,
            pending: RefCell::new(PendingQueries::new(limits)),
            room: Arc::new(Semaphore::new(self.limits.pending)),
            waiting: RefCell::default(),
        }))
    }
}

impl ClientConnection {
    /// Serves the connection until either end has no more to say.
    async fn serve(self: Rc<Self>, stream: TcpStream) {
        let (reader, writer) = stream.into_split();
        let (sender, receiver) = mpsc::unbounded_channel();
        let queries = async {
            Rc::clone(&self).pass_queries(reader, sender).await;
            // The writer ends the connection, when all answers are written.
            pending::<()>().await;
        };
        tokio::select! {
            () = self.write_answers(receiver, writer) => {}
            () = queries => {}
        }
    }

    /// Passes the client's queries on until it has no more, or the server has closed.
    async fn pass_queries(self: Rc<Self>, mut reader: OwnedReadHalf, sender: AnswerSender) {
        let mut upstream: Option<OwnedWriteHalf> = None;
        let mut tasks = JoinSet::new();
        loop {
            let message = tokio::select! {
                message = self.read_query(&mut reader) => message,
                Some(_) = tasks.join_next() => return,
            };
            let Some((message, room)) = message else {
                break;
            };
            let arrival = self.proxy.clock.elapsed();
            let verdict = self.proxy.judge.judge(Protocol::TCP, self.mark, &message);
            match verdict {
                QueryVerdict::Drop => return,
                QueryVerdict::Reject(answer) => {
                    // Fails if the writer has ended, and the connection with it.
                    let _ = sender.send(StreamAnswer {
                        message: answer,
                        room: Some(room),
                        since: None,
                    });
                }
                QueryVerdict::Pass(query) => {
                    let writer = match &mut upstream {
                        Some(writer) => writer,
                        None => {
                            let Some((reader, writer)) = self.connect().await else {
                                return;
                            };
                            let connection = Rc::clone(&self);
                            tasks.spawn_local(connection.read_answers(reader, sender.clone()));
                            upstream.insert(writer)
                        }
                    };
                    let delay = self.proxy.clock.elapsed().saturating_sub(arrival);
                    let passed = PassedQuery { query, delay };
                    if !self.pass_on(passed, &message, room, writer).await {
                        return;
                    }
                }
            }
        }
        self.finish(upstream, tasks).await;
    }

    /// The client has sent all: waits for the answers that are missing.
    async fn finish(&self, upstream: Option<OwnedWriteHalf>, mut tasks: JoinSet<()>) {
        let Some(mut writer) = upstream else { return };
        // Fails if the server is gone; then its answers have ended too.
        let _ = writer.shutdown().await;
        let all_room = u32::try_from(self.proxy.limits.pending).unwrap_or(u32::MAX);
        let all_answered = async {
            tokio::select! {
                _ = self.room.acquire_many(all_room) => {}
                _ = tasks.join_next() => {}
            }
        };
        let _ = timeout(self.proxy.limits.idle, all_answered).await;
    }

    /// The next query, when there is room for it; `None` if there is none or nothing moves.
    async fn read_query(
        &self,
        reader: &mut OwnedReadHalf,
    ) -> Option<(Vec<u8>, OwnedSemaphorePermit)> {
        let read = async {
            let room = Arc::clone(&self.room).acquire_owned().await.ok()?;
            let message = read_message(reader).await.ok()??;
            Some((message, room))
        };
        let message = timeout(self.proxy.limits.idle, read).await;
        message.unwrap_or_else(|_| {
            self.proxy.counts.update(|counts| counts.tcp.idle += 1);
            None
        })
    }

    async fn connect(&self) -> Option<(OwnedReadHalf, OwnedWriteHalf)> {
        let connect = async {
            let socket = open_stream_socket(self.exchange, self.proxy.upstream_mark)?;
            socket.connect(self.exchange.server).await
        };
        let Ok(Ok(stream)) = timeout(self.proxy.limits.idle, connect).await else {
            let counts = &self.proxy.counts;
            counts.update(|counts| counts.upstream.failed += 1);
            return None;
        };
        Some(stream.into_split())
    }

    /// Sends a query to the server; whether it could be.
    async fn pass_on(
        &self,
        passed: PassedQuery,
        message: &[u8],
        room: OwnedSemaphorePermit,
        writer: &mut OwnedWriteHalf,
    ) -> bool {
        let now = self.proxy.clock.now();
        self.pending.borrow_mut().insert(self.exchange, passed, now);
        self.waiting.borrow_mut().push(room);
        let written = timeout(self.proxy.limits.idle, write_message(writer, message)).await;
        matches!(written, Ok(Ok(())))
    }

    /// Reads the server's answers until it has no more.
    async fn read_answers(self: Rc<Self>, mut reader: OwnedReadHalf, sender: AnswerSender) {
        let mut tasks = JoinSet::new();
        while let Ok(Some(answer)) = read_message(&mut reader).await {
            while tasks.try_join_next().is_some() {}
            let arrival = self.proxy.clock.elapsed();
            let turn = self.proxy.take_turn(&answer).await;
            let mut pending = self.pending.borrow_mut();
            let counts = &self.proxy.counts;
            let Some(matched) = MatchedAnswer::take(&mut pending, self.exchange, &answer, counts)
            else {
                continue;
            };
            let room = self.waiting.borrow_mut().pop();
            let (connection, sender) = (Rc::clone(&self), sender.clone());
            // From its arrival on the time counts as that of its query did.
            let since = Some(arrival.saturating_sub(matched.query_delay()));
            tasks.spawn_local(async move {
                matched.teach(&connection.proxy.teacher).await;
                drop(turn);
                let counts = &connection.proxy.counts;
                counts.update(|counts| counts.answers.released += 1);
                // Fails if the writer has ended, and the connection with it.
                let _ = sender.send(StreamAnswer {
                    message: answer,
                    room,
                    since,
                });
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Counts the time that an answer took that is written now.
    fn observe_latency(&self, since: Option<Duration>) {
        if let Some(since) = since {
            let latency = self.proxy.clock.elapsed().saturating_sub(since);
            let counts = &self.proxy.counts;
            counts.update(|counts| counts.latency.observe(latency));
        }
    }

    /// Writes what is sent to the client, until there is no more or the client takes nothing.
    async fn write_answers(&self, mut receiver: AnswerReceiver, mut writer: OwnedWriteHalf) {
        while let Some(answer) = receiver.recv().await {
            let write = write_message(&mut writer, &answer.message);
            match timeout(self.proxy.limits.idle, write).await {
                Ok(Ok(())) => {
                    self.observe_latency(answer.since);
                    drop(answer.room);
                }
                Ok(Err(_)) => return,
                Err(_) => {
                    self.proxy.counts.update(|counts| counts.tcp.idle += 1);
                    return;
                }
            }
        }
        // Fails if the client is gone.
        let _ = writer.shutdown().await;
    }
}

/// Reads one message; `None` at the end. Source: RFC 1035, section 4.2.2.
async fn read_message(reader: &mut OwnedReadHalf) -> io::Result<Option<Vec<u8>>> {
    let length = match reader.read_u16().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        length => length?,
    };
    let mut message = vec![0; usize::from(length)];
    reader.read_exact(&mut message).await?;
    Ok(Some(message))
}

async fn write_message(writer: &mut OwnedWriteHalf, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let framed = [&length.to_be_bytes(), message].concat();
    writer.write_all(&framed).await
}
