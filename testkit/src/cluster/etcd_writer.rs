//! Writes many objects straight into etcd, behind the API server: a cluster's content in seconds, and its churn at
//! a steady rate.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
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
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).map_err(&failed)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).map_err(&failed)?;
        if head.starts_with("HTTP/1.1 200") {
            return Ok(());
        }
        Err(RuntimeError::Refused {
            program: format!("etcd, {path}"),
            said: format!("{head}{}", String::from_utf8_lossy(&answer)),
        })
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
