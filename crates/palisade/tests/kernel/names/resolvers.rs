//! The resolvers of the C libraries, glibc's and musl's: what they make of the proxy, and the connections after it.

use super::{NamedShop, addresses_of, dnsmasq, route_outside, servers};
use palisade_testkit::need_root;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A name with more addresses than a datagram has room for.
const MANY: &str = "many.example.com";

/// The program `resolver.c`, with each library.
struct ResolverPrograms {
    dir: tempfile::TempDir,
}

const LIBRARIES: [(&str, &str, &str); 2] =
    [("glibc", "cc", "-O1"), ("musl", "musl-gcc", "-static")];

impl ResolverPrograms {
    fn build() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/names/resolver.c");
        for (library, compiler, option) in LIBRARIES {
            let mut command = Command::new(compiler);
            let program = dir.path().join(library);
            command.args([option, "-o"]).arg(program).arg(source);
            let output = command.output().unwrap_or_else(|error| {
                panic!("{compiler}: {error}: scripts/setup --test installs it")
            });
            assert!(output.status.success(), "{output:?}");
        }
        ResolverPrograms { dir }
    }

    fn program(&self, library: &str) -> PathBuf {
        self.dir.path().join(library)
    }

    /// Runs one in the workload web with a `resolv.conf`: the addresses, and whether each opened; or the error.
    fn run(
        &self,
        named: &NamedShop,
        library: &str,
        resolv_conf: &str,
        name: &str,
    ) -> Result<Vec<(IpAddr, bool)>, String> {
        let file = self.dir.path().join("resolv.conf");
        std::fs::write(&file, resolv_conf).unwrap();
        let output = self.output(named, &file, &self.program(library), name);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{library}: {text}");
        if let Some(error) = text.strip_prefix("error ") {
            return Err(error.trim().to_owned());
        }
        let lines = text.lines().map(|line| {
            let (address, outcome) = line.split_once(' ').unwrap();
            (address.parse().unwrap(), outcome == "open")
        });
        Ok(lines.collect())
    }

    fn output(
        &self,
        named: &NamedShop,
        resolv_conf: &Path,
        program: &Path,
        name: &str,
    ) -> std::process::Output {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c"])
            .arg("mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"")
            .arg("sh")
            .args([resolv_conf, program])
            .args([name, &super::PORT.to_string()]);
        let lab = &named.shop.lab;
        lab.run_in(named.shop.pods[0], move || command.output().unwrap())
            .unwrap()
    }
}

/// Both addresses of a name, and both open.
fn both_open(number: usize) -> Result<Vec<(IpAddr, bool)>, String> {
    let mut expected = addresses_of(number).map(|address| (address, true));
    expected.sort();
    Ok(expected.into())
}

fn sorted(answer: Result<Vec<(IpAddr, bool)>, String>) -> Result<Vec<(IpAddr, bool)>, String> {
    answer.map(|mut addresses| {
        addresses.sort();
        addresses
    })
}

#[test]
fn resolvers_of_c_libraries_connect_at_once() {
    if !need_root() {
        return;
    }
    let named = NamedShop::open("names-libc", &dnsmasq());
    let programs = ResolverPrograms::build();
    route_outside(&named.shop.lab, super::LOAD_NETWORKS);
    for (library, ..) in LIBRARIES {
        for server in servers() {
            let conf = format!("nameserver {server}\n");
            // The two queries of a resolver are answered in any order.
            for _ in 0..5 {
                let number = named.next_name();
                let name = format!("n{number}.example.com");
                let answer = programs.run(&named, library, &conf, &name);
                assert_eq!(sorted(answer), both_open(number), "{library}, {server}");
            }
            // What a search domain has not got teaches nothing, and the next one is asked.
            let number = named.next_name();
            let name = format!("n{number}");
            let conf = format!("{conf}search absent.test example.com\noptions ndots:5\n");
            let answer = programs.run(&named, library, &conf, &name);
            assert_eq!(sorted(answer), both_open(number), "{library}, {server}");
            assert!(named.held(&format!("{name}.absent.test")).is_empty());
        }
        // Truncated, and asked for again over TCP; musl does so from version 1.2.4 on, and finds nothing before.
        let conf = format!("nameserver {}\n", servers()[0]);
        let answer = programs.run(&named, library, &conf, MANY);
        println!("{library}: of many: {:?}", answer.as_ref().map(Vec::len));
        let all_open = |found: &Vec<(IpAddr, bool)>| found.iter().all(|(_, opens)| *opens);
        match &answer {
            Ok(found) => assert!(all_open(found), "{library}: {found:?}"),
            Err(error) => assert_eq!(library, "musl", "{error}"),
        }
        assert!(library == "musl" || answer.is_ok_and(|found| found.len() == 64));
    }
    let names = named.shop.agent.json(&["names", "list"]).to_string();
    assert!(!names.contains("absent.test"), "{names}");
}

#[test]
fn resolvers_of_c_libraries_search_on_where_a_refusal_is_a_nonexistent_name() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-search", &dnsmasq());
    let programs = ResolverPrograms::build();
    let conf = format!(
        "nameserver {}\nsearch shop.svc.cluster.local example.com\noptions ndots:5\n",
        servers()[0]
    );
    // After a refusal a resolver may end or go on.
    for (library, ..) in LIBRARIES {
        let number = named.next_name();
        let answer = programs.run(&named, library, &conf, &format!("n{number}"));
        println!("{library}: after a refusal: {answer:?}");
        assert!(answer.is_err() || sorted(answer) == both_open(number));
    }
    named.restart_with(&["--dns-reject-response-code", "nxdomain"]);
    named.proxy = None;
    named.proxy = Some(super::ProxyProcess::start_with(
        &named.shop.agent,
        &named.shop.lab,
        &["--dns-reject-response-code", "nxdomain"],
    ));
    named.wait_for_proxy();
    for (library, ..) in LIBRARIES {
        let number = named.next_name();
        let answer = programs.run(&named, library, &conf, &format!("n{number}"));
        assert_eq!(sorted(answer), both_open(number), "{library}");
    }
    let names = named.shop.agent.json(&["names", "list"]).to_string();
    assert!(!names.contains("cluster.local"), "{names}");
}
