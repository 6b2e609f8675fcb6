//! An etcd in a network namespace: alone, or beneath an API server.
//!
//! It keeps its data while it is killed and started again, at the same port or at another one. With TLS it has
//! a certificate for 127.0.0.1 and demands one of clients, whose common name is their user.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::certificates::Authority;
use super::process::{Process, command};
use crate::lab::netns;
use crate::runtimes::{RuntimeError, RuntimePrograms, run_to_end, write};

/// How long it may take until it answers; a busy machine is slow.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The port of its clients, unless another one is named.
const PORT: u16 = 2379;

/// Whether clients use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdTls {
    /// They do not.
    Off,
    /// They do, and must have a certificate.
    On,
}

/// An etcd, until dropped.
#[derive(Debug)]
pub struct EtcdServer {
    process: Option<Process>,
    programs: RuntimePrograms,
    namespace: String,
    folder: PathBuf,
    port: u16,
    tls: EtcdTls,
    /// The user and the password of the tool.
    user: Option<String>,
}

impl EtcdServer {
    /// Starts it in the network namespace of a name and waits until it answers. Its data, and with TLS the files
    /// `etcd-ca.crt`, `client.crt` and `client.key` (of the user `agent`), are in `folder`.
    ///
    /// # Errors
    /// If it does not come up, with the end of its log.
    pub fn start(
        namespace: &str,
        programs: &RuntimePrograms,
        folder: &Path,
        tls: EtcdTls,
    ) -> Result<Self, RuntimeError> {
        if tls == EtcdTls::On {
            let authority = Authority::new()?;
            let server = authority.issue("etcd", None, &[Ipv4Addr::LOCALHOST.into()], &[])?;
            let none: [IpAddr; 0] = [];
            let client = authority.issue("agent", None, &none, &[])?;
            for (name, text) in [
                ("etcd-ca.crt", authority.certificate()),
                ("etcd.crt", server.certificate),
                ("etcd.key", server.key),
                ("client.crt", client.certificate),
                ("client.key", client.key),
            ] {
                write(&folder.join(name), &text)?;
            }
        }
        let mut server = Self {
            process: None,
            programs: programs.clone(),
            namespace: namespace.to_owned(),
            folder: folder.to_owned(),
            port: PORT,
            tls,
            user: None,
        };
        server.restart(PORT)?;
        Ok(server)
    }

    /// Starts it again at a port, after killing it if it runs.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn restart(&mut self, port: u16) -> Result<(), RuntimeError> {
        self.kill();
        self.port = port;
        let endpoint = self.endpoint();
        let mut etcd = command(&self.programs.root().join("usr/bin/etcd"));
        etcd.arg("--data-dir")
            .arg(self.folder.join("etcd"))
            .args(["--listen-client-urls", &endpoint])
            .args(["--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", "http://127.0.0.1:2380"])
            .args(["--log-level", "warn", "--logger", "zap"])
            .args(["--quota-backend-bytes", "8589934592"]);
        if self.tls == EtcdTls::On {
            for (flag, name) in [
                ("--cert-file", "etcd.crt"),
                ("--key-file", "etcd.key"),
                ("--trusted-ca-file", "etcd-ca.crt"),
            ] {
                etcd.arg(flag).arg(self.folder.join(name));
            }
            etcd.arg("--client-cert-auth");
        }
        let mut process = Process::start("etcd", &self.namespace, &self.folder, etcd)?;
        let probe = || {
            let mut probe = self.tool(&["endpoint", "health"]);
            probe.stdout(Stdio::null()).stderr(Stdio::null());
            probe.status().is_ok_and(|status| status.success())
        };
        process.wait(TIMEOUT, || {
            netns::run_in(&self.namespace, probe).unwrap_or(false)
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Where clients reach it, in its namespace.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let scheme = match self.tls {
            EtcdTls::Off => "http",
            EtcdTls::On => "https",
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// The user, as `name:password`, of everything that follows; `None` for no user.
    pub fn log_in(&mut self, user: Option<&str>) {
        self.user = user.map(str::to_owned);
    }

    /// Forgets its history: watches that are behind must read everything again.
    ///
    /// # Errors
    /// If it refuses.
    pub fn compact(&self) -> Result<(), RuntimeError> {
        let status = self.etcdctl(&["endpoint", "status", "--write-out", "json"], "")?;
        let status: serde_json::Value =
            serde_json::from_str(&status).map_err(|source| RuntimeError::Answer {
                program: "etcdctl endpoint status".into(),
                answer: status,
                source,
            })?;
        let revision = &status[0]["Status"]["header"]["revision"];
        self.etcdctl(&["compact", &revision.to_string()], "")?;
        Ok(())
    }

    /// Runs its tool, with an input if that is not empty; returns what it printed.
    ///
    /// # Errors
    /// If it refuses.
    pub fn etcdctl(&self, arguments: &[&str], input: &str) -> Result<String, RuntimeError> {
        let program = format!("etcdctl {}", arguments.join(" "));
        netns::run_in(&self.namespace, || {
            let mut command = self.tool(arguments);
            if input.is_empty() {
                return run_to_end(command, &program);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let failed = RuntimeError::io_error("running etcdctl");
            let mut child = command.spawn().map_err(&failed)?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(input.as_bytes()).map_err(&failed)?;
            }
            let output = child.wait_with_output().map_err(&failed)?;
            if output.status.success() {
                return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(RuntimeError::Refused { program, said })
        })?
    }

    /// The end of its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }

    fn tool(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.programs.root().join("usr/bin/etcdctl"));
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint()]);
        if self.tls == EtcdTls::On {
            for (flag, name) in [
                ("--cacert", "etcd-ca.crt"),
                ("--cert", "client.crt"),
                ("--key", "client.key"),
            ] {
                command.arg(flag).arg(self.folder.join(name));
            }
        }
        if let Some(user) = &self.user {
            command.args(["--user", user]);
        }
        command.args(arguments);
        command
    }
}
