//! The agent's side: a socket at which the proxy offers the addresses of answers, and reports its counts.
//!
//! Promises: the socket is readable and writable by its owner alone from the moment it has its name; a line longer than
//! the longest offer, and more connections than proxies can be, are refused.
//!
//! Never: judges an offer.

use crate::AnswerLinkError;
use crate::offer::{AgentMessage, AnswerOffer, LONGEST_LINE, OfferConfirmation};
use crate::private_socket::bind_private;
use crate::report::{ProxyReport, REPORT_PREFIX};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a confirmation may take to be written.
const LONGEST_WRITE: Duration = Duration::from_millis(100);
/// One proxy and its successor, each with a connection that may end soon.
const MOST_CONNECTIONS: usize = 4;

/// The socket at which the proxy finds the agent. It blocks: it has a thread of its own.
#[derive(Debug)]
pub struct AnswerListener {
    listener: UnixListener,
    open: Arc<AtomicUsize>,
}

/// What the proxy sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyMessage {
    /// It holds an answer until this is confirmed.
    Offer(AnswerOffer),
    /// What it counted.
    Report(Box<ProxyReport>),
}

/// A connection of the proxy. Offers are read in one thread, and can be confirmed by [`AnswerConnection::try_clone`] in
/// another.
#[derive(Debug)]
pub struct AnswerConnection {
    reader: BufReader<UnixStream>,
    /// A report could not be read; the log says so once.
    has_strange_reports: bool,
    _place: Arc<ConnectionPlace>,
}

/// One of the connections that may be open.
#[derive(Debug)]
struct ConnectionPlace(Arc<AtomicUsize>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl AsFd for AnswerListener {
    /// For waiting until a connection can be accepted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl AnswerListener {
    /// Makes the socket; one that a former process left is replaced.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn bind(path: &Path) -> Result<Self, AnswerLinkError> {
        let listener = bind_private(path).map_err(|source| AnswerLinkError::Bind {
            path: path.to_owned(),
            source,
        })?;
        Ok(AnswerListener {
            listener,
            open: Arc::default(),
        })
    }

    /// Waits for a connection of the proxy. One beyond the bound is closed, and the next is waited for.
    ///
    /// # Errors
    /// If none can be accepted.
    pub fn accept(&self) -> Result<AnswerConnection, AnswerLinkError> {
        loop {
            let (stream, _) = self.listener.accept().map_err(AnswerLinkError::Accept)?;
            // A proxy that hangs does not hold up whoever confirms.
            let limited = stream.set_write_timeout(Some(LONGEST_WRITE));
            limited.map_err(AnswerLinkError::Accept)?;
            let open = self.open.fetch_add(1, Ordering::AcqRel);
            let place = ConnectionPlace(Arc::clone(&self.open));
            if open < MOST_CONNECTIONS {
                return Ok(AnswerConnection {
                    reader: BufReader::new(stream),
                    has_strange_reports: false,
                    _place: Arc::new(place),
                });
            }
        }
    }
}

impl AnswerConnection {
    /// Waits for the next message; `None` if the proxy has closed the connection. A report that cannot be read is left
    /// out: what it is for is not worth an answer.
    ///
    /// # Errors
    /// If an offer cannot be read; the connection is of no further use.
    pub fn read(&mut self) -> Result<Option<ProxyMessage>, AnswerLinkError> {
        loop {
            let Some(line) = self.read_line()? else {
                return Ok(None);
            };
            let Some(report) = line.strip_prefix(REPORT_PREFIX) else {
                let offer = serde_json::from_slice(&line).map_err(AnswerLinkError::Parse)?;
                return Ok(Some(ProxyMessage::Offer(offer)));
            };
            match ProxyReport::read(report) {
                Ok(report) => return Ok(Some(ProxyMessage::Report(Box::new(report)))),
                Err(error) if !self.has_strange_reports => {
                    self.has_strange_reports = true;
                    tracing::warn!(%error, "counts of the DNS proxy cannot be read; metrics do without them");
                }
                Err(_) => {}
            }
        }
    }

    /// The next line, with its end.
    fn read_line(&mut self) -> Result<Option<Vec<u8>>, AnswerLinkError> {
        let mut line = Vec::new();
        let mut reader = self.reader.by_ref().take(LONGEST_LINE as u64);
        let length = reader.read_until(b'\n', &mut line);
        let length = length.map_err(AnswerLinkError::Read)?;
        match (length, line.last()) {
            (0, _) => Ok(None),
            (_, Some(b'\n')) => Ok(Some(line)),
            (LONGEST_LINE, _) => Err(AnswerLinkError::LongOffer(LONGEST_LINE)),
            // The proxy went in the middle of a line.
            _ => Ok(None),
        }
    }

