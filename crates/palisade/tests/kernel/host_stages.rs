//! Policies of hosts for untracked traffic and for traffic before destination NAT, with an agent and real packets.

use crate::agent;
use crate::agent::shop::{ADDRESSES, address};
use crate::agent::site::{OTHER, Site, calico};
use palisade_testkit::lab::{NodeId, ProbeFlow, TcpEcho, UdpEcho, connect, probe, udp_exchange};
use palisade_testkit::{need_guest, need_root};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const API: usize = 1;

/// How long an answer may take: one that comes takes less than a millisecond.
const PATIENCE: Duration = Duration::from_millis(400);

/// A policy of host endpoints, for one kind of traffic.
fn policy(name: &str, kind: &str, rules: &str) -> String {
    let spec = format!(
        "{{selector: role == 'node', applyOnForward: true, order: 10, {kind}: true, {rules}}}"
    );
    calico("GlobalNetworkPolicy", name, &spec)
}

fn close_uplink(site: &Site) {
    let spec = "{node: n1, interfaceName: out0}";
    site.shop
        .agent
        .apply("host.yaml", &calico("HostEndpoint", "uplink", spec));
}

/// A host that translates three of its ports: to a workload, to the network beyond the other interface, to itself.
struct NodePorts {
    site: Site,
    /// The addresses of the host.
    addresses: [IpAddr; 2],
}

const TO_WORKLOAD: u16 = 30080;
const TO_OTHER: u16 = 30081;
const TO_HOST: u16 = 30082;
/// The port that all of them become.
const PORT: u16 = 8080;

impl NodePorts {
    fn open(name: &str) -> NodePorts {
        let site = Site::open(name);
        let addresses = site.addresses(site.host());
        let mut rules = String::from(
            "add table inet nodeports\n\
             add chain inet nodeports translate { type nat hook prerouting priority dstnat; }\n",
        );
        let targets = [ADDRESSES[API].map(address), OTHER.map(address), addresses];
        for (targets, port) in targets.into_iter().zip([TO_WORKLOAD, TO_OTHER, TO_HOST]) {
            for (at, target) in addresses.into_iter().zip(targets) {
                let (family, target) = match target {
                    IpAddr::V4(v4) => ("ip", v4.to_string()),
                    IpAddr::V6(v6) => ("ip6", format!("[{v6}]")),
                };
                for protocol in ["tcp", "udp"] {
                    rules += &format!(
                        "add rule inet nodeports translate {family} daddr {at} {protocol} dport {port} \
                         dnat {family} to {target}:{PORT}\n"
                    );
                }
            }
        }
        agent::nft(&site.shop.lab, &rules);
        NodePorts { site, addresses }
    }

    fn receiver(&self, port: u16) -> NodeId {
        match port {
            TO_WORKLOAD => self.site.shop.pods[API],
            TO_OTHER => self.site.other,
            _ => self.site.host(),
        }
    }

    /// Whether a first packet to a translated port arrives; families and protocols must agree.
    fn passes(&self, from: NodeId, port: u16) -> bool {
        let to = self.receiver(port);
        let tcp = |at| ProbeFlow::tcp(from, at, port, to);
        let udp = |at| ProbeFlow::udp(from, at, port, to);
        let [tcp, udp] = [
            self.site.passes(tcp, self.addresses),
            self.site.passes(udp, self.addresses),
        ];
        assert_eq!(tcp, udp, "protocols differ: port {port}");
        tcp
    }

    /// The ports of these that are open from outside.
    fn open_ports(&self) -> Vec<u16> {
        let all = [TO_WORKLOAD, TO_OTHER, TO_HOST].into_iter();
        all.filter(|port| self.passes(self.site.outside(), *port))
            .collect()
    }
}

#[test]
fn policies_before_destination_nat_judge_the_port_that_the_packet_was_sent_to() {
    if !need_root() {
        return;
    }
    judge_before_destination_nat(false);
}

#[test]
fn debians_kernel_judges_before_destination_nat_and_reports_it() {
    if !need_root()
        || !need_guest("host_stages::debians_kernel_judges_before_destination_nat_and_reports_it")
    {
        return;
    }
    judge_before_destination_nat(true);
}

