//! Each view shows what the API says.

use super::chromium::Chromium;
use super::tab::Tab;
use crate::fixtures::{
    FakeAgent, IMAGE, SCRIPT, manifest, many_flows, monitor_lines, policy, recorded_flows,
};
use crate::served::ServedPage;
use palisade_page::{PageLimits, map_of_flows};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn served(agent: &FakeAgent) -> ServedPage {
    ServedPage::start(agent, None, PageLimits::default())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number as the page shows it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[test]
fn live_flows_are_those_of_the_stream() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let page = served(&agent);
    let mut tab = Tab::open(&mut browser, &page, "");
    tab.wait("document.querySelectorAll('tbody tr').length === 4");
    tab.wait("document.getElementById('agent').textContent.includes('worker-1')");
    let agent_line = "Node worker-1 · Palisade 0.1.0 · revision 42 · Ready";
    assert_eq!(tab.texts("#agent"), [agent_line]);
    let rows = tab.rows("main");
    let lines = monitor_lines();
    // The last comes first.
    let expected = |line: &Value, cells: [&str; 5]| {
        let time = line.get("time").or_else(|| line.get("began")).unwrap();
        let mut row = vec![text(time)];
        row.extend(cells.map(str::to_owned));
        row
    };
    let rule = format!("NetworkPolicy shop/{SCRIPT} rule 1 (shop/x.yaml:3)");
    let web = "shop/web-1 Deployment web, 10.0.0.2";
    assert_eq!(
        rows[0],
        expected(
            &lines[3],
            [
                "✕ denied",
                &format!("{web}:40003"),
                "api.example.org 192.0.2.7:443",
                "443/TCP",
                &rule
            ]
        )
    );
    assert_eq!(
        rows[1],
        [
            text(&lines[2]["time"]),
            format!("1,234 events are not shown (lost: rate) {rule}")
        ]
    );
    assert_eq!(
        rows[2],
        expected(
            &lines[1],
            [
                "✓ allowed, began",
                &format!("{web}:40002"),
                "shop/db-0 10.0.0.1:5432, by Service shop/db",
                "5432/TCP",
                "egress: profileingress: NetworkPolicy shop/db rule 0 (shop/db.yaml:12)"
            ]
        )
    );
    assert_eq!(
        rows[3],
        expected(
            &lines[0],
            [
                "✕ denied",
                &format!("shop/{IMAGE} Deployment web, 10.0.0.9:40001"),
                "shop/db-0 10.0.0.1:5432",
                "5432/TCP",
                "default deny: NetworkPolicy shop/db (shop/db.yaml:1)"
            ]
        )
    );
    assert!(
        agent
            .requests()
            .contains(&"GET /v1/monitor?flows=true&last=200".to_owned())
    );
    // It follows, and stops when it is told to.
    let mut more = lines[0].clone();
    more["time"] = json!("2026-11-21T07:33:00.000001Z");
    agent.send(&more);
    tab.wait("document.querySelectorAll('tbody tr').length === 5");
    assert_eq!(tab.rows("main")[0][0], text(&more["time"]));
    tab.press("p");
    agent.send(&more);
    tab.wait("document.getElementById('stream').textContent.startsWith('Paused: 1 new')");
    assert_eq!(tab.rows("main").len(), 5);
    tab.press("p");
    tab.wait("document.querySelectorAll('tbody tr').length === 6");
    // It says when the stream is cut, and goes on.
    agent.cut();
    tab.wait("!document.getElementById('connection').hidden");
    assert!(tab.texts("#connection")[0].starts_with("Disconnected: "));
    tab.wait("document.querySelector('tr.lost') && document.getElementById('connection').hidden");
    agent.send(&more);
    tab.wait("document.querySelectorAll('tbody tr').length === 8");
    let lost = tab.texts("tr.lost td:last-child");
    assert_eq!(lost[0], "? events are not shown (lost: disconnected) ");
    // No more rows are kept than are told.
    for _ in 0..2_100 {
        agent.send(&more);
    }
    tab.wait("document.querySelectorAll('tbody tr').length === 2000");
    assert!(tab.end() > 8);
    browser.end();
}

