//! Tests: every row of the sections is read from every source, removed parameters and contradictions are
//! rejected, and the documents are those of the table.

use super::*;
use palisade_api::ParameterOrigin;
use palisade_model::{Encapsulation, FailsafePorts, Prefix};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn resolve(
    flags: &[(&str, &str)],
    env: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Config, ConfigError> {
    let flags = flags
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let env: BTreeMap<_, _> = env.iter().copied().collect();
    let env = |name: &str| env.get(name).map(|v| (*v).to_owned());
    Config::resolve(
        &flags,
        env,
        file.map(|text| ("palisade.yaml", text.as_bytes())),
    )
}

fn refused(flags: &[(&str, &str)], env: &[(&str, &str)], file: Option<&str>) -> String {
    resolve(flags, env, file).unwrap_err().to_string()
}

/// A value of a parameter that is valid beside the defaults of all others, and not its default.
fn other_value(parameter: &Parameter) -> String {
    let text = match parameter.kind {
        ParameterKind::Path | ParameterKind::OptionalPath => "/other",
        ParameterKind::FileName => "05-other.conflist",
        ParameterKind::Number { most, .. } | ParameterKind::NumberOrZero { most, .. } => {
            return (most - 1).to_string();
        }
        ParameterKind::OneOf(words) => {
            let mut others = words.iter().filter(|word| **word != parameter.default);
            others.next().unwrap()
        }
        ParameterKind::AnyOf(words) => words[0],
        ParameterKind::Bool if parameter.default == "true" => "false",
        ParameterKind::Bool => "true",
        ParameterKind::Name { .. } | ParameterKind::Group => "other",
        ParameterKind::NodeName | ParameterKind::OptionalText => "other",
        ParameterKind::Mask => "0xffff0000",
        ParameterKind::Networks => "10.0.0.0/8,fd00::/8",
        ParameterKind::Pools => "10.2.0.0/24,10.3.0.0/24,fd00:2::/64",
        ParameterKind::DnsServers => "node,192.0.2.53/32",
        ParameterKind::Ranges => "10.245.0.4-10.245.0.9,10.245.0.16/28",
        ParameterKind::FailsafePorts => "tcp:22,udp:10.0.0.0/8:68",
        ParameterKind::Namespaces => "shop,team-a",
        ParameterKind::Interfaces => "eth0,bond0.12",
        ParameterKind::Address => "127.0.0.1:9245",
        ParameterKind::KubernetesApi => "/kubeconfig",
        ParameterKind::Endpoints => "https://10.0.0.1:2379",
        ParameterKind::KeyPrefix => "/other",
    };
    text.to_owned()
}

/// What a parameter needs beside it, or else it would be refused as one that is not used.
fn beside(name: &str) -> &'static [(&'static str, &'static str)] {
    const ETCD: (&str, &str) = ("etcd", "https://e:2379");
    const FLOWS: (&str, &str) = ("flows", "on");
    match name {
        "etcd-key-file" => &[ETCD, ("etcd-cert-file", "/c")],
        "etcd-password-file" => &[ETCD, ("etcd-user", "u")],
        name if name.starts_with("etcd-") => &[ETCD],
        // An example of an address is one of this host, which needs no certificate.
        "hubble-socket" | "hubble-address" | "hubble-metrics" | "hubble-flow-logs" => &[FLOWS],
        "hubble-tls-dir" => &[FLOWS, ("hubble-address", "[::1]:1")],
        "fast-path-networks" => &[("fast-path-interfaces", "eth0")],
        "page-token-file" => &[("page-address", "[::1]:1")],
        _ => &[],
    }
}

/// The fields of a configuration, without the raw parameters.
fn fields(config: &Config) -> String {
    let text = format!("{config:#?}");
    text.split("\n    texts:").next().unwrap().to_owned()
}

