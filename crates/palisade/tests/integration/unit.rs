//! Properties of the packaged units: they are always restarted, their resources are limited, the agent's starts after
//! services that would flush its rules, and the proxy's outlives the agent.

const UNIT: &str = include_str!("../../../../packaging/palisade.service");
const PROXY: &str = include_str!("../../../../packaging/palisade-proxy.service");

/// Every value of a key in a section of the agent's unit, in order.
fn values(section: &str, key: &str) -> Vec<&'static str> {
    values_of(UNIT, section, key)
}

/// Every value of a key in a section, in order.
fn values_of(unit: &'static str, section: &str, key: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut current = "";
    for line in unit.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            current = name.trim_end_matches(']');
        } else if let Some((name, value)) = line.split_once('=')
            && (current, name) == (section, key)
        {
            found.push(value);
        }
    }
    found
}

fn mebibytes(key: &str) -> u64 {
    let value = values("Service", key)[0];
    let (number, unit) = value.split_at(value.len() - 1);
    number.parse::<u64>().unwrap() * if unit == "G" { 1024 } else { 1 }
}

#[test]
fn it_is_started_again_for_ever_and_ever_more_seldom() {
    for unit in [UNIT, PROXY] {
        assert_eq!(values_of(unit, "Unit", "StartLimitIntervalSec"), ["0"]);
        assert_eq!(values_of(unit, "Service", "Restart"), ["always"]);
        assert!(values_of(unit, "Service", "StartLimitBurst").is_empty());
    }
    let number = |key| values("Service", key)[0].parse::<u32>().unwrap();
    assert!(number("RestartSec") < number("RestartMaxDelaySec"));
    assert!(number("RestartSteps") > 1);
}

#[test]
fn it_has_a_memory_limit_and_a_mark_below_it() {
    assert!(mebibytes("MemoryHigh") < mebibytes("MemoryMax"));
}

#[test]
fn it_starts_after_what_flushes_rules() {
    let after = values("Unit", "After").join(" ");
    let before = values("Unit", "Before").join(" ");
    for unit in ["nftables.service", "firewalld.service"] {
        assert!(after.split(' ').any(|name| name == unit), "{unit}");
        assert!(!before.contains(unit), "{unit}");
    }
}

#[test]
fn both_ways_to_a_grace_period_are_open() {
    let calls = values("Service", "SystemCallFilter").join(" ");
    for call in ["membarrier", "bpf"] {
        assert!(calls.split(' ').any(|name| name == call), "{call}");
    }
}

#[test]
fn the_proxy_lives_without_the_agent() {
    let wanted = values("Unit", "Wants").join(" ");
    assert!(
        wanted
            .split(' ')
            .any(|name| name == "palisade-proxy.service")
    );
    // The comments name it.
    let lines = PROXY.lines().filter(|line| !line.starts_with('#'));
    let text: Vec<_> = lines.collect();
    assert!(!text.join("\n").contains("palisade.service"));
    for key in ["Requires", "PartOf", "BindsTo"] {
        assert!(values("Unit", key).is_empty(), "{key}");
    }
    // Both make the directory of the sockets, and neither takes those of the other with it.
    for unit in [UNIT, PROXY] {
        assert_eq!(values_of(unit, "Service", "RuntimeDirectory"), ["palisade"]);
        assert_eq!(
            values_of(unit, "Service", "RuntimeDirectoryPreserve"),
            ["yes"]
        );
    }
    // A state directory of the unit could be written.
    assert!(values_of(PROXY, "Service", "StateDirectory").is_empty());
    assert_eq!(
        values_of(PROXY, "Service", "CapabilityBoundingSet"),
        ["CAP_NET_ADMIN CAP_NET_RAW"]
    );
}
