//! The host under load: four workloads, remote pods on the outside, and the manifests that a test varies.

use std::fmt::Write as _;
use std::net::IpAddr;

use palisade_testkit::lab::{HOST_ADDRESSES, Lab, NodeId, ProbeFlow, probe};

use crate::agent::Agent;

/// The workloads' names, in the order of [`World::pods`].
pub(crate) const NAMES: [&str; 4] = ["web", "api", "db", "mob"];
pub(crate) const WEB: usize = 0;
pub(crate) const API: usize = 1;
pub(crate) const DB: usize = 2;
pub(crate) const MOB: usize = 3;
/// The port of the host to which a session is open all the time; a failsafe port.
pub(crate) const SSH: u16 = 22;
/// Destination port of one-packet flows.
pub(crate) const SPRAY: u16 = 7001;

/// The variable parts of the manifests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    /// Makes every version of a file different from the previous one.
    pub(crate) version: u64,
    pub(crate) order: u64,
    pub(crate) more_cidrs: u64,
    pub(crate) nested: bool,
    pub(crate) more_except: bool,
    pub(crate) port: u64,
    /// Whether the sprayed port is given by name, number or range.
    pub(crate) naming: u64,
    pub(crate) tier: u64,
    pub(crate) mood: u64,
    pub(crate) team: u64,
    pub(crate) holder: u64,
    pub(crate) joined: bool,
    pub(crate) split: u64,
    pub(crate) egress: bool,
    /// Additional rules of mob's egress policy, beyond those the traffic relies on.
    pub(crate) out: u64,
    /// Whether web may connect to mob: if the number is even.
    pub(crate) turn: u64,
    /// Which host endpoint and policies of it there are: see [`Shape::hosts`].
    pub(crate) hosts: u64,
}

/// The agent, its host and its manifests.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) lab: Lab,
    pub(crate) pods: [NodeId; 4],
    pub(crate) shape: Shape,
}

/// The address of a workload, by family.
pub(crate) fn address(pod: usize, family: usize) -> IpAddr {
    let text = match family {
        0 => format!("10.77.0.{}", pod + 1),
        _ => format!("fd77::{}", pod + 1),
    };
    text.parse().unwrap()
}

impl World {
    pub(crate) fn open(name: &str) -> Self {
        World::under(Agent::new(), name)
    }

    /// The same under this agent, which is not running yet.
    pub(crate) fn under(agent: Agent, name: &str) -> Self {
        let mut agent = agent.with(&["--node-name", "n1"]);
        // Through the environment, so that an edit of the configuration file can change it.
        agent.set("PALISADE_OWN_TABLE", "false");
        let shape = Shape::default();
        for (name, text) in shape.files() {
            if let Some(text) = text {
                agent.write(name, &text);
            }
        }
        let mut lab = Lab::new(name).unwrap();
        let host = lab.host();
        for key in [
            "udp_timeout",
            "udp_timeout_stream",
            "tcp_timeout_syn_sent",
            "icmp_timeout",
            "icmpv6_timeout",
        ] {
            lab.set_sysctl(host, &format!("net/netfilter/nf_conntrack_{key}"), "5")
                .unwrap();
        }
        agent.start(&lab);
        let pods = [WEB, API, DB, MOB].map(|pod| {
            let own = [0, 1].map(|family| address(pod, family));
            let node = lab.add_namespace(NAMES[pod], own.to_vec()).unwrap();
            let own = own.map(|address| address.to_string());
            let own = [&*own[0], &*own[1]];
            agent.attach(&lab, node, &format!("shop/{}", NAMES[pod]), &own, &[]);
            node
        });
        let world = World {
            agent,
            lab,
            pods,
            shape,
        };
        world
            .agent
            .wait("enforced", |s| s["revision"] == s["realised"]);
        world
    }

    /// Writes what differs in the new shape, and waits until it is in the kernel.
    pub(crate) fn reshape(&mut self, change: impl FnOnce(&mut Shape)) {
        if self.write(change) {
            self.settled("an edit");
        }
    }

    /// Writes what differs in the new shape; false if there is no difference.
    pub(crate) fn write(&mut self, change: impl FnOnce(&mut Shape)) -> bool {
        let before = self.shape.files();
        self.shape.version += 1;
        change(&mut self.shape);
        let mut written = false;
        for ((name, old), (_, new)) in before.into_iter().zip(self.shape.files()) {
            if old == new {
                continue;
            }
            written = true;
            match new {
                Some(text) => self.agent.write(name, &text),
                None => std::fs::remove_file(self.agent.policy().join(name)).unwrap(),
            }
        }
        written
    }