/// Each row of a section is a field, a flag, a variable and a key of the file; nothing else is to be written for
/// a new parameter.
#[test]
fn each_parameter_is_read_from_flag_environment_and_file_and_reaches_its_field() {
    let mut names = BTreeSet::new();
    for parameter in parameters() {
        let name = parameter.name;
        assert!(names.insert(name), "{name} stands twice");
        assert!(find_removed_parameter(name).is_none(), "{name} is removed");
        let value = &*other_value(parameter);
        assert_ne!(value, parameter.default, "{name}");
        let beside = beside(name);
        let with = |more: (&'static str, &str)| {
            let all = beside.iter().copied().chain([more]);
            let all: Vec<(&str, &str)> = all.collect();
            resolve(&all, &[], None).unwrap()
        };
        let before = resolve(beside, &[], None).unwrap();
        let flag = with((name, value));
        let variable = parameter.env_variable();
        let environment = resolve(beside, &[(&variable, value)], None).unwrap();
        let file = resolve(beside, &[], Some(&format!("{name}: \"{value}\"\n"))).unwrap();
        assert_eq!(fields(&flag), fields(&environment), "{name}");
        assert_eq!(fields(&flag), fields(&file), "{name}");
        assert_ne!(fields(&flag), fields(&before), "{name} reaches no field");
        let reported = |config: &Config| {
            let parameters = config.report().parameters;
            let report = parameters.into_iter().find(|p| p.name == name).unwrap();
            assert_eq!(report.value, *value);
            (report.source, report.origin)
        };
        for (config, source, by) in [
            (&flag, ParameterOrigin::Flag, &*parameter.flag()),
            (&environment, ParameterOrigin::Environment, &*variable),
            (&file, ParameterOrigin::File, "palisade.yaml:1:1"),
        ] {
            let expected = (source, by.to_owned());
            assert_eq!(reported(config), expected, "{name}");
        }
        for text in [parameter.help, parameter.placeholder] {
            assert!(!text.is_empty(), "{name}");
        }
        assert!(parameter.help.ends_with('.'), "{name}: a sentence");
    }
}

#[test]
fn each_section_has_its_parameters_and_its_heading() {
    let titles: BTreeSet<&str> = SECTIONS.iter().map(|section| section.title).collect();
    assert_eq!(titles.len(), SECTIONS.len());
    for section in SECTIONS {
        assert!(!section.parameters.is_empty(), "{}", section.title);
        let mut parameters = section.parameters.iter();
        assert!(parameters.all(|parameter| parameter.section == section.title));
    }
    // More is more than an operator reads; one that nobody needs goes first.
    assert!(parameters().count() <= 71);
}

#[test]
fn everything_at_once() {
    let texts: Vec<(&str, String)> = parameters()
        .filter(|parameter| parameter.name != "ipam-reserved")
        .map(|parameter| (parameter.name, other_value(parameter)))
        .collect();
    let flags: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, &**text)).collect();
    let refused = refused(&flags, &[], None);
    assert!(
        refused.contains("state-dir (--state-dir) and directory"),
        "{refused}"
    );
    let apart = flags.iter().map(|(name, text)| match *name {
        "state-dir" | "cni-conf-dir" => (*name, "/apart"),
        // Not with flows.
        "dataplane" => (*name, "nftables"),
        _ => (*name, *text),
    });
    let config = resolve(&apart.collect::<Vec<_>>(), &[], None).unwrap();
    let networks = config.ipam.networks().iter().map(Prefix::to_string);
    assert_eq!(
        networks.collect::<Vec<_>>(),
        ["10.2.0.0/24", "10.3.0.0/24", "fd00:2::/64"]
    );
    assert_eq!(
        (config.cni.pod_mtu, config.masquerade.is_enabled),
        (Some(65_534), true)
    );
    assert_eq!(config.cni.conf_dir.as_deref(), Some(Path::new("/apart")));
    assert_eq!(config.etcd.urls(), ["https://10.0.0.1:2379"]);
    let none = resolve(&[("ipam-pool", "none")], &[], None).unwrap();
    assert_eq!(none.ipam.networks(), []);
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file() {
    let file = Some("monitor-rate: 1\nmtu: 1400\ntable: filex\n");
    let config = resolve(
        &[("monitor-rate", "3")],
        &[("PALISADE_MONITOR_RATE", "2"), ("PALISADE_MTU", "1450")],
        file,
    )
    .unwrap();
    assert_eq!(
        (
            config.monitor.rate,
            config.workloads.mtu,
            &*config.nftables.table
        ),
        (3, 1450, "filex")
    );
    let report = config.report();
    let source = |name: &str| {
        let mut parameters = report.parameters.iter();
        parameters.find(|p| p.name == name).unwrap().source
    };
    assert_eq!(
        ["monitor-rate", "mtu", "table", "socket"].map(source),
        [
            ParameterOrigin::Flag,
            ParameterOrigin::Environment,
            ParameterOrigin::File,
            ParameterOrigin::Default
        ]
    );
}

