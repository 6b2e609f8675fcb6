//! A page that is served at a port of this machine, and a client without a browser.

use crate::fixtures::FakeAgent;
use palisade_page::{PageLimits, PageSettings, RouterUpstream, serve};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// A page that is served until this is dropped.
pub(crate) struct ServedPage {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServedPage {
    pub(crate) fn start(agent: &FakeAgent, token: Option<&str>, limits: PageLimits) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (sender, receiver) = std::sync::mpsc::channel();
        let upstream = Arc::new(RouterUpstream(agent.router()));
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = PageSettings::new(loopback, token)
            .unwrap()
            .with_limits(limits);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind(settings.address()).await;
                let listener = listener.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                let shutdown = async {
                    let _ = stopped.await;
                };
                serve(listener, settings, upstream, shutdown).await;
            });
        });
        ServedPage {
            address: receiver.recv().unwrap(),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        let limit = Some(Duration::from_secs(10));
        stream.set_read_timeout(limit).unwrap();
        stream
    }

    /// Sends a request on a connection of its own, and returns all that is answered until it ends.
    pub(crate) fn ask(&self, target: &str) -> String {
        let mut stream = self.connect();
        write_request(&mut stream, target, "connection: close\r\n");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for ServedPage {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

pub(crate) fn write_request(stream: &mut TcpStream, target: &str, headers: &str) {
    let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
}

/// Reads until the text contains this.
pub(crate) fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.contains(wanted) {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("ended before {wanted}: {text}"),
            Ok(read) => text.push_str(&String::from_utf8_lossy(&buffer[..read])),
            Err(error) => panic!("{error} before {wanted}: {text}"),
        }
    }
    text
}