    /// Waits until the state of the directory is in the kernel: every version has a policy with its own name,
    /// which selects nothing.
    pub(crate) fn settled(&self, what: &str) {
        let version = format!("shop/version-{}", self.shape.version);
        self.agent.wait(what, |s| {
            s["revision"] == s["realised"]
                && s["source"]["inSync"] == true
                && self
                    .agent
                    .run(&["policy", "get", &version])
                    .status
                    .success()
        });
        // The version may have changed between the two responses.
        self.agent.wait(what, |s| s["revision"] == s["realised"]);
    }

    /// Sends packets of new flows: their verdicts must be those of the present shape.
    pub(crate) fn check_verdicts(&self) {
        let (web, api, db) = (self.pods[WEB], self.pods[API], self.pods[DB]);
        let open = self.shape.open_port();
        let mut flows = Vec::new();
        for family in [0, 1] {
            let to = address(API, family);
            flows.push((ProbeFlow::tcp(web, to, open, api), true));
            flows.push((ProbeFlow::tcp(web, to, open + 1, api), false));
            flows.push((ProbeFlow::udp(web, to, open, api), false));
            flows.push((ProbeFlow::tcp(db, to, open, api), false));
            flows.push((ProbeFlow::tcp(api, address(DB, family), 5432, db), true));
            flows.push((ProbeFlow::tcp(web, address(DB, family), 5432, db), false));
            let (host, outside) = (self.lab.host(), self.lab.outside());
            let own = HOST_ADDRESSES[family];
            let is_closed = !self.shape.hosts.is_multiple_of(4);
            flows.push((ProbeFlow::tcp(outside, own, SSH, host), true));
            flows.push((ProbeFlow::tcp(outside, own, 8080, host), !is_closed));
        }
        let (flows, wanted): (Vec<ProbeFlow>, Vec<bool>) = flows.into_iter().unzip();
        let arrived = probe(&self.lab, &flows).unwrap();
        assert_eq!(arrived, wanted, "{:?}\n{}", self.shape, self.agent.log());
    }
}

impl Shape {
    /// The port on which web may connect to api in this version, and in no other version near it.
    pub(crate) fn open_port(&self) -> u16 {
        20_000 + 2 * (self.port % 1000) as u16
    }