#[test]
fn every_problem_is_reported_in_one_message() {
    let file = "\nsettle: 3\nmtu: 9\nmonitor-rate: [1]\nipam-pool: 10.0.0.0/24\nmonitor-rat: 3\n";
    let text = refused(
        &[("ipam-reserved", "10.9.0.1")],
        &[("PALISADE_TABLE", "No"), ("PALISADE_POD_MTU", "1000")],
        Some(file),
    );
    assert_eq!(
        text,
        "configuration: 6 problems\n  \
         palisade.yaml:2:1: the parameter settle was removed: the directory is always read once it was \
         unchanged for 100 milliseconds; remove it\n  \
         palisade.yaml:4:15: expected one value\n  \
         palisade.yaml:6:1: unknown parameter \"monitor-rat\"; did you mean monitor-rate?\n  \
         mtu: \"9\" (palisade.yaml:3:1) is not a number from 1280 to 65535\n  \
         table: \"No\" (PALISADE_TABLE) must be 1 to 64 of a-z, 0-9 and _, a letter first\n  \
         ipam-reserved (--ipam-reserved) and ipam-pool (palisade.yaml:5:1) contradict each other: \
         10.9.0.1-10.9.0.1 is not in a pool, so the reservation has no effect"
    );
}

/// Nobody may believe in a value that is not used: an error names what replaced the parameter.
#[test]
fn a_removed_parameter_is_refused_from_every_source() {
    for removed in REMOVED_PARAMETERS {
        let RemovedParameter { name, replacement } = *removed;
        assert!(find_parameter(name).is_none(), "{name}");
        let variable = format!("PALISADE_{}", name.to_uppercase().replace('-', "_"));
        for (given_by, text) in [
            (format!("--{name}"), refused(&[(name, "1")], &[], None)),
            (variable.clone(), refused(&[], &[(&variable, "1")], None)),
            (
                "palisade.yaml:1:1".to_owned(),
                refused(&[], &[], Some(&format!("{name}: 1\n"))),
            ),
        ] {
            assert_eq!(
                text,
                format!(
                    "configuration: {given_by}: the parameter {name} was removed: {replacement}"
                )
            );
        }
        // A parameter that replaces it is one that there is.
        let named = parameters().filter(|parameter| replacement.contains(parameter.name));
        assert!(
            replacement.contains("always")
                || replacement.contains("remove it")
                || replacement.contains("a flag only")
                || named.count() > 0,
            "{name}"
        );
    }
    // The commented lines of a former release's packaged file set nothing.
    resolve(
        &[],
        &[],
        Some("#settle: 100\n#pool-ipv4: \"10.245.0.0/24\"\n"),
    )
    .unwrap();
}

#[test]
fn an_api_server_is_named_by_the_path_of_its_kubeconfig() {
    let api = |text: &str| {
        resolve(&[("kubernetes", text)], &[], None)
            .unwrap()
            .kubernetes
            .api
    };
    assert_eq!(api("off"), KubernetesApi::Off);
    assert_eq!(api("in-cluster"), KubernetesApi::InCluster);
    assert_eq!(api("/k"), KubernetesApi::Kubeconfig("/k".into()));
    let former = refused(
        &[("kubernetes", "kubeconfig"), ("kubeconfig", "/k")],
        &[],
        None,
    );
    assert!(former.contains("set kubernetes to the path"), "{former}");
    assert!(
        former.contains("must be off, in-cluster, or the path"),
        "{former}"
    );
}

#[test]
fn encapsulations_are_allowed_by_a_list() {
    let allowed = |text: Option<&str>| {
        let config = resolve(&[], &[], text).unwrap();
        config
            .policy
            .allowed_encapsulation
            .iter()
            .collect::<Vec<_>>()
    };
    assert_eq!(allowed(None), []);
    let two = [Encapsulation::Vxlan, Encapsulation::Gre];
    assert_eq!(allowed(Some("allow-encapsulation: [gre, vxlan]\n")), two);
    let wrong = refused(&[("allow-encapsulation", "vxlan,policy")], &[], None);
    assert!(
        wrong.contains("\"policy\", which is none of vxlan, geneve, ipip, gre"),
        "{wrong}"
    );
}