#[test]
fn filters_are_those_of_the_api_and_in_the_address() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let page = served(&agent);
    let mut tab = Tab::open(
        &mut browser,
        &page,
        "#/live?verdict=Denied&namespace=shop&from=shop%2Fweb&port=443",
    );
    tab.wait("document.querySelectorAll('tbody tr').length === 2");
    let rows = tab.rows("main");
    assert_eq!(
        (rows[0][4].as_str(), rows[1].len()),
        ("443/TCP", 2),
        "port 443, and what is lost"
    );
    let asked = "GET /v1/monitor?verdict=Denied&namespace=shop&from=shop%2Fweb&flows=true&last=200";
    assert!(agent.requests().contains(&asked.to_owned()));
    tab.go("#/flows?verdict=Denied&since=24h&text=onerror");
    let asked = "GET /v1/flows?verdict=Denied&since=24h";
    assert!(
        agent.requests().contains(&asked.to_owned()),
        "{:?}",
        agent.requests()
    );
    let rows = tab.rows("main");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][2], format!("shop/{IMAGE}"));
    // A change of the form is in the address, and asks again.
    tab.value("document.querySelector('[name=text]').select(); document.querySelector('[name=text]').focus()");
    tab.insert("api.example");
    tab.wait("location.hash === '#/flows?verdict=Denied&since=24h&text=api.example'");
    assert_eq!(tab.rows("main")[0][3], "api.example.org 192.0.2.7");
    tab.value("document.querySelector('[name=from]').focus()");
    tab.insert("shop/web");
    tab.press("Enter");
    tab.wait("location.hash.includes('from=shop%2Fweb')");
    tab.wait("main.querySelectorAll('tbody tr').length > 0");
    // The rows that are waited for may be those of before.
    let asked = "GET /v1/flows?verdict=Denied&from=shop%2Fweb&since=24h".to_owned();
    let began = Instant::now();
    while !agent.requests().contains(&asked) {
        let is_late = began.elapsed() > Duration::from_secs(20);
        assert!(!is_late, "{:?}", agent.requests());
        std::thread::sleep(Duration::from_millis(10));
    }
    tab.end();
    browser.end();
}

