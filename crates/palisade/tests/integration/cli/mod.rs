//! The command line: the real program on small directories of manifests, without kernel access and
//! privileges. Does not test packets.

mod audit;
mod configuration;
mod connections;
mod convert;
mod dump;
mod examples;
mod explain;
mod explain_hosts;
mod hostile;
mod lint;
mod lint_services;
mod lockout;
mod preview;
mod scenarios;
mod usage;
mod validate;

use palisade_testkit::spelling::misspelled_keys;
use serde_json::Value;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use tempfile::TempDir;

/// A directory of manifests.
struct World(TempDir);

/// Held while a file is written and while a program is started: a child that another thread forks meanwhile
/// has the file open for writing until its exec, and a file open for writing is, correctly, neither read nor
/// executable.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Exit code and output of a command.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl World {
    /// A directory with these files.
    fn of(files: &[(&str, &str)]) -> Self {
        let world = World(tempfile::tempdir().unwrap());
        let _alone = alone();
        for (name, text) in files {
            let path = world.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        world
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command with `-f` this directory; the rest is split at spaces.
    fn run(&self, command: &str, rest: &str) -> Ran {
        let mut args = vec![command, "-f", self.path()];
        args.extend(rest.split_whitespace());
        let mut ran = run(&args);
        // Messages contain the directory, whose name is random.
        for text in [&mut ran.out, &mut ran.err] {
            *text = text.replace(&format!("{}/", self.path()), "");
        }
        ran
    }

    /// The same with `-o json`.
    fn json(&self, command: &str, rest: &str) -> Value {
        self.run(command, &format!("-o json {rest}")).json()
    }
}

impl Ran {
    fn json(&self) -> Value {
        let value: Value = serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{self:?}"));
        assert_eq!(value["apiVersion"], "palisade.io/v1");
        assert_eq!(misspelled_keys(&value), [""; 0], "{value:#}");
        value
    }
}

fn run(args: &[&str]) -> Ran {
    run_with(args, "")
}

fn run_with(args: &[&str], input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.args(args).env_remove("PALISADE_SOCKET");
    finish(command, input)
}

fn finish(mut command: Command, input: &str) -> Ran {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = {
        let _alone = alone();
        command.spawn().unwrap()
    };
    // A command that does not read its standard input may exit before it is written.
    let written = child.stdin.take().unwrap().write_all(input.as_bytes());
    if let Err(error) = written {
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    }
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Two pods with known addresses in two namespaces.
const PODS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: sales}}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  containers:
  - {name: c, image: i, ports: [{name: http, containerPort: 8080}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}, {ip: "fd00:1::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: guest, namespace: other, labels: {app: guest}}
status: {phase: Running, podIP: 10.1.0.2, podIPs: [{ip: 10.1.0.2}, {ip: "fd00:1::2"}]}
"#;

/// A NetworkPolicy shop/p for every pod of the namespace; `spec` is the rest of its spec on one line.
fn policy(spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p, namespace: shop}}\n\
         spec: {{podSelector: {{}}, {spec}}}\n"
    )
}