#[test]
fn what_etcd_does_not_use_is_refused() {
    let etcd = ("etcd", "10.0.0.1:2379,http://10.0.0.2:2379");
    let plain = resolve(&[etcd], &[], None).unwrap().etcd;
    assert_eq!(
        (plain.urls(), &*plain.prefix),
        (
            vec![
                "http://10.0.0.1:2379".to_owned(),
                "http://10.0.0.2:2379".to_owned()
            ],
            "/palisade"
        )
    );
    let secure = [("etcd", "10.0.0.1:2379"), ("etcd-ca-file", "/ca")];
    let urls = resolve(&secure, &[], None).unwrap().etcd.urls();
    assert_eq!(urls, ["https://10.0.0.1:2379"]);
    let one = |flags: &[(&str, &str)]| refused(flags, &[], None);
    assert!(one(&[("etcd-ca-file", "/ca")]).contains("set etcd to its endpoints"));
    assert!(one(&[etcd, ("etcd-ca-file", "/ca")]).contains("10.0.0.2:2379 has no TLS"));
    assert!(one(&[secure[0], ("etcd-key-file", "/k")]).contains("set etcd-cert-file"));
    assert!(one(&[etcd, ("etcd-password-file", "/p")]).contains("set etcd-user"));
    assert!(one(&[("etcd", "e.example")]).contains("is not an endpoint"));
    assert!(one(&[etcd, ("etcd-prefix", "palisade")]).contains("is not a prefix"));
}

#[test]
fn contradictions_name_both_parameters_and_their_sources() {
    let one = |flags: &[(&str, &str)]| refused(flags, &[], None);
    let inside = one(&[("state-dir", "/etc/palisade/policy/x")]);
    assert_eq!(
        inside,
        "configuration: state-dir (--state-dir) and directory (the default) contradict each other: \
         /etc/palisade/policy/x lies inside /etc/palisade/policy, so the agent would read its own \
         state as policy; move one of them"
    );
    let cni = one(&[("cni-conf-dir", "/x/y"), ("directory", "/x")]);
    assert!(
        cni.contains("cni-conf-dir (--cni-conf-dir) and directory (--directory)"),
        "{cni}"
    );
    let reserved = one(&[("ipam-reserved", "10.9.0.1")]);
    assert!(reserved.contains("ipam-reserved (--ipam-reserved) and ipam-pool (the default)"));
    let mtu = one(&[("pod-mtu", "1000")]);
    assert!(
        mtu.contains("pod-mtu (--pod-mtu) and ipam-pool (the default)"),
        "{mtu}"
    );
    assert!(
        resolve(
            &[("pod-mtu", "1000"), ("ipam-pool", "10.0.0.0/24")],
            &[],
            None
        )
        .is_ok()
    );
    let own = refused(&[("directory", "palisade.yaml")], &[], Some(""));
    assert!(
        own.contains("config (palisade.yaml) and directory (--directory)"),
        "{own}"
    );
}

#[test]
fn networks_of_the_fast_path_have_interfaces_and_are_not_translated() {
    let both = "fast-path-networks: 10.244.0.0/16\nfast-path-interfaces: [eth0, bond0.12]\n";
    let config = resolve(&[], &[], Some(both)).unwrap();
    assert_eq!(config.dataplane.uplinks, ["eth0", "bond0.12"]);
    assert_eq!(config.dataplane.networks.len(), 1);
    for (more, wanted) in [
        ("", "takes the interfaces by which the networks are reached"),
        (
            "fast-path-interfaces: palx\n",
            "palx would be the interface of a workload",
        ),
        (
            "fast-path-interfaces: lo\n",
            "not the name of an interface to other hosts",
        ),
        (
            "fast-path-interfaces: eth0/1\n",
            "not the name of an interface to other hosts",
        ),
        (
            "fast-path-interfaces: eth0\nmasquerade: outside\nipam-pool: 10.245.0.0/24\n",
            "packets to 10.244.0.0/16 are masqueraded",
        ),
    ] {
        let file = format!("fast-path-networks: 10.244.0.0/16\n{more}");
        let found = refused(&[], &[], Some(&file));
        assert!(found.contains(wanted), "{found}");
    }
    let excepted = "masquerade: outside\nmasquerade-except: 10.0.0.0/8\n";
    assert!(resolve(&[], &[], Some(&format!("{both}{excepted}"))).is_ok());
    let own = "masquerade: outside\nipam-pool: 10.244.0.0/16\n";
    assert!(resolve(&[], &[], Some(&format!("{both}{own}"))).is_ok());
}

