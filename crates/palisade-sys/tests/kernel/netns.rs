//! Named namespaces, parameters inside them, grace periods.

use crate::need_root;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use palisade_sys::grace::{GracePeriod, KernelGracePeriod};
use palisade_sys::netns::{NetNs, NetNsError, run_in};
use palisade_sys::sysctl::{KernelSysctl, Sysctl};

use crate::support::TestNetNs;

#[test]
fn a_handle_outlives_the_name() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("name");
    let name = test.named.name().to_owned();
    let before = NetNs::current().unwrap();
    assert_ne!(test.netns, before);
    assert_eq!(
        run_in(&test.netns, || NetNs::current().unwrap()).unwrap(),
        test.netns
    );
    assert_eq!(NetNs::current().unwrap(), before);
    assert_eq!(
        NetNs::open(&format!("/run/netns/{name}")).unwrap(),
        test.netns
    );
    let handle = test.netns.clone();
    drop(test);
    assert!(matches!(
        NetNs::open(&name),
        Err(NetNsError::Missing { .. })
    ));
    run_in(&handle, || ()).unwrap();
}

#[test]
fn a_namespace_tells_who_owns_it() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("owner");
    assert_eq!(test.netns.owner_uid().unwrap(), 0);
    let mut child = Command::new("setpriv")
        .args(["--reuid=4711", "--regid=4711", "--clear-groups", "--"])
        .args(["unshare", "--user", "--net", "sh", "-c"])
        .arg("echo ready; exec sleep 60")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let theirs = NetNs::open(&format!("/proc/{}/ns/net", child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(line, "ready\n");
    assert_eq!(theirs.unwrap().owner_uid().unwrap(), 4711);
}

#[test]
fn parameters_belong_to_their_namespace() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("sysctl");
    let other = TestNetNs::new("sysctl");
    let key = "net/ipv4/ip_forward";
    let mut sysctl = KernelSysctl::new(&test.netns);
    let elsewhere = KernelSysctl::new(&other.netns);
    sysctl.set(key, "0").unwrap();
    let theirs = elsewhere.get(key).unwrap();
    assert!(sysctl.set(key, "1").unwrap());
    assert!(!sysctl.set(key, "1").unwrap());
    assert_eq!(sysctl.get(key).unwrap(), "1");
    assert_eq!(elsewhere.get(key).unwrap(), theirs);
}

#[test]
fn a_grace_period_takes_milliseconds() {
    let mut grace = KernelGracePeriod::new().unwrap();
    let mut micros: Vec<_> = (0..30)
        .map(|_| {
            let start = Instant::now();
            grace.wait().unwrap();
            start.elapsed().as_micros()
        })
        .collect();
    micros.sort_unstable();
    eprintln!(
        "grace period: min {} median {} max {} µs",
        micros[0], micros[15], micros[29]
    );
    assert!(micros[15] < 1_000_000);
}
