//! A workload, its host and a server outside; the host only routes, or enforces policy by name.

use super::responder::Responder;
use crate::agent::{AgentProcess, ProxyProcess};
use palisade_testkit::lab::{Lab, NodeId, OUTSIDE_ADDRESSES, PodSpec};
use std::net::{IpAddr, UdpSocket};
use std::process::Command;

/// Who is asked.
pub(super) const SERVER: IpAddr = OUTSIDE_ADDRESSES[0];
/// Where the workload may send to, at the addresses of names.
pub(super) const PORT: u16 = 9_000;
/// What either end may receive while it does not run: the machine is slow to run it, not the host to pass it on.
pub(super) const RECEIVE_BUFFER: usize = 4 << 20;
/// Who asks.
pub(super) const CLIENT: [&str; 2] = ["10.77.0.1", "fd77::1"];

/// Policy that lets the workload ask for names below `example.com`, and send to their addresses.
fn manifests() -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, labels: {{app: web}}}}\n\
         spec: {{nodeName: here, containers: [{{name: main, image: registry.example.com/main:1}}]}}\n\
         status: {{phase: Running, podIP: {v4}, podIPs: [{{ip: {v4}}}, {{ip: '{v6}'}}]}}\n---\n\
         apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: shop}}\nspec:\n  \
         endpointSelector: {{matchLabels: {{app: web}}}}\n  egress:\n  - toCIDR: [{SERVER}/32]\n    toPorts:\n    \
         - ports: [{{port: '53', protocol: ANY}}]\n      rules: {{dns: [{{matchPattern: '*.example.com'}}]}}\n  \
         - toFQDNs: [{{matchPattern: 'n*.example.com'}}]\n    toPorts: [{{ports: [{{port: '{PORT}', protocol: UDP}}]}}]\n",
        v4 = CLIENT[0],
        v6 = CLIENT[1],
    )
}

/// All of it, until dropped: the proxy ends first, the namespaces go last.
pub(super) struct NamesSite {
    _proxy: Option<ProxyProcess>,
    pub(super) agent: Option<AgentProcess>,
    pub(super) responder: Responder,
    pub(super) client: NodeId,
    pub(super) lab: Lab,
}

impl NamesSite {
    /// A host that routes.
    pub(super) fn plain() -> Result<Self, String> {
        let mut lab = new_lab("plain")?;
        let client = lab.add_pod(PodSpec::new("web", "palweb", &CLIENT));
        Ok(NamesSite {
            _proxy: None,
            agent: None,
            responder: Responder::start(&lab)?,
            client: client.map_err(|error| error.to_string())?,
            lab,
        })
    }

    /// A host with an agent, and a proxy.
    pub(super) fn enforced() -> Result<Self, String> {
        let start = |agent: &AgentProcess, lab: &Lab| agent.start_proxy(lab);
        let (mut site, proxy) = Self::with_proxy(&[], start)?;
        site._proxy = Some(proxy);
        Ok(site)
    }

    /// A host with an agent, these arguments of its command line, and what is a proxy to it: without one it is not ready.
    pub(super) fn with_proxy<P>(
        arguments: &[&str],
        start: impl FnOnce(&AgentProcess, &Lab) -> Result<P, String>,
    ) -> Result<(Self, P), String> {
        let mut lab = new_lab("names")?;
        let mut agent = AgentProcess::new()?;
        agent.add_arguments(arguments);
        agent.write("site.yaml", &manifests())?;
        agent.spawn(&lab, lab.host())?;
        let proxy = start(&agent, &lab)?;
        agent.wait_until_ready()?;
        let addresses = CLIENT.iter().filter_map(|text| text.parse().ok());
        let client = lab.add_namespace("web", addresses.collect());
        let client = client.map_err(|error| error.to_string())?;
        agent.attach(&lab, client, "shop", "web")?;
        let site = NamesSite {
            _proxy: None,
            agent: Some(agent),
            responder: Responder::start(&lab)?,
            client,
            lab,
        };
        Ok((site, proxy))
    }

    /// A socket of the workload, connected to the server.
    pub(super) fn open(&self) -> Result<UdpSocket, String> {
        let open = || {
            let socket = UdpSocket::bind((CLIENT[0], 0))?;
            socket.connect((SERVER, 53))?;
            palisade_sys::transparent::force_receive_buffer(&socket, RECEIVE_BUFFER)?;
            Ok::<_, std::io::Error>(socket)
        };
        let socket = self.lab.run_in(self.client, open);
        let socket = socket.map_err(|error| error.to_string())?;
        socket.map_err(|error| format!("opening a socket of the workload: {error}"))
    }
}

/// A lab whose outside has the addresses of all names.
fn new_lab(name: &str) -> Result<Lab, String> {
    let lab = Lab::new(name).map_err(|error| error.to_string())?;
    let via = SERVER.to_string();
    let to_names = ["route", "add", "198.18.0.0/15"];
    let at_host = ["via", &via, "dev", "out0", "onlink"];
    run_ip(&lab, lab.host(), &[&to_names[..], &at_host].concat())?;
    let local = ["route", "add", "local", "198.18.0.0/15", "dev", "lo"];
    run_ip(&lab, lab.outside(), &local)?;
    Ok(lab)
}

fn run_ip(lab: &Lab, node: NodeId, arguments: &[&str]) -> Result<(), String> {
    #[allow(
        clippy::disallowed_methods,
        reason = "the host is set up as its owner would"
    )]
    let run = || Command::new("ip").args(arguments).output();
    let output = lab.run_in(node, run).map_err(|error| error.to_string())?;
    let output = output.map_err(|error| format!("running ip: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "ip {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}