    /// Every file and its content; none if it does not exist.
    pub(crate) fn files(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("namespaces.yaml", Some(self.namespaces())),
            ("pods.yaml", Some(self.pods())),
            ("remote.yaml", Some(self.remote())),
            ("api.yaml", Some(self.api())),
            ("db.yaml", Some(self.db())),
            ("more.yaml", Some(self.more())),
            (
                "split.yaml",
                (!self.split.is_multiple_of(4)).then(|| self.splitting()),
            ),
            ("egress.yaml", self.egress.then(|| self.web_egress())),
            ("mob.yaml", Some(self.mob())),
            ("out.yaml", Some(self.mob_egress())),
            (
                "hosts.yaml",
                (!self.hosts.is_multiple_of(4)).then(|| self.hosts()),
            ),
        ]
    }

    /// The host endpoint towards the outside; in some versions with policies of what the host forwards, in others also of
    /// what is not tracked or not translated. None of them decides about the traffic.
    fn hosts(&self) -> String {
        let policy = |name: &str, kind: &str, rest: &str| {
            format!(
                "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {{name: {name}}}\n\
                 spec: {{selector: role == 'node', applyOnForward: true, {kind}order: {order}, types: [Ingress], \
                 ingress: [{{action: Deny, protocol: TCP, destination: {{ports: [{port}]}}}}{rest}]}}\n",
                order = 10 + self.order % 5,
                port = 9000 + self.hosts % 50,
            )
        };
        let mut out = "apiVersion: projectcalico.org/v3\nkind: HostEndpoint\n\
                       metadata: {name: uplink, labels: {role: node}}\n\
                       spec: {node: n1, interfaceName: out0}\n"
            .to_owned();
        if self.hosts % 4 > 1 {
            out += &policy("forward", "", ", {action: Pass}");
        }
        if self.hosts % 4 > 2 {
            out += &policy("untracked", "doNotTrack: true, ", "");
            out += &policy("before-nat", "preDNAT: true, ", "");
        }
        out
    }

    fn namespaces(&self) -> String {
        let team = ["blue", "green"][(self.team % 2) as usize];
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop}}\n---\n\
             apiVersion: v1\nkind: Namespace\nmetadata: {{name: far, labels: {{team: {team}, since: v{}}}}}\n",
            self.team
        )
    }

    fn pods(&self) -> String {
        let mut out = String::new();
        for (pod, name) in NAMES.iter().enumerate() {
            let (mood, tier) = match pod {
                MOB => (self.mood, self.tier + 1),
                WEB => (self.mood / 2, self.tier),
                _ => (0, 0),
            };
            let tier = ["front", "middle", "back"][(tier % 3) as usize];
            write!(
                out,
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, \
                 labels: {{app: {name}, tier: {tier}, mood: m{mood}}}}}\n\
                 spec: {{containers: [{{name: c, ports: [{{name: sprayu, containerPort: {SPRAY}, protocol: UDP}}, \
                 {{name: sprayt, containerPort: {SPRAY}}}, {{name: sprays, containerPort: {SPRAY}, protocol: SCTP}}]}}]}}\n---\n"
            )
            .unwrap();
        }
        out
    }

    /// Pods of another node: a client, and a stranger, whose addresses are swapped.
    fn remote(&self) -> String {
        let mut out = String::new();
        for (kind, holder, v4, v6) in [
            ("client", self.holder, "203.0.113.5", "2001:db8:77::5"),
            (
                "stranger",
                self.holder / 2,
                "203.0.113.130",
                "2001:db8:77::130",
            ),
        ] {
            write!(
                out,
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {kind}{holder}, namespace: far, \
                 labels: {{app: {kind}, mood: m{}}}}}\nspec: {{containers: [{{name: c}}]}}\n\
                 status: {{podIP: {v4}, podIPs: [{{ip: {v4}}}, {{ip: '{v6}'}}]}}\n---\n",
                self.mood
            )
            .unwrap();
        }
        out
    }

    fn api(&self) -> String {
        let spray = match self.naming % 3 {
            0 => format!(
                "[{{port: {SPRAY}}}, {{port: {SPRAY}, protocol: UDP}}, {{port: {SPRAY}, protocol: SCTP}}]"
            ),
            1 => "[{port: sprayt}, {port: sprayu, protocol: UDP}, {port: sprays, protocol: SCTP}]"
                .to_owned(),
            _ => format!(
                "[{{port: {}, endPort: {}}}, {{port: {SPRAY}, endPort: {}, protocol: UDP}}, \
                 {{port: {SPRAY}, endPort: {}, protocol: SCTP}}]",
                SPRAY - 1,
                SPRAY + 60,
                SPRAY + 2,
                SPRAY + 90
            ),
        };
        let except = if self.more_except {
            "[198.51.100.3/32, 198.51.100.64/26]"
        } else {
            "[198.51.100.3/32]"
        };
        let mut blocks = vec![
            format!("{{ipBlock: {{cidr: 198.51.100.0/24, except: {except}}}}}"),
            "{ipBlock: {cidr: '2001:db8:51::/64', except: ['2001:db8:51::3/128']}}".to_owned(),
        ];
        if self.nested {
            blocks.push("{ipBlock: {cidr: 198.51.100.2/32}}".to_owned());
            blocks.push(
                "{ipBlock: {cidr: 198.51.100.128/25, except: [198.51.100.192/27]}}".to_owned(),
            );
        }
        for more in 0..self.more_cidrs % 5 {
            blocks.push(format!("{{ipBlock: {{cidr: 192.0.{}.0/24}}}}", 16 + more));
            blocks.push(format!("{{ipBlock: {{cidr: 'fd00:{more}::/32'}}}}"));
        }
        let mut rules = [
            format!(
                "  - {{from: [{{podSelector: {{matchLabels: {{app: web}}}}}}], ports: {spray}}}\n"
            ),
            format!(
                "  - {{from: [{{podSelector: {{matchLabels: {{app: web}}}}}}], ports: [{{port: 8080}}, {{port: {}}}]}}\n",
                self.open_port()
            ),
            format!("  - {{from: [{}], ports: {spray}}}\n", blocks.join(", ")),
            format!(
                "  - {{from: [{{namespaceSelector: {{matchExpressions: [{{key: team, operator: In, values: [blue, green]}}]}}, \
                 podSelector: {{matchLabels: {{app: client}}}}}}], ports: {spray}}}\n"
            ),
            "  - {from: [{podSelector: {matchLabels: {app: nobody}}}]}\n".to_owned(),
        ];
        let turn = (self.order % rules.len() as u64) as usize;
        rules.rotate_left(turn);
        if self.order / 5 % 2 == 1 {
            rules.swap(0, 3);
        }
        policy(
            "api",
            "matchLabels: {app: api}",
            &format!("  ingress:\n{}", rules.concat()),
        )
    }

    fn db(&self) -> String {
        policy(
            "db",
            "matchLabels: {app: db}",
            "  ingress:\n  - {from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 5432}]}\n  \
             - {from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 2525}]}\n",
        )
    }

    /// Another policy that selects api in some versions, and the marker of the present version.
    fn more(&self) -> String {
        let subject = if self.joined { "[api, mob]" } else { "[mob]" };
        let selector = format!("matchExpressions: [{{key: app, operator: In, values: {subject}}}]");
        let rule = "  ingress:\n  - {from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 99}]}\n";
        let name = format!("version-{}", self.version);
        let version = policy(&name, "matchLabels: {app: none}", "  ingress: []\n");
        format!("{}---\n{version}", policy("more", &selector, rule))
    }

    /// A policy of mob that distinguishes peers that other policies do not.
    fn splitting(&self) -> String {
        let peer = match self.split % 4 {
            1 => "{podSelector: {matchLabels: {tier: front}}}",
            2 => {
                "{podSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [back]}]}}"
            }
            _ => {
                "{ipBlock: {cidr: 10.77.0.0/30}}, {namespaceSelector: {matchLabels: {team: blue}}}"
            }
        };
        policy(
            "split",
            "matchLabels: {app: mob}",
            &format!("  ingress: [{{from: [{peer}], ports: [{{port: 80}}]}}]\n"),
        )
    }

    fn web_egress(&self) -> String {
        policy(
            "web",
            "matchLabels: {app: web}",
            "  policyTypes: [Egress]\n  egress:\n  - {to: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [api, db, mob]}]}}]}\n",
        )
    }

    /// Mob accepts db in every protocol, and web if this version says so.
    fn mob(&self) -> String {
        let port = SPRAY + if self.turn.is_multiple_of(2) { 0 } else { 5 };
        policy(
            "mob",
            "matchLabels: {app: mob}",
            &format!(
                "  ingress:\n  - {{from: [{{podSelector: {{matchLabels: {{app: db}}}}}}]}}\n  \
                 - {{from: [{{podSelector: {{matchLabels: {{app: web}}}}}}], \
                 ports: [{{port: {port}, protocol: UDP}}, {{port: {port}}}]}}\n"
            ),
        )
    }

    /// Mob may connect to web, api and a network except one address of it.
    fn mob_egress(&self) -> String {
        let ports = match self.out % 3 {
            0 => "",
            // ICMP is none of these, so there is a rule without ports as well.
            1 => ", ports: [{port: 1, endPort: 65535}]",
            _ => ", ports: [{port: 53, protocol: UDP}]",
        };
        let mut blocks = vec![
            "{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.3/32]}}",
            "{ipBlock: {cidr: '2001:db8:51::/64', except: ['2001:db8:51::3/128']}}",
        ];
        if self.out / 3 % 2 == 1 {
            blocks.push("{ipBlock: {cidr: 198.51.100.0/30, except: [198.51.100.3/32]}}");
            blocks.push("{ipBlock: {cidr: 192.0.2.128/25}}");
        }
        policy(
            "out",
            "matchLabels: {app: mob}",
            &format!(
                "  policyTypes: [Egress]\n  egress:\n  - {{to: [{}]}}\n  \
                 - {{to: [{{podSelector: {{matchExpressions: [{{key: app, operator: In, values: [web, api]}}]}}}}]}}\n  \
                 - {{to: [{{podSelector: {{matchLabels: {{app: db}}}}}}]{ports}}}\n",
                blocks.join(", ")
            ),
        )
    }
}

fn policy(name: &str, selector: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  podSelector: {{{selector}}}\n{spec}"
    )
}
