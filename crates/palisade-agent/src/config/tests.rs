//! Tests: the table covers every parameter, values of all sources are equivalent, contradictions are
//! rejected.

use super::*;
use palisade_api::ParameterOrigin;

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

/// A non-default value of each parameter that is compatible with all others except the single pools.
const OTHER: &[(&str, &str)] = &[
    ("directory", "/x/policy"),
    ("kubernetes", "kubeconfig"),
    ("kubeconfig", "/k"),
    ("status-write", "false"),
    ("etcd", "https://10.0.0.1:2379"),
    ("etcd-prefix", "/other"),
    ("etcd-ca-file", "/ca"),
    ("etcd-cert-file", "/cert"),
    ("etcd-key-file", "/key"),
    ("etcd-user", "agent"),
    ("etcd-password-file", "/password"),
    ("settle", "5"),
    ("policy-set-max-elements", "2048"),
    ("host-max-elements", "4096"),
    ("policy-cidr-match-mode", "nodes"),
    ("state-dir", "/x/state"),
    ("pool-ipv4", "10.1.0.0/24"),
    ("pool-ipv6", "none"),
    ("ipam-pool", "10.2.0.0/24,10.3.0.0/24,fd00:2::/64"),
    ("node-name", "n1"),
    ("ipam-reserved", "10.2.0.4-10.2.0.9,fd00:2::/120"),
    ("mtu", "1400"),
    ("interface-prefix", "pod"),
    ("pod-mtu", "1450"),
    ("masquerade", "outside"),
    ("masquerade-except", "10.0.0.0/8"),
    ("node-routes", "off"),
    ("cni-conf-dir", "/etc/cni/net.d"),
    ("cni-conf-name", "05-x.conflist"),
    ("cni-conf-keep", "false"),
    ("cni-bin-dir", "/usr/lib/cni"),
    ("cni-missing-plugin", "ignore"),
    ("table", "other"),
    ("own-table", "false"),
    ("mark-mask", "0xffff0000"),
    ("packet-mark-bit", "0x100"),
    ("host-to-endpoint", "policy"),
    ("hairpin", "judge"),
    ("deny-action", "reject"),
    ("failsafe-inbound-ports", "tcp:22,udp:10.0.0.0/8:68"),
    ("failsafe-outbound-ports", "none"),
    ("host-policy-audit", "true"),
    ("policy-audit-mode", "true"),
    ("pod-mode-annotation", "ignore"),
    ("vxlan-from-workloads", "policy"),
    ("geneve-from-workloads", "policy"),
    ("ipip-from-workloads", "policy"),
    ("gre-from-workloads", "policy"),
    ("forwarding", "keep"),
    ("sysctl-dir", "/host/proc/sys"),
    ("socket", "/x/socket"),
    ("api-group", "wheel"),
    ("api-group-labels", "any"),
    ("api-group-netns", "own"),
    ("api-group-namespaces", "shop,team-a"),
    ("api-group-workloads", "9"),
    ("api-rate", "7"),
    ("api-burst", "8"),
    ("api-body-limit", "2048"),
    ("monitor-group", "3"),
    ("monitor-rate", "4"),
    ("log-level", "debug"),
    ("log-format", "json"),
    ("health-address", "127.0.0.1:9245"),
    ("dry-run", "true"),
];

/// The fields of a configuration, without the raw parameters.
fn fields(config: &Config) -> String {
    let text = format!("{config:#?}");
    text.split("\n    raw:").next().unwrap().to_owned()
}

