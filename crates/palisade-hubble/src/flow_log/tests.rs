//! Definitions, files, and what becomes of faults.

#![allow(clippy::disallowed_methods, reason = "files of a test")]

use super::*;
use crate::proto::flow::{Endpoint, Verdict};
use palisade_api::{LossCause, LostEvents, MonitorLine};
use std::fs;

const NOON: Duration = Duration::from_secs(1_800_000_000);

fn recent_line() -> RecentLine {
    RecentLine {
        number: 0,
        time: NOON,
        line: MonitorLine::Lost(Box::new(LostEvents {
            api_version: palisade_api::api_version(),
            time: "t".to_owned(),
            cause: LossCause::Kernel,
            count: 1,
            reason: None,
            rule: None,
            policies: Vec::new(),
        })),
    }
}

fn flow(pod: &str, verdict: Verdict) -> Flow {
    Flow {
        time: Some(timestamp(NOON)),
        verdict: verdict as i32,
        source: Some(Endpoint {
            namespace: "shop".to_owned(),
            pod_name: pod.to_owned(),
            ..Endpoint::default()
        }),
        is_reply: Some(false),
        node_name: "default/n1".to_owned(),
        ..Flow::default()
    }
}

/// Logs with these definitions, whose `DIR` is a folder that is removed with the first value.
fn logs(text: &str) -> (tempfile::TempDir, FlowLogs, FlowLogStatus) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("logs.yaml");
    fs::write(&path, text.replace("DIR", dir.path().to_str().unwrap())).unwrap();
    let status = FlowLogStatus::default();
    let mut logs = FlowLogs::new(path, "default/n1".to_owned(), status.clone());
    logs.reread();
    (dir, logs, status)
}

fn read(dir: &tempfile::TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).unwrap_or_default()
}

const TWO_LOGS: &str = r#"
flowLogs:
- name: all
  filePath: DIR/deep/all.log
- name: drops
  filePath: DIR/drops.log
  fieldMask: [source.namespace, verdict]
  includeFilters:
  - verdict: [DROPPED]
    source_pod: ["shop/"]
  excludeFilters:
  - sourcePod: ["shop/noisy"]
  end: "2027-01-15T08:00:01Z"
"#;