/// The kernel must report the destination before NAT if this is wanted.
fn judge_before_destination_nat(is_reported: bool) {
    let ports = NodePorts::open("stages-dnat");
    let site = &ports.site;
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    assert_eq!(ports.open_ports(), [TO_WORKLOAD, TO_OTHER, TO_HOST]);
    close_uplink(site);
    assert_eq!(
        ports.open_ports(),
        [TO_WORKLOAD, TO_OTHER],
        "what is forwarded is not closed"
    );

    // Every translated port is closed; what is sent to the targets themselves is not.
    let closed = "types: [Ingress], ingress: [{action: Deny, destination: {ports: ['30080:30082']}, protocol: TCP}, \
                  {action: Deny, destination: {ports: ['30080:30082']}, protocol: UDP}]";
    agent.apply("early.yaml", &policy("early", "preDNAT", closed));
    assert!(ports.open_ports().is_empty());
    assert!(site.tcp_to_pod(outside, API, PORT) && site.tcp(outside, other, PORT));
    assert!(
        ports.passes(other, TO_WORKLOAD) && ports.passes(other, TO_HOST),
        "no host endpoint is there"
    );
    assert!(!site.tcp(outside, host, PORT), "closed to the host");
    assert!(site.tcp(outside, host, 22), "failsafe");

    // The monitor tells the port that the policy saw, and its rule.
    let flow = ProbeFlow::udp(outside, ports.addresses[0], TO_HOST, host).with_source_port(4001);
    assert_eq!(site.shop.arrives(&[flow]), [false]);
    let line = agent.wait_for_packet(|line| line["source"]["port"] == 4001);
    assert_eq!(line["destination"]["port"], PORT, "{line:#}");
    match line["originalDestination"]["port"].as_u64() {
        Some(port) => {
            assert_eq!(port, u64::from(TO_HOST), "{line:#}");
            assert_eq!(line["stage"], "PreDnat", "{line:#}");
            assert_eq!(line["rule"]["name"], "early", "{line:#}");
            assert_eq!(line["endpoint"], "host:n1", "{line:#}");
        }
        // A kernel that does not report connections: then no rule is blamed.
        None => assert!(
            !is_reported && line["rule"].is_null() && line["stage"].is_null(),
            "{line:#}"
        ),
    }

    // What is allowed is not judged again by the host, neither to it nor forwarded; the workload is.
    let open = "types: [Ingress], ingress: [\
                {action: Allow, protocol: TCP, destination: {ports: [30080, 30082]}}, \
                {action: Allow, protocol: UDP, destination: {ports: [30080, 30082]}}]";
    agent.apply("early.yaml", &policy("early", "preDNAT", open));
    let forward = "{selector: role == 'node', applyOnForward: true, order: 10, types: [Ingress], \
                   ingress: [{action: Deny}]}";
    agent.apply(
        "forward.yaml",
        &calico("GlobalNetworkPolicy", "forward", forward),
    );
    assert_eq!(ports.open_ports(), [TO_WORKLOAD, TO_HOST]);
    assert!(!site.tcp_to_pod(outside, API, PORT) && !site.tcp(outside, other, PORT));
    assert!(!site.tcp(outside, host, PORT));
    agent.apply(
        "api.yaml",
        &agent::shop::policy("api", "api", "  ingress: []\n"),
    );
    assert_eq!(ports.open_ports(), [TO_HOST]);
    agent.delete("api.yaml");

    // The answers of what is allowed.
    let servers = [site.shop.pods[API], host];
    let tcp = servers.map(|at| TcpEcho::start(&site.shop.lab, at, PORT).unwrap());
    let udp = servers.map(|at| UdpEcho::start(&site.shop.lab, at, PORT).unwrap());
    site.shop.lab.flush_conntrack().unwrap();
    for at in ports.addresses {
        for port in [TO_WORKLOAD, TO_HOST] {
            let to = SocketAddr::new(at, port);
            connect(&site.shop.lab, outside, to, PATIENCE).unwrap();
            udp_exchange(&site.shop.lab, outside, to, PATIENCE).unwrap();
        }
    }
    drop((tcp, udp));
    agent.delete("forward.yaml");

    // A flow that is open when its policy comes is cut, and goes on when it goes.
    let old = |port| {
        let flows = ports.addresses.map(|at| {
            ProbeFlow::udp(outside, at, port, ports.receiver(port)).with_source_port(4000)
        });
        probe(&site.shop.lab, &flows).unwrap()
    };
    assert_eq!(old(TO_WORKLOAD), [true, true]);
    assert_eq!(old(TO_HOST), [true, true]);
    agent.apply("early.yaml", &policy("early", "preDNAT", closed));
    assert_eq!(old(TO_WORKLOAD), [false, false]);
    assert_eq!(old(TO_HOST), [false, false]);
    agent.apply("early.yaml", &policy("early", "preDNAT", open));
    assert_eq!(old(TO_WORKLOAD), [true, true]);
    assert_eq!(old(TO_HOST), [true, true]);

    // A new agent finds what it wants.
    let before = agent::nft(&site.shop.lab, "list table inet palisade");
    let mut ports = ports;
    ports.site.shop.agent.terminate();
    ports.site.shop.agent.start(&ports.site.shop.lab);
    let after = agent::nft(&ports.site.shop.lab, "list table inet palisade");
    assert_eq!(after, before);
    assert_eq!(ports.open_ports(), [TO_WORKLOAD, TO_OTHER, TO_HOST]);
}