#[test]
fn words_of_the_file_are_taken_as_written() {
    let file = "masquerade: off\nmark-mask: 0xffff0000\npolicy-audit-mode: on\nipam-pool:\n- 10.0.0.0/24\n- fd00::/64\nmtu:\n";
    let config = resolve(&[], &[], Some(file)).unwrap();
    assert!(!config.masquerade.is_enabled && config.policy.audit_mode);
    assert_eq!(
        (config.nftables.mark_mask, config.ipam.networks().len()),
        (0xffff_0000, 2)
    );
    assert!(resolve(&[], &[], Some("# nothing\n")).is_ok());
    let twice = refused(&[], &[], Some("mtu: 1400\nmtu: 1500\n"));
    assert!(twice.contains("palisade.yaml:2:1: the field \"mtu\" is written twice"));
    assert!(refused(&[], &[], Some("- 3\n")).contains("expected `parameter: value` lines"));
    assert!(
        refused(&[], &[], Some("monitor-rate: 1\n---\nmtu: 1400\n"))
            .contains("a second one begins here")
    );
}

#[test]
fn defaults_are_valid() {
    let config = resolve(&[], &[], None).unwrap();
    assert_eq!(config.ipam.networks().len(), 2);
    let plain = |p: &palisade_api::ParameterReport| {
        p.source == ParameterOrigin::Default && p.value == p.default
    };
    assert!(config.report().parameters.iter().all(plain));
}

#[test]
fn secrets_are_not_shown() {
    let plain = *parameters().next().unwrap();
    let secret = Parameter {
        secret: true,
        ..plain
    };
    assert_eq!(secret.displayed("abc"), "(secret)");
    assert_eq!(
        (secret.displayed(""), plain.displayed("abc")),
        (String::new(), "abc".to_owned())
    );
}

#[test]
fn a_new_file_changes_what_can_change_and_names_what_waits() {
    let config = resolve(
        &[("log-level", "warn")],
        &[],
        Some("pod-mtu: 1300\nmtu: 1400\n"),
    )
    .unwrap();
    let text = "log-level: debug\nmonitor-rate: 7\nmtu: 1450\n";
    let (next, changed) = config.reread(Some(("palisade.yaml", text.as_bytes())));
    let change = |name, from: &str, to: &str| (name, from.to_owned(), to.to_owned());
    assert_eq!(
        changed,
        [
            change("pod-mtu", "1300", "0"),
            change("monitor-rate", "100", "7")
        ]
    );
    assert_eq!(
        (next.cni.pod_mtu, next.monitor.rate, next.workloads.mtu),
        (None, 7, 1400)
    );
    assert_eq!(next.log.level, "warn", "a flag still wins");
    assert_eq!(
        next.file_status().pending,
        [("mtu", "1450".to_owned())].into()
    );
    let reported = next.report();
    let mtu = reported
        .parameters
        .iter()
        .find(|p| p.name == "mtu")
        .unwrap();
    assert_eq!(
        (&*mtu.value, mtu.pending.as_deref()),
        ("1400", Some("1450"))
    );
    // A change that the file reverts is no longer pending.
    let (back, changed) = next.reread(Some(("palisade.yaml", b"mtu: 1400\nmonitor-rate: 7\n")));
    assert_eq!(
        (changed, back.file_status()),
        (vec![], &ConfigFileStatus::default())
    );
    // Without a file, the defaults apply, as after a restart.
    let (bare, _) = back.reread(None);
    assert_eq!((bare.monitor.rate, bare.workloads.mtu), (100, 1400));
    assert_eq!(
        bare.file_status().pending,
        [("mtu", "1500".to_owned())].into()
    );
}

