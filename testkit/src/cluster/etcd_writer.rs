//! Writes many objects straight into etcd, behind the API server: a cluster's content in seconds, and its churn at
//! a steady rate.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::lab::netns;
use crate::runtimes::RuntimeError;

/// How many operations etcd accepts in one transaction.
const OPERATIONS: usize = 128;

/// A connection to etcd.
#[derive(Debug)]
pub struct EtcdWriter {
    stream: BufReader<TcpStream>,
}

/// A change of one key.
#[derive(Clone, Debug)]
pub enum EtcdChange {
    /// Sets the value of a key.
    Put(String, Value),
    /// Removes a key.
    Delete(String),
}

impl EtcdWriter {
    /// Connects to the etcd of a control plane in a network namespace.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn connect(namespace: &str) -> Result<Self, RuntimeError> {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, 2379));
        let stream = netns::run_in(namespace, connect)?;
        let stream = stream.map_err(RuntimeError::io_error("connecting to etcd"))?;
        let _ = stream.set_nodelay(true);
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Carries out changes, those of up to 128 keys at once.
    ///
    /// # Errors
    /// If etcd refuses.
    pub fn write(&mut self, changes: &[EtcdChange]) -> Result<(), RuntimeError> {
        for part in changes.chunks(OPERATIONS) {
            let operations: Vec<Value> = part.iter().map(operation).collect();
            self.post("/v3/kv/txn", &json!({"success": operations}))?;
        }
        Ok(())
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<(), RuntimeError> {
        let failed = RuntimeError::io_error("writing to etcd");
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let stream = self.stream.get_mut();
        stream.write_all(request.as_bytes()).map_err(&failed)?;
        let mut head = String::new();
        while self.read_line().map_err(&failed)?.is_some_and(|line| {
            head.push_str(&line);
            true
        }) {}
        let head = head.to_ascii_lowercase();
        let field = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.strip_prefix(name));
            fields.next().map(str::trim)
        };
        let mut answer = Vec::new();
        if field("transfer-encoding:") == Some("chunked") {
            loop {
                let size = self.read_line().map_err(&failed)?.unwrap_or_default();
                let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
                self.read_into(&mut answer, size).map_err(&failed)?;
                self.read_line().map_err(&failed)?;
                if size == 0 {
                    break;
                }
            }
        } else {
            let length = field("content-length:").and_then(|length| length.parse().ok());
            self.read_into(&mut answer, length.unwrap_or(0))
                .map_err(&failed)?;
        }
        if head.starts_with("http/1.1 200") {
            return Ok(());
        }
        Err(RuntimeError::Refused {
            program: format!("etcd, {path}"),
            said: format!("{head}{}", String::from_utf8_lossy(&answer)),
        })
    }

    /// The next line; `None` if it is empty.
    fn read_line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok((!line.trim().is_empty()).then_some(line))
    }

    fn read_into(&mut self, answer: &mut Vec<u8>, length: usize) -> io::Result<()> {
        let before = answer.len();
        answer.resize(before + length, 0);
        self.stream.read_exact(&mut answer[before..])
    }
}

fn operation(change: &EtcdChange) -> Value {
    match change {
        EtcdChange::Put(key, value) => json!({"request_put": {
            "key": STANDARD.encode(key),
            "value": STANDARD.encode(value.to_string()),
        }}),
        EtcdChange::Delete(key) => json!({"request_delete_range": {"key": STANDARD.encode(key)}}),
    }
}