    /// Confirms an offer: its addresses are in force, or will not be. The answer is released.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn confirm(&mut self, id: u64) -> Result<(), AnswerLinkError> {
        self.send(AgentMessage::Confirmed(OfferConfirmation { id }))
            .map_err(|source| AnswerLinkError::Confirm { id, source })
    }

    /// Withdraws what was confirmed for a client: it may be in force no longer, and its next answers wait again.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn withdraw(&mut self, client: IpAddr) -> Result<(), AnswerLinkError> {
        self.send(AgentMessage::Withdrawn { client })
            .map_err(|source| AnswerLinkError::Withdraw { client, source })
    }

    fn send(&mut self, message: AgentMessage) -> io::Result<()> {
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        let written = self.reader.get_ref().write_all(&line);
        if written.is_err() {
            // A part of the line may be written, and a proxy that hangs must not hold up the next one either.
            self.close();
        }
        written
    }

    /// The same connection, to confirm by; it reads nothing that this one has begun to read.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> Result<AnswerConnection, AnswerLinkError> {
        let stream = self.reader.get_ref().try_clone();
        Ok(AnswerConnection {
            reader: BufReader::new(stream.map_err(AnswerLinkError::Accept)?),
            has_strange_reports: false,
            _place: Arc::clone(&self._place),
        })
    }

    /// Ends the connection from another thread: reading returns `None`.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.reader.get_ref().shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    const OFFER: &[u8] = br#"{"id":7,"client":"10.0.0.1","server":"192.0.2.1:53","name":"a.example","addresses":[]}"#;

    /// The number of the next offer; `None` at the end.
    fn read_offer(connection: &mut AnswerConnection) -> Option<u64> {
        match connection.read().unwrap()? {
            ProxyMessage::Offer(offer) => Some(offer.id),
            ProxyMessage::Report(report) => panic!("{report:?}"),
        }
    }

    fn listen() -> (tempfile::TempDir, PathBuf, AnswerListener) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.sock");
        let listener = AnswerListener::bind(&path).unwrap();
        (folder, path, listener)
    }

    #[test]
    fn offers_are_read_and_confirmed() {
        let (folder, path, listener) = listen();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let mut proxy = UnixStream::connect(&path).unwrap();
        proxy.write_all(&[OFFER, b"\n"].concat()).unwrap();
        proxy.write_all(OFFER).unwrap();
        let mut connection = listener.accept().unwrap();
        assert_eq!(read_offer(&mut connection), Some(7));
        connection.try_clone().unwrap().confirm(7).unwrap();
        let mut line = [0; 9];
        proxy.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"{\"id\":7}\n");
        drop(proxy);
        assert_eq!(read_offer(&mut connection), None, "half an offer is none");
        // A successor takes the name.
        let successor = AnswerListener::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        assert_eq!(successor.accept().unwrap().read().unwrap(), None);
    }

    #[test]
    fn what_is_no_offer_is_refused() {
        let (_folder, path, listener) = listen();
        let mut peer = UnixStream::connect(&path).unwrap();
        let mut connection = listener.accept().unwrap();
        peer.write_all(b"{}\n").unwrap();
        let error = connection.read().unwrap_err();
        assert!(matches!(error, AnswerLinkError::Parse(_)), "{error}");
        let writer = std::thread::spawn(move || {
            // Fails once the reader is gone.
            let _ = peer.write_all(&vec![b'x'; LONGEST_LINE + 1]);
        });
        let error = connection.read().unwrap_err();
        assert!(matches!(error, AnswerLinkError::LongOffer(_)), "{error}");
        drop(connection);
        writer.join().unwrap();
    }

    #[test]
    fn connections_are_bounded() {
        let (_folder, path, listener) = listen();
        let peers: Vec<_> = (0..=MOST_CONNECTIONS)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        let mut connections: Vec<_> = (0..MOST_CONNECTIONS)
            .map(|_| listener.accept().unwrap())
            .collect();
        let acceptor = std::thread::spawn(move || listener.accept().unwrap());
        // The one too many is closed.
        let mut last = peers.last().unwrap();
        assert_eq!(last.read(&mut [0]).unwrap(), 0);
        connections.pop();
        let mut late = UnixStream::connect(&path).unwrap();
        late.write_all(&[OFFER, b"\n"].concat()).unwrap();
        let mut connection = acceptor.join().unwrap();
        assert_eq!(read_offer(&mut connection), Some(7));
    }

    #[test]
    fn a_report_that_cannot_be_read_is_left_out() {
        let (_folder, path, listener) = listen();
        let mut proxy = UnixStream::connect(&path).unwrap();
        let report = ProxyReport {
            proxy: crate::ProxyId::new(5),
            counts: crate::ProxyCounts::default(),
        };
        let line = report.line().unwrap();
        for part in [
            &b"report \nreport {}\n"[..],
            &line[..line.len() / 2],
            b"\n",
            &line,
            OFFER,
            b"\n",
            // Cut short by the end.
            &line[..line.len() - 1],
        ] {
            proxy.write_all(part).unwrap();
        }
        drop(proxy);
        let mut connection = listener.accept().unwrap();
        let expected = ProxyMessage::Report(Box::new(report));
        assert_eq!(connection.read().unwrap(), Some(expected));
        assert_eq!(read_offer(&mut connection), Some(7));
        assert_eq!(read_offer(&mut connection), None);
    }
}