#[test]
fn each_parameter_is_read_from_flag_environment_and_file_and_reaches_its_field() {
    let names: Vec<_> = PARAMETERS.iter().map(|p| p.name).collect();
    let others: Vec<_> = OTHER.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, others, "each parameter once, in the table's order");
    for ((name, value), parameter) in OTHER.iter().zip(PARAMETERS) {
        assert_ne!(*value, parameter.default, "{name}");
        // A reservation requires a pool that contains it.
        let beside: &[(&str, &str)] = match *name {
            "ipam-reserved" => &[("ipam-pool", "10.2.0.0/24,fd00:2::/64")],
            "kubeconfig" => &[("kubernetes", "kubeconfig")],
            "etcd-key-file" => &[("etcd", "https://e:2379"), ("etcd-cert-file", "/c")],
            "etcd-password-file" => &[("etcd", "https://e:2379"), ("etcd-user", "u")],
            name if name.starts_with("etcd-") => &[("etcd", "https://e:2379")],
            _ => &[],
        };
        let with = |more: (&'static str, &'static str)| [beside, &[more]].concat();
        let before = resolve(beside, &[], None).unwrap();
        let flag = resolve(&with((name, value)), &[], None).unwrap();
        let variable = parameter.env_variable();
        let environment = resolve(beside, &[(&variable, value)], None).unwrap();
        let file = resolve(beside, &[], Some(&format!("{name}: \"{value}\"\n"))).unwrap();
        assert_eq!(fields(&flag), fields(&environment), "{name}");
        assert_eq!(fields(&flag), fields(&file), "{name}");
        assert_ne!(fields(&flag), fields(&before), "{name} reaches no field");
        let reported = |config: &Config| {
            let parameters = config.report().parameters;
            let found = parameters.into_iter().find(|p| p.name == *name).unwrap();
            assert_eq!(found.value, *value);
            (found.source, found.origin)
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
fn everything_at_once() {
    let said: Vec<_> = OTHER
        .iter()
        .filter(|(name, _)| !name.starts_with("pool-"))
        .copied()
        .collect();
    let config = resolve(&said, &[], None).unwrap();
    let pools = config.pools.iter().map(Prefix::to_string);
    assert_eq!(
        pools.collect::<Vec<_>>(),
        ["10.2.0.0/24", "10.3.0.0/24", "fd00:2::/64"]
    );
    assert_eq!((config.pod_mtu, config.masquerade), (Some(1450), true));
    assert_eq!(
        config.cni_conf_dir.as_deref(),
        Some(Path::new("/etc/cni/net.d"))
    );
    let none = resolve(&[("ipam-pool", "none")], &[], None).unwrap();
    assert_eq!(none.pools, []);
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file() {
    let file = Some("settle: 1\nmtu: 1400\ntable: filex\n");
    let config = resolve(
        &[("settle", "3")],
        &[("PALISADE_SETTLE", "2"), ("PALISADE_MTU", "1450")],
        file,
    )
    .unwrap();
    assert_eq!(
        (config.settle, config.mtu, &*config.table),
        (Duration::from_millis(3), 1450, "filex")
    );
    let report = config.report();
    let source = |name: &str| {
        let found = report.parameters.iter().find(|p| p.name == name).unwrap();
        found.source
    };
    assert_eq!(
        ["settle", "mtu", "table", "socket"].map(source),
        [
            ParameterOrigin::Flag,
            ParameterOrigin::Environment,
            ParameterOrigin::File,
            ParameterOrigin::Default
        ]
    );
}

#[test]
fn every_problem_is_told_in_one_message() {
    let file = "\nsettel: 3\nmtu: 9\nmonitor-rate: [1]\nipam-pool: 10.0.0.0/24\n";
    let text = refused(
        &[("pool-ipv4", "10.9.0.0/24")],
        &[("PALISADE_TABLE", "No"), ("PALISADE_POD_MTU", "1000")],
        Some(file),
    );
    assert_eq!(
        text,
        "configuration: 5 problems\n  \
         palisade.yaml:2:1: unknown parameter \"settel\"; did you mean settle?\n  \
         palisade.yaml:4:15: expected one value\n  \
         mtu: \"9\" (palisade.yaml:3:1) is not a number from 1280 to 65535\n  \
         table: \"No\" (PALISADE_TABLE) must be 1 to 64 of a-z, 0-9 and _, a letter first\n  \
         ipam-pool (palisade.yaml:5:1) and pool-ipv4 (--pool-ipv4) contradict each other: \
         ipam-pool replaces pool-ipv4; add 10.9.0.0/24 to ipam-pool, and remove pool-ipv4"
    );
}

#[test]
fn a_kubeconfig_that_is_not_used_is_refused() {
    let flags = [("kubeconfig", "/k")];
    for kubernetes in ["off", "in-cluster"] {
        let both = [flags[0], ("kubernetes", kubernetes)];
        assert!(
            refused(&both, &[], None).contains("--kubeconfig"),
            "{kubernetes}"
        );
    }
    assert!(refused(&flags, &[], None).contains("the file is not used"));
    resolve(&[flags[0], ("kubernetes", "kubeconfig")], &[], None).unwrap();
}

#[test]
fn what_etcd_does_not_use_is_refused() {
    let etcd = ("etcd", "10.0.0.1:2379,http://10.0.0.2:2379");
    let options = resolve(&[etcd], &[], None).unwrap().etcd.unwrap();
    assert_eq!(
        options.location(),
        "http://10.0.0.1:2379,http://10.0.0.2:2379/palisade"
    );
    let secure = [("etcd", "10.0.0.1:2379"), ("etcd-ca-file", "/ca")];
    let options = resolve(&secure, &[], None).unwrap().etcd.unwrap();
    assert_eq!(options.endpoints, ["https://10.0.0.1:2379"]);
    let one = |flags: &[(&str, &str)]| refused(flags, &[], None);
    assert!(one(&[("etcd-ca-file", "/ca")]).contains("set etcd to its endpoints"));
    assert!(one(&[etcd, ("etcd-ca-file", "/ca")]).contains("10.0.0.2:2379 has no TLS"));
    assert!(one(&[secure[0], ("etcd-key-file", "/k")]).contains("set etcd-cert-file"));
    assert!(one(&[etcd, ("etcd-password-file", "/p")]).contains("set etcd-user"));
    assert!(one(&[("etcd", "e.example")]).contains("is not an endpoint"));
    assert!(one(&[etcd, ("etcd-prefix", "palisade")]).contains("is not a prefix"));
}

#[test]
fn contradictions_name_both_parameters_and_who_said_them() {
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
    assert!(reserved.contains("ipam-reserved (--ipam-reserved) and pool-ipv4 (the default)"));
    let mtu = one(&[("pod-mtu", "1000")]);
    assert!(
        mtu.contains("pod-mtu (--pod-mtu) and pool-ipv6 (the default)"),
        "{mtu}"
    );
    assert!(resolve(&[("pod-mtu", "1000"), ("pool-ipv6", "none")], &[], None).is_ok());
    let own = refused(&[("directory", "palisade.yaml")], &[], Some(""));
    assert!(
        own.contains("config (palisade.yaml) and directory (--directory)"),
        "{own}"
    );
}

#[test]
fn words_of_the_file_are_taken_as_written() {
    let file = "masquerade: off\nmark-mask: 0xffff0000\ndry-run: on\nipam-pool:\n- 10.0.0.0/24\n- fd00::/64\nsettle:\n";
    let config = resolve(&[], &[], Some(file)).unwrap();
    assert!(!config.masquerade && config.dry_run);
    assert_eq!((config.mark_mask, config.pools.len()), (0xffff_0000, 2));
    assert!(resolve(&[], &[], Some("# nothing\n")).is_ok());
    let twice = refused(&[], &[], Some("settle: 1\nsettle: 2\n"));
    assert!(twice.contains("palisade.yaml:2:1: the field \"settle\" is written twice"));
    assert!(refused(&[], &[], Some("- 3\n")).contains("expected `parameter: value` lines"));
    assert!(
        refused(&[], &[], Some("settle: 1\n---\nmtu: 1400\n")).contains("a second one begins here")
    );
}

#[test]
fn defaults_are_valid() {
    let config = resolve(&[], &[], None).unwrap();
    assert_eq!(config.pools.len(), 2);
    let plain = |p: &palisade_api::ParameterReport| {
        p.source == ParameterOrigin::Default && p.value == p.default
    };
    assert!(config.report().parameters.iter().all(plain));
}

#[test]
fn secrets_are_not_shown() {
    let secret = Parameter {
        secret: true,
        ..PARAMETERS[0]
    };
    assert_eq!(secret.displayed("abc"), "(secret)");
    assert_eq!(
        (secret.displayed(""), PARAMETERS[0].displayed("abc")),
        (String::new(), "abc".to_owned())
    );
}

#[test]
fn a_new_file_changes_what_can_change_and_names_what_waits() {
    let config = resolve(
        &[("log-level", "warn")],
        &[],
        Some("settle: 50\nmtu: 1400\n"),
    )
    .unwrap();
    let text = "log-level: debug\nmonitor-rate: 7\nmtu: 1450\n";
    let (next, changed) = config.reread(Some(("palisade.yaml", text.as_bytes())));
    let change = |name, from: &str, to: &str| (name, from.to_owned(), to.to_owned());
    assert_eq!(
        changed,
        [
            change("settle", "50", "100"),
            change("monitor-rate", "100", "7")
        ]
    );
    assert_eq!(
        (next.settle.as_millis(), next.monitor_rate, next.mtu),
        (100, 7, 1400)
    );
    assert_eq!(next.log_level, "warn", "a flag still wins");
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
    assert_eq!((bare.monitor_rate, bare.mtu), (100, 1400));
    assert_eq!(
        bare.file_status().pending,
        [("mtu", "1500".to_owned())].into()
    );
}

#[test]
fn a_refused_file_changes_nothing_and_says_why() {
    let config = resolve(&[], &[], Some("settle: 50\n")).unwrap();
    let (same, changed) = config.reread(Some(("palisade.yaml", b"settle: 60\nmonitor-rate: 0\n")));
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
    let (mended, _) = same.reread(Some(("palisade.yaml", b"settle: 60\n")));
    assert_eq!(
        (mended.settle.as_millis(), mended.file_status()),
        (60, &ConfigFileStatus::default())
    );
}

#[test]
fn without_a_configured_pool_an_api_server_means_those_of_the_node() {
    let has = |flags: &[(&str, &str)]| {
        let config = resolve(flags, &[], None).unwrap();
        assert_eq!(config.has_node_pools, config.pools.is_empty());
        config.has_node_pools
    };
    assert!(!has(&[]));
    assert!(has(&[("ipam-pool", "node")]));
    assert!(has(&[("kubernetes", "in-cluster")]));
    assert!(has(&[
        ("kubernetes", "in-cluster"),
        ("ipam-reserved", "10.9.0.0/30")
    ]));
    assert!(!has(&[
        ("kubernetes", "in-cluster"),
        ("pool-ipv4", "10.9.0.0/24")
    ]));
    assert!(!has(&[
        ("kubernetes", "in-cluster"),
        ("ipam-pool", "10.9.0.0/24")
    ]));
    let name = |variables: &[(&str, &str)]| resolve(&[], variables, None).unwrap().node_name;
    assert_eq!(name(&[]), None);
    assert_eq!(name(&[("NODE_NAME", "n1")]).as_deref(), Some("n1"));
    let both = [("NODE_NAME", "n1"), ("PALISADE_NODE_NAME", "n2")];
    assert_eq!(name(&both).as_deref(), Some("n2"));
}

/// Nothing that protects is switched off by emptiness: `none` does it, from every source alike.
#[test]
fn failsafe_ports_are_switched_off_by_a_word_only() {
    for parameter in ["failsafe-inbound-ports", "failsafe-outbound-ports"] {
        let variable = Parameter::by_name(parameter).unwrap().env_variable();
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
                .is_ok_and(|config| config.failsafe == FailsafePorts::default());
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
            let failsafe = config.unwrap().failsafe;
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
    let said = resolve(&[], &[], Some(&text)).unwrap();
    assert_eq!(
        said.cni_conf_dir.as_deref(),
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
                .is_some_and(|name| Parameter::by_name(name).is_some())
        })
        .filter(|line| !line.starts_with("pool-") && !line.starts_with("cni-conf-dir"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(uncommented.lines().count(), PARAMETERS.len() - 3);
    let config = resolve(&[], &[], Some(&uncommented)).unwrap();
    assert_eq!(fields(&config), fields(&resolve(&[], &[], None).unwrap()));
}

/// The values of the packaged file that differ from the defaults: none, so that installing the package
/// does not make a container runtime use Palisade before the administrator enables it.
const PACKAGED: &[(&str, &str)] = &[];

#[test]
#[allow(clippy::disallowed_methods, reason = "tests write files directly")]
fn the_documents_are_those_of_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, made) in [
        ("docs/configuration.md", markdown()),
        ("docs/man/palisade.yaml.5", man()),
        ("packaging/palisade.yaml", example(PACKAGED)),
    ] {
        for parameter in PARAMETERS {
            let plain = made.replace("\\-", "-");
            assert!(plain.contains(parameter.name), "{name}: {}", parameter.name);
        }
        let path = root.join(name);
        if std::env::var_os("PALISADE_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &made).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == made,
            "{name} differs: run `make docs` and read the difference"
        );
    }
    assert!(resolve(&[], &[], Some(&example(PACKAGED))).is_ok());
}