#[test]
fn a_refused_file_changes_nothing_and_says_why() {
    let mut config = resolve(&[], &[], Some("pod-mtu: 1300\n")).unwrap();
    config.dry_run = true;
    let (same, changed) =
        config.reread(Some(("palisade.yaml", b"pod-mtu: 1400\nmonitor-rate: 0\n")));
    assert_eq!(changed, []);
    assert_eq!(fields(&same), fields(&config));
    let trouble = same.file_status().error.clone().unwrap();
    assert!(
        trouble.contains("monitor-rate: \"0\" (palisade.yaml:2:1)"),
        "{trouble}"
    );
    // Pending and rejected values are validated as at the next start.
    let (same, _) = config.reread(Some((
        "palisade.yaml",
        b"state-dir: /etc/palisade/policy/s\n",
    )));
    assert!(same.file_status().error.is_some());
    let (same, _) = config.reread(Some(("palisade.yaml", b"settle: 100\n")));
    let error = same.file_status().error.clone().unwrap();
    assert!(error.contains("settle was removed"), "{error}");
    let (mended, _) = same.reread(Some(("palisade.yaml", b"pod-mtu: 1400\n")));
    assert_eq!(
        (mended.cni.pod_mtu, mended.file_status()),
        (Some(1400), &ConfigFileStatus::default())
    );
    assert!(mended.dry_run, "no part of the file");
}

#[test]
fn without_a_configured_pool_an_api_server_means_those_of_the_node() {
    let has = |flags: &[(&str, &str)]| {
        let config = resolve(flags, &[], None).unwrap();
        let ipam = &config.ipam;
        assert_eq!(ipam.has_node_pools(), ipam.networks().is_empty());
        ipam.has_node_pools()
    };
    assert!(!has(&[]));
    assert!(has(&[("ipam-pool", "node")]));
    assert!(has(&[("kubernetes", "in-cluster")]));
    assert!(has(&[("kubernetes", "/kubeconfig"), ("ipam-pool", "")]));
    assert!(has(&[("kubernetes", "in-cluster"), ("ipam-pool", "auto")]));
    assert!(!has(&[("ipam-pool", "auto")]));
    assert!(has(&[
        ("kubernetes", "in-cluster"),
        ("ipam-reserved", "10.9.0.0/30")
    ]));
    assert!(!has(&[
        ("kubernetes", "in-cluster"),
        ("ipam-pool", "10.8.0.0/24,10.9.0.0/24")
    ]));
    assert!(!has(&[
        ("kubernetes", "in-cluster"),
        ("ipam-pool", "10.9.0.0/24")
    ]));
    let name = |variables: &[(&str, &str)]| resolve(&[], variables, None).unwrap().nodes.name;
    assert_eq!(name(&[]), None);
    assert_eq!(name(&[("NODE_NAME", "n1")]).as_deref(), Some("n1"));
    let both = [("NODE_NAME", "n1"), ("PALISADE_NODE_NAME", "n2")];
    assert_eq!(name(&both).as_deref(), Some("n2"));
}

/// Nothing that protects is switched off by emptiness: `none` does it, from every source alike.
#[test]
fn failsafe_ports_are_switched_off_by_a_word_only() {
    for parameter in ["failsafe-inbound-ports", "failsafe-outbound-ports"] {
        let variable = find_parameter(parameter).unwrap().env_variable();
        let file = |value: &str| format!("{parameter}: {value}\n");
        for empty in ["", " "] {
            assert!(resolve(&[(parameter, empty)], &[], None).is_err());
            assert!(resolve(&[], &[(&variable, empty)], None).is_err());
        }
        for empty in ["", "''", "[]", "[\"\"]"] {
            let resolved = resolve(&[], &[], Some(&file(empty)));
            // A key without a value is one that is not set.
            let is_default = resolved
                .as_ref()
                .is_ok_and(|config| config.host.failsafe() == FailsafePorts::default());
            assert!(
                resolved.is_err() || empty.is_empty() && is_default,
                "{empty:?}"
            );
        }
        let error = resolve(&[(parameter, "")], &[], None).unwrap_err();
        assert!(error.to_string().contains("`none` is the word"), "{error}");
        let none = [
            resolve(&[(parameter, "none")], &[], None),
            resolve(&[], &[(&variable, "none")], None),
            resolve(&[], &[], Some(&file("none"))),
        ];
        for config in none {
            let failsafe = config.unwrap().host.failsafe();
            let (off, on) = if parameter.contains("inbound") {
                (failsafe.inbound, failsafe.outbound)
            } else {
                (failsafe.outbound, failsafe.inbound)
            };
            assert!(off.is_empty() && !on.is_empty());
        }
    }
}