/// Counts packets of the host that are not tracked, by a port at either end.
fn count_untracked(site: &Site, port: u16) -> String {
    let counted = format!(
        "add table inet untracked\n\
         add counter inet untracked seen\n\
         add chain inet untracked in {{ type filter hook input priority 300; }}\n\
         add chain inet untracked through {{ type filter hook forward priority 300; }}\n\
         add chain inet untracked out {{ type filter hook output priority 300; }}\n\
         add rule inet untracked in th dport {port} ct state untracked counter name seen\n\
         add rule inet untracked through th dport {port} ct state untracked counter name seen\n\
         add rule inet untracked out th sport {port} ct state untracked counter name seen\n"
    );
    agent::nft(&site.shop.lab, &counted);
    counted
}

fn untracked_packets(site: &Site) -> u64 {
    let listed = agent::nft(&site.shop.lab, "reset counter inet untracked seen");
    let mut words = listed.split_whitespace();
    words.find(|word| *word == "packets").unwrap();
    words.next().unwrap().parse().unwrap()
}

#[test]
fn untracked_policies_judge_each_packet_of_both_directions_and_leave_no_connection() {
    if !need_root() {
        return;
    }
    let site = Site::open("stages-untracked");
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    close_uplink(&site);
    let _udp = UdpEcho::start(&site.shop.lab, host, 9000).unwrap();
    let _tcp = TcpEcho::start(&site.shop.lab, host, 9000).unwrap();
    let _ssh = TcpEcho::start(&site.shop.lab, host, 22).unwrap();
    let _api = TcpEcho::start(&site.shop.lab, outside, 6443).unwrap();
    count_untracked(&site, 9000);
    let exchange = |from, to: NodeId, port| {
        let [v4, v6] = site.addresses(to).map(|at| {
            let to = SocketAddr::new(at, port);
            udp_exchange(&site.shop.lab, from, to, PATIENCE).is_ok()
        });
        assert_eq!(v4, v6, "families differ: port {port}");
        v4
    };
    let connects = |from, to: NodeId, port| {
        let [v4, v6] = site.addresses(to).map(|at| {
            let to = SocketAddr::new(at, port);
            connect(&site.shop.lab, from, to, PATIENCE).is_ok()
        });
        assert_eq!(v4, v6, "families differ: port {port}");
        v4
    };
    assert!(!exchange(outside, host, 9000) && !connects(outside, host, 9000));
    assert_eq!(untracked_packets(&site), 0);

    // One direction alone lets requests in, but no answer out: nothing knows the connection.
    let rules = |protocol: &str, end: &str| {
        format!("{{action: Allow, protocol: {protocol}, {end}: {{ports: [9000]}}}}")
    };
    let ingress = format!(
        "ingress: [{}, {}, {}, {{action: Deny, protocol: TCP, destination: {{ports: [9001]}}}}]",
        rules("UDP", "destination"),
        rules("TCP", "destination"),
        rules("SCTP", "destination"),
    );
    let one = format!("types: [Ingress], {ingress}");
    agent.apply("early.yaml", &policy("early", "doNotTrack", &one));
    assert!(site.udp(outside, host, 9000) && site.tcp(outside, host, 9000));
    assert!(site.sctp(outside, host, 9000) && !site.sctp(outside, host, 9001));
    assert!(!exchange(outside, host, 9000) && !connects(outside, host, 9000));
    assert!(untracked_packets(&site) > 0);
    // With rules for the answers, it does.
    let both = format!(
        "types: [Ingress, Egress], {ingress}, egress: [{}, {}, {{action: Deny, protocol: UDP, \
         destination: {{ports: [9002]}}}}]",
        rules("UDP", "source"),
        rules("TCP", "source"),
    );
    agent.apply("early.yaml", &policy("early", "doNotTrack", &both));
    assert!(exchange(outside, host, 9000) && connects(outside, host, 9000));
    assert!(
        untracked_packets(&site) >= 2 * (2 + 3),
        "both directions of UDP and TCP in both families"
    );
    // The same from the host, where the answers are what comes in.
    let open = "{selector: role == 'node', order: 20, types: [Ingress, Egress], \
                ingress: [{action: Allow}], egress: [{action: Allow}]}";
    agent.apply("open.yaml", &calico("GlobalNetworkPolicy", "open", open));
    assert!(site.tcp(outside, host, 8080) && site.echo(outside, host));
    assert!(
        !site.tcp(outside, host, 9001),
        "denied before what allows it"
    );
    assert!(!site.udp(host, outside, 9002) && site.udp(host, outside, 9003));
    let line = agent.wait_for_packet(|line| line["destination"]["port"] == 9002);
    assert_eq!(
        (&line["stage"], &line["direction"]),
        (&"Untracked".into(), &"Egress".into()),
        "{line:#}"
    );
    assert_eq!(line["rule"]["name"], "early", "{line:#}");

    // Forwarded packets are judged where they arrive, and where nothing decides as before.
    assert!(!site.tcp(outside, other, 9001) && site.tcp(outside, other, 9003));
    assert!(!site.tcp_to_pod(outside, API, 9001) && site.tcp_to_pod(outside, API, 9003));
    assert!(
        site.udp(other, outside, 9002),
        "they are not judged where they leave"
    );
    let forward = "{selector: role == 'node', applyOnForward: true, order: 5, types: [Ingress], \
                   ingress: [{action: Deny}]}";
    agent.apply(
        "forward.yaml",
        &calico("GlobalNetworkPolicy", "forward", forward),
    );
    untracked_packets(&site);
    assert!(
        site.udp(outside, other, 9000) && !site.udp(outside, other, 9003),
        "what is allowed is not judged again"
    );
    assert_eq!(untracked_packets(&site), 2);
    agent.delete("forward.yaml");

    // A connection that was tracked when its policy came.
    let old = || {
        let flow = |at| ProbeFlow::udp(outside, at, 9001, host).with_source_port(4000);
        probe(&site.shop.lab, &site.addresses(host).map(flow)).unwrap()
    };
    assert_eq!(old(), [true, true]);
    let locked = "types: [Ingress, Egress], ingress: [{action: Deny}], egress: [{action: Deny}]";
    agent.apply("early.yaml", &policy("early", "doNotTrack", locked));
    assert_eq!(old(), [false, false]);
    // Everything is closed in both directions but failsafe ports, with their answers.
    assert!(!site.tcp(outside, host, 8080) && !site.echo(outside, host));
    assert!(!site.udp(host, outside, 9003) && !site.tcp(outside, other, 9003));
    assert!(connects(outside, host, 22) && connects(host, outside, 6443));
    let mut site = site;
    site.shop.agent.kill();
    assert!(!site.tcp(outside, host, 8080), "without an agent as well");
    site.shop.agent.start(&site.shop.lab);
    site.shop.agent.delete("early.yaml");
    assert!(site.tcp(outside, host, 8080) && site.tcp(outside, other, 9001));
}