#[test]
fn recorded_flows_and_a_policy_are_those_of_the_api() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let page = served(&agent);
    let mut tab = Tab::open(&mut browser, &page, "#/flows");
    tab.wait("main.dataset.ready === 'true'");
    let list = recorded_flows();
    let flows = list["flows"].as_array().unwrap();
    let rows = tab.rows("main");
    assert_eq!(rows.len(), flows.len());
    for (row, flow) in rows.iter().zip(flows) {
        let count = flow["count"].as_u64().unwrap();
        let verdict = if flow["verdict"] == "Denied" {
            "✕ denied"
        } else {
            "✓ allowed"
        };
        let port = format!("{}/TCP", flow["port"]);
        assert_eq!(
            [&row[0], &row[1], &row[4], &row[5], &row[6]],
            [
                &text(&flow["last"]),
                verdict,
                &port,
                &grouped(count),
                &text(&flow["first"])
            ]
        );
    }
    assert_eq!(
        rows[0][2..4],
        ["shop/web (Deployment)", "shop/db (Deployment)"]
    );
    assert_eq!(
        rows[0][7..],
        [
            "123,456 / 7,890",
            "ingress: NetworkPolicy shop/db rule 0 (shop/db.yaml:12)"
        ]
    );
    assert_eq!(rows[2][2], "host:worker-2 10.1.0.2");
    assert_eq!(rows[4][2], "198.51.100.4");
    let notes = "Node worker-1; the record begins at 2026-11-14T00:00:00Z. 3 flows and packets of this time were not recorded.";
    assert!(tab.texts("main p").contains(&notes.to_owned()));
    tab.go("#/policies");
    let rows = tab.rows("main");
    let first = [
        "NetworkPolicy shop/db",
        "accepted",
        "enforce",
        "default",
        "1000",
        "1",
        "2",
        "2026-11-20T10:00:00Z",
        "shop/db.yaml:1",
    ];
    assert_eq!(rows[0], first);
    assert_eq!(
        rows[1][..2],
        [
            format!("NetworkPolicy shop/{SCRIPT}"),
            "last valid".to_owned()
        ]
    );
    tab.value("main.querySelector('tbody a').click()");
    tab.wait("main.querySelector('h1').textContent === 'NetworkPolicy shop/db' && main.dataset.ready === 'true'");
    let tables = "[...main.querySelectorAll('table')].map((table) => [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent)))";
    let tables: Vec<Vec<Vec<String>>> = serde_json::from_value(tab.value(tables)).unwrap();
    let detail = policy();
    for (row, counter) in tables[0]
        .iter()
        .zip(detail["ruleCounters"].as_array().unwrap())
    {
        let number = |name: &str| grouped(counter["count"][name].as_u64().unwrap());
        assert_eq!(row[4..6], [number("packets"), number("bytes")]);
        assert_eq!(row[3], counter.get("line").map_or(String::new(), text));
    }
    assert_eq!(tables[0][0][..3], ["ingress", "0", "allow"]);
    assert_eq!(
        tables[0][0][6], "2026-11-21T07:32:05Z ✓ allowed",
        "the last hit"
    );
    assert_eq!(tables[0][1][6], "", "no hit");
    assert_eq!(tables[0][2][2], "default deny");
    assert_eq!(tables[0][2][6], "2026-11-21T07:31:00Z ✕ denied");
    assert_eq!(tables[1].len(), 2, "the flows that it decided");
    assert_manifest(&mut tab, &[]);
    tab.end();
    browser.end();
}

/// The manifest of the policy is shown as it is, with these lines marked.
fn assert_manifest(tab: &mut Tab<'_>, marked: &[&str]) {
    let manifest = manifest();
    let text = manifest["text"].as_str().unwrap();
    let shown: Vec<String> = (5..)
        .zip(text.lines())
        .map(|(line, text)| format!("{line}:{text}"))
        .collect();
    let lines = tab.value("[...main.querySelectorAll('pre span')].map((line) => `${line.dataset.line}:${line.textContent.trimEnd()}`)");
    assert_eq!(lines, serde_json::json!(shown));
    let lines = tab
        .value("[...main.querySelectorAll('pre .mark')].map((line) => line.textContent.trimEnd())");
    assert_eq!(lines, serde_json::json!(marked));
    let changed = "The text was changed since it was read: it is not what is in force.".to_owned();
    assert!(tab.texts("main p.warn").contains(&changed));
}