#[test]
fn the_example_file_says_the_defaults() {
    let text = example(&[("cni-conf-dir", "/etc/cni/net.d")]);
    let config = resolve(&[], &[], Some(&text)).unwrap();
    assert_eq!(
        config.cni.conf_dir.as_deref(),
        Some(Path::new("/etc/cni/net.d"))
    );
    // The commented lines are valid entries too.
    let all = text
        .replace("\n#", "\n")
        .replace("\n ", "\n# ")
        .replace("\n# # ", "\n# ");
    let uncommented: String = all
        .lines()
        .filter(|line| {
            line.split(':')
                .next()
                .is_some_and(|name| find_parameter(name).is_some())
        })
        .filter(|line| !line.starts_with("cni-conf-dir"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(uncommented.lines().count(), parameters().count() - 1);
    let config = resolve(&[], &[], Some(&uncommented)).unwrap();
    assert_eq!(fields(&config), fields(&resolve(&[], &[], None).unwrap()));
}

const REMOVED_PAGE: &str = "docs/removed-parameters.md";

/// The values of the packaged file that differ from the defaults: none, so that installing the package
/// does not make a container runtime use Palisade before the administrator enables it.
const PACKAGED: &[(&str, &str)] = &[];

#[test]
#[allow(clippy::disallowed_methods, reason = "tests write files directly")]
fn the_documents_are_those_of_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, made) in [
        ("docs/configuration.md", markdown()),
        (REMOVED_PAGE, removed_markdown()),
        ("docs/man/palisade.yaml.5", man()),
        ("packaging/palisade.yaml", example(PACKAGED)),
    ] {
        let plain = made.replace("\\-", "-");
        let has = |parameter: &str| assert!(plain.contains(parameter), "{name}: {parameter}");
        if name == REMOVED_PAGE {
            REMOVED_PARAMETERS
                .iter()
                .for_each(|removed| has(removed.name));
        } else {
            parameters().for_each(|parameter| has(parameter.name));
        }
        let path = root.join(name);
        if std::env::var_os("PALISADE_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &made).unwrap();
        }
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            present == made,
            "{name} differs: run `make docs` and read the difference"
        );
    }
    assert!(resolve(&[], &[], Some(&example(PACKAGED))).is_ok());
}

#[test]
fn flows_are_served_beyond_this_host_to_those_with_a_certificate() {
    let flows = ("flows", "on");
    let one = |flags: &[(&str, &str)]| resolve(flags, &[], None).unwrap_err().to_string();
    assert!(one(&[("hubble-socket", "/s")]).contains("set flows to on, or remove hubble-socket"));
    let beyond = ("hubble-address", "10.0.0.1:4244");
    assert!(one(&[flows, beyond]).contains("set hubble-tls-dir"));
    let certificates = ("hubble-tls-dir", "/tls");
    assert!(one(&[flows, certificates]).contains("set hubble-address, or remove"));
    assert!(resolve(&[flows, beyond, certificates], &[], None).is_ok());
    let local = ("hubble-address", "127.0.0.1:4244");
    for address in [local, ("hubble-address", "[::1]:4244")] {
        let served = resolve(&[flows, address], &[], None).unwrap().hubble;
        assert!(served.is_served());
    }
    assert!(!resolve(&[flows], &[], None).unwrap().hubble.is_served());
}

#[test]
fn the_page_is_served_beyond_this_host_to_those_with_the_token() {
    let one = |flags: &[(&str, &str)]| resolve(flags, &[], None).unwrap_err().to_string();
    let (beyond, token) = (("page-address", "10.0.0.1:8088"), ("page-token-file", "/t"));
    let refused = one(&[beyond]);
    assert!(refused.contains("set page-token-file"), "{refused}");
    assert!(one(&[token]).contains("set page-address, or remove page-token-file"));
    assert!(resolve(&[beyond, token], &[], None).is_ok());
    for local in ["127.0.0.1:8088", "[::1]:8088"] {
        let page = resolve(&[("page-address", local)], &[], None).unwrap().page;
        assert!(
            page.address
                .is_some_and(|address| address.ip().is_loopback())
        );
    }
}