#[test]
fn flows_are_written_to_the_logs_that_select_them() {
    let (dir, mut logs, status) = logs(TWO_LOGS);
    assert!(status.error().is_none(), "{:?}", status.error());
    let flows = [
        flow("web", Verdict::Forwarded),
        flow("web", Verdict::Dropped),
        flow("noisy-1", Verdict::Dropped),
    ];
    logs.write(&recent_line(), &flows, NOON);
    logs.write_lost(LostEventSource::HubbleRingBuffer, 5, NOON);
    // The second has ended.
    logs.write(&recent_line(), &flows, NOON + Duration::from_secs(1));
    logs.flush();
    let all = read(&dir, "deep/all.log");
    assert_eq!(all.lines().count(), 7, "{all}");
    let first: serde_json::Value = serde_json::from_str(all.lines().next().unwrap()).unwrap();
    let expected = serde_json::json!({
        "flow": {
            "time": "2027-01-15T08:00:00Z",
            "verdict": "FORWARDED",
            "source": {"namespace": "shop", "pod_name": "web"},
            "node_name": "default/n1",
            "is_reply": false,
        },
        "node_name": "default/n1",
        "time": "2027-01-15T08:00:00Z",
    });
    assert_eq!(first, expected);
    let drops = read(&dir, "drops.log");
    let lines: Vec<&str> = drops.lines().collect();
    assert_eq!(lines.len(), 2, "{drops}");
    assert!(!lines[0].contains("pod_name") && lines[0].contains("DROPPED"));
    assert!(
        lines[1].contains(r#""lost_events":{"source":"HUBBLE_RING_BUFFER","num_events_lost":"5"}"#)
    );
    let counts = [("all".to_owned(), [7, 0]), ("drops".to_owned(), [2, 0])];
    assert_eq!(status.lines(), counts);
}

#[test]
fn definitions_that_cannot_be_used_leave_the_former_ones() {
    let (dir, mut logs, status) = logs(TWO_LOGS);
    let path = dir.path().join("logs.yaml");
    let faults = [
        ("flowLogs: [", "is not YAML"),
        ("flowLogs: [{filePath: /x}]", "it needs a name"),
        ("flowLogs: [{name: a}]", "filePath is neither"),
        (
            "flowLogs: [{name: a, filePath: x.log}]",
            "filePath is neither",
        ),
        (
            "flowLogs: [{name: a, filePath: /x}, {name: a, filePath: /z}]",
            "another one has its name",
        ),
        (
            "flowLogs: [{name: a, filePath: /x}, {name: b, filePath: /x}]",
            "another one has its filePath",
        ),
        ("flowLogs: [{name: a, filePath: /x, rotate: 1}]", "rotate"),
        (
            "flowLogs: [{name: a, filePath: /x, fieldMask: [nothing]}]",
            "is no field of a flow",
        ),
        (
            "flowLogs: [{name: a, filePath: /x, includeFilters: [{pods: [b]}]}]",
            "includeFilters[0]",
        ),
        (
            "flowLogs: [{name: a, filePath: /x, excludeFilters: [{source_ip: [b]}]}]",
            "b",
        ),
        ("flowLogs: []\n---\nflowLogs: []", "several documents"),
    ];
    for (text, reason) in faults {
        fs::write(&path, text).unwrap();
        logs.reread();
        let error = status.error().unwrap();
        assert!(error.to_string().contains(reason), "{text}: {error}");
        assert_eq!(error.reason(), "DefinitionsInvalid");
        assert_eq!(status.lines().len(), 2);
    }
    fs::remove_file(&path).unwrap();
    logs.reread();
    assert_eq!(status.error().unwrap().reason(), "DefinitionsNotRead");
    assert_eq!(status.lines().len(), 2);
    // Empty: no logs.
    fs::write(&path, "# none\n").unwrap();
    logs.reread();
    assert!(status.error().is_none() && status.lines().is_empty());
}

#[test]
fn a_log_that_did_not_change_goes_on() {
    let (dir, mut logs, status) = logs(TWO_LOGS);
    logs.write(&recent_line(), &[flow("web", Verdict::Dropped)], NOON);
    let text = TWO_LOGS.replace("DIR", dir.path().to_str().unwrap());
    fs::write(
        dir.path().join("logs.yaml"),
        text.replace(
            "fieldMask: [source.namespace, verdict]",
            "fieldMask: [uuid]",
        ),
    )
    .unwrap();
    logs.reread();
    logs.write(&recent_line(), &[flow("web", Verdict::Dropped)], NOON);
    logs.flush();
    let counts = [("all".to_owned(), [2, 0]), ("drops".to_owned(), [1, 0])];
    assert_eq!(status.lines(), counts);
    assert_eq!(read(&dir, "drops.log").lines().count(), 2);
}

#[test]
fn a_log_that_cannot_be_written_is_told_and_tried_again() {
    let (dir, mut logs, status) = logs("flowLogs: [{name: a, filePath: DIR/a/b.log}]");
    logs.write(&recent_line(), &[flow("web", Verdict::Dropped)], NOON);
    logs.flush();
    assert_eq!(status.lines(), [("a".to_owned(), [1, 0])]);
    let folder = dir.path().join("full");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.join("b.log")).unwrap();
    let text = format!(
        "flowLogs: [{{name: a, filePath: {}/b.log}}]",
        folder.display()
    );
    fs::write(dir.path().join("logs.yaml"), text).unwrap();
    logs.reread();
    assert!(status.error().is_none());
    logs.write(&recent_line(), &[flow("web", Verdict::Dropped)], NOON);
    logs.flush();
    assert_eq!(status.error().unwrap().reason(), "NotWritten");
    assert_eq!(status.lines(), [("a".to_owned(), [0, 1])]);
    fs::remove_file(folder.join("b.log")).unwrap();
    logs.reread();
    logs.write(&recent_line(), &[flow("web", Verdict::Dropped)], NOON);
    logs.flush();
    assert!(status.error().is_none());
    assert_eq!(status.lines(), [("a".to_owned(), [1, 1])]);
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_begin_anew_at_their_size() {
    let dir = tempfile::tempdir().unwrap();
    for other in ["flows-old.log", "flows-2026-11-29T10-20-30.000.txt"] {
        fs::write(dir.path().join(other), "mine").unwrap();
    }
    let path = dir.path().join("flows.log");
    for compresses in [false, true] {
        let limits = RotationLimits {
            max_bytes: 20,
            max_backups: 2,
            compresses,
        };
        let mut file = RotatedFile::open(&path, limits).unwrap();
        for number in 0..9 {
            // Two lines in a file, and all files at one time.
            file.write_line(&format!("line {number:04}"), NOON).unwrap();
        }
        file.flush().unwrap();
    }
    let current = fs::read_to_string(&path).unwrap();
    assert_eq!(current, "line 0007\nline 0008\n");
    let found = names(dir.path());
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(found.contains(&"flows-old.log".to_owned()), "{found:?}");
    let backups: Vec<&String> = found
        .iter()
        .filter(|name| name.ends_with(".log.gz"))
        .collect();
    assert_eq!(backups.len(), 2, "{found:?}");
    assert_eq!(backups[1], "flows-2027-01-15T08-00-00.007.log.gz");
    let newest = fs::File::open(dir.path().join(backups[1])).unwrap();
    let text = io::read_to_string(flate2::read::GzDecoder::new(newest)).unwrap();
    assert_eq!(text, "line 0005\nline 0006\n");
    // A line that is larger than a file is a file of its own.
    let limits = RotationLimits {
        max_bytes: 4,
        max_backups: 1,
        compresses: false,
    };
    let mut file = RotatedFile::open(&path, limits).unwrap();
    file.write_line("a long line", NOON).unwrap();
    file.flush().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "a long line\n");
}