#[test]
fn why_shows_the_explanation_and_marks_the_rule() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let page = served(&agent);
    let mut tab = Tab::open(&mut browser, &page, "#/flows");
    tab.wait("main.dataset.ready === 'true'");
    // From a recorded flow between two controllers: a pod of this host stands for each.
    tab.value("main.querySelector('tbody a').click()");
    tab.wait("main.querySelector('section.case')");
    tab.wait("main.dataset.ready === 'true'");
    let asked = "GET /v1/explain?port=5432%2FTCP&from=shop%2Fweb-1&to=shop%2Fdb-0";
    assert!(
        agent.requests().contains(&asked.to_owned()),
        "{:?}",
        agent.requests()
    );
    let warned = tab.texts("main p.warn");
    assert_eq!(
        warned[..2],
        [
            "shop/web-1 stands for the pods of shop/Deployment/web.",
            "shop/db-0 stands for the pods of shop/Deployment/db."
        ]
    );
    assert_eq!(
        tab.texts("main p.verdict"),
        [format!(
            "✓ allow: Pod shop/{IMAGE} 10.0.0.2 to Pod shop/db-0 10.0.0.1, 5432/TCP"
        )]
    );
    assert_eq!(
        tab.texts("section.case h3"),
        ["Egress: ✓ allow", "Ingress of Pod shop/db-0: ✓ allow"]
    );
    assert_eq!(
        tab.texts("section.case > p"),
        [
            "decided by: allow all profile",
            "decided by NetworkPolicy shop/db ingress rule 0: allow (shop/db.yaml:12)"
        ]
    );
    assert_eq!(
        tab.texts("ol.steps li"),
        [
            "tier default",
            "NetworkPolicy shop/db applies",
            "NetworkPolicy shop/db ingress rule 0: allow (shop/db.yaml:12) matches"
        ]
    );
    let marked = tab.texts("tr.mark td");
    assert_eq!(
        marked,
        [
            "ingress",
            "0",
            "allow (decided)",
            "shop/db.yaml:12",
            "12,345",
            "740,700"
        ]
    );
    assert_eq!(tab.rows("main").len(), 3, "among the rules of its policy");
    assert_manifest(&mut tab, &["  - from:", "    - podSelector: {}"]);
    let note = format!("shop/db is reached by its Service, and {SCRIPT} is no pod");
    assert!(tab.texts("main p.quiet").contains(&note));
    // From a denied packet: ports and addresses go along.
    tab.go("#/live");
    tab.wait("main.querySelectorAll('tbody tr').length === 4");
    tab.value("main.querySelector('tbody a').click()");
    tab.wait("main.querySelector('section.case')");
    let asked = "GET /v1/explain?from=shop%2Fweb-1&to=192.0.2.7&port=443%2FTCP&sourcePort=40003";
    assert!(
        agent.requests().contains(&asked.to_owned()),
        "{:?}",
        agent.requests()
    );
    tab.end();
    browser.end();
}

#[test]
fn the_map_has_every_box_and_edge() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let page = served(&agent);
    let mut tab = Tab::open(&mut browser, &page, "#/map");
    tab.wait("main.dataset.ready === 'true'");
    let list = serde_json::from_value(recorded_flows()).unwrap();
    let map = map_of_flows(&list, 400);
    let boxes: Vec<(String, i32, i32)> = serde_json::from_value(tab.value(
        "[...document.querySelectorAll('[data-node]')].map((node) => [node.dataset.node, Number(node.firstChild.getAttribute('x')), Number(node.firstChild.getAttribute('y'))])",
    ))
    .unwrap();
    let expected: Vec<_> = map
        .nodes
        .iter()
        .map(|node| (node.id.clone(), node.x, node.y))
        .collect();
    assert_eq!(boxes, expected);
    assert_eq!(
        tab.texts("svg .title"),
        ["shop", "tools", "nodes", "names", "outside"]
    );
    let rows = tab.rows("#edges");
    assert_eq!(rows.len(), map.edges.len());
    for (row, edge) in rows.iter().zip(&map.edges) {
        let denied = edge.verdict == palisade_api::MonitorVerdict::Denied;
        let verdict = if denied { "✕ denied" } else { "✓ allowed" };
        assert_eq!(
            row[3..],
            [
                verdict,
                &grouped(edge.count),
                &edge.ports.join(", "),
                &edge.last
            ]
        );
        let key = format!("{}>{}>{:?}", edge.source, edge.destination, edge.verdict);
        let dash = format!(
            "getComputedStyle(document.querySelector('[data-edge=' + CSS.escape({}) + '] .edge')).strokeDasharray",
            json!(key)
        );
        assert_eq!(
            tab.value(&dash) != "none",
            denied,
            "told apart without colour"
        );
    }
    // An edge lists its flows, from the picture and from the table.
    let denied = rows
        .iter()
        .position(|row| row[1].contains("onerror"))
        .unwrap();
    for select in [
        ".querySelectorAll('#edges button')",
        ".querySelectorAll('[data-edge] path')",
    ] {
        let find = if select.contains("button") {
            format!("document{select}[{denied}].click()")
        } else {
            format!(
                "document{select}[{}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))",
                2 * denied
            )
        };
        tab.value(&find);
        tab.wait("document.querySelectorAll('#edge-flows tbody tr').length === 1");
        assert_eq!(tab.rows("#edge-flows")[0][2], format!("shop/{IMAGE}"));
        assert!(
            tab.value("location.hash")
                .as_str()
                .unwrap()
                .contains("edge=")
        );
        // The same again takes the selection back.
        tab.value(&find);
        tab.wait("document.querySelectorAll('#edge-flows tbody tr').length === 0");
    }
    tab.end();
    let agent = FakeAgent::new().with_flows(&many_flows(1_000));
    let page = served(&agent);
    let mut tab = Tab::open(&mut browser, &page, "#/map?nodes=1000");
    tab.wait("document.querySelectorAll('svg [data-node]').length === 1000");
    let edges = map_of_flows(&many_flows(1_000), 1_000).edges.len();
    assert_eq!(
        tab.value("document.querySelectorAll('svg path.edge').length"),
        edges
    );
    let inside = "[...document.querySelectorAll('[data-node]')].every((node) => { const box = node.getBBox(); const svg = node.ownerSVGElement.viewBox.baseVal; return box.x >= 0 && box.y >= 0 && box.x + box.width <= svg.width && box.y + box.height <= svg.height; })";
    assert_eq!(tab.value(inside), true);
    tab.go("#/map");
    tab.wait("document.querySelectorAll('svg [data-node]').length === 400");
    assert!(tab.texts("main p.quiet")[0].contains("600 boxes and"));
    tab.end();
    browser.end();
}

