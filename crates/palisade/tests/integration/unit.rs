//! Properties of the packaged unit: it is always restarted, its resources are limited, and it starts after
//! services that would flush its rules.

const UNIT: &str = include_str!("../../../../packaging/palisade.service");

/// Every value of a key in a section, in order.
fn values(section: &str, key: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut current = "";
    for line in UNIT.lines().filter(|line| !line.starts_with('#')) {
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
    assert_eq!(values("Unit", "StartLimitIntervalSec"), ["0"]);
    assert_eq!(values("Service", "Restart"), ["always"]);
    assert!(values("Service", "StartLimitBurst").is_empty());
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