#[test]
fn a_preview_shows_what_would_change() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let page = served(&agent);
    let mut tab = Tab::open(&mut browser, &page, "#/preview");
    tab.wait("main.dataset.ready === 'true'");
    let manifest = "kind: NetworkPolicy\nmetadata: {name: db}\n";
    tab.press("/");
    assert_eq!(tab.focus(), "manifests");
    tab.insert(manifest);
    tab.value("main.querySelector('form').requestSubmit()");
    tab.wait("document.querySelectorAll('#results section').length === 4");
    let sent: Value = serde_json::from_str(&agent.bodies()[0]).unwrap();
    assert_eq!(sent, json!({"manifests": manifest, "since": "24h"}));
    assert_eq!(
        tab.texts("#results h2"),
        ["Cut: 1", "Opened: 1", "Already denied: 0", "Not judged: 1"]
    );
    let cut = tab.rows("[data-part=Cut]");
    assert!(cut[0][7].contains("1 of 3 pairs of pods"), "{cut:?}");
    assert_eq!(
        cut[0][..7],
        [
            "2026-11-21T07:32:05Z",
            "✓ allowed",
            "shop/web (Deployment)",
            "shop/db (Deployment)",
            "5432/TCP",
            "1,024",
            "2026-11-20T06:00:00Z",
        ]
    );
    let denied = "ingress: denied by the default of tier default; isolated by NetworkPolicy shop/db (shop/db.yaml:1)";
    assert!(cut[0][7].starts_with(denied), "{cut:?}");
    assert_eq!(
        tab.rows("[data-part=Opened]")[0][2],
        format!("shop/{IMAGE}")
    );
    assert_eq!(tab.rows("[data-part='Not judged']")[0][7], SCRIPT);
    let notes = tab.texts("#results > ul li").join("\n");
    for note in [
        "3 of 4 kinds of flows were judged",
        "3 flows and packets were not recorded",
        "worker-2",
        "Services are not judged",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
    tab.end();
    let page = served(&FakeAgent::new().without_preview());
    let mut tab = Tab::open(&mut browser, &page, "#/preview");
    tab.wait("main.dataset.ready === 'true'");
    tab.value("main.querySelector('textarea').value = 'kind: NetworkPolicy'; main.querySelector('form').requestSubmit()");
    tab.wait("document.querySelector('#results .warn')");
    assert!(tab.texts("#results .warn")[0].starts_with("This agent has no preview"));
    tab.end();
    browser.end();
}
