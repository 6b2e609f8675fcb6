//! ADDs that wait together in the core's queue are one batch: a few flushes, each answer after its policy.

use super::{Host, Ticking, core, synced};
use crate::requests::CoreRequests;
use palisade_agent::core::{Core, CoreEvent};
use palisade_agent::core_queue::{CoreHandle, run_core};
use palisade_api::{CniAddRequest, CniAttachment, CniResponse};
use palisade_generators::line;
use palisade_model::{Object, Update};
use palisade_node::clock::Clock;
use palisade_node::workload_store::WorkloadRecord;
use palisade_source::UpdateBatch;
use palisade_testkit::FakeDataplane;
use palisade_workloads::access::OperationClass;
use palisade_workloads::workloads::WorkloadError;
use palisade_workloads::workloads::attach::{AttachRequest, AttachTarget};

fn cni_request(name: &str) -> CniAddRequest {
    CniAddRequest {
        container: format!("c-{name}"),
        network: "pods".to_owned(),
        interface: "eth0".to_owned(),
        netns: name.to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        ..CniAddRequest::default()
    }
}

/// Sends these ADDs at once, stops the core after them, and runs it. What was seen at each answer: the
/// interface, and whether its policy was in the kernel.
fn run_queued_adds(
    core: Core,
    dataplane: &FakeDataplane,
    names: &[String],
) -> Vec<Result<bool, String>> {
    let (handle, events) = CoreHandle::channel();
    let clock = Ticking::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut adds = Vec::new();
        for name in names {
            let (handle, dataplane) = (handle.clone(), dataplane.clone());
            let request = AttachRequest {
                target: AttachTarget::Container(cni_request(name)),
                netns: None,
                received_at: clock.monotonic(),
            };
            adds.push(tokio::spawn(async move {
                let respond = move |_: &mut Core, attached: Result<WorkloadRecord, _>| {
                    let record = attached.map_err(|error: WorkloadError| error.to_string())?;
                    let tables = dataplane.tables().unwrap();
                    let mut points = tables.points.keys();
                    Ok(points.any(|point| {
                        let of = point.workload();
                        of.is_some_and(|(interface, _)| *interface == record.interface)
                    }))
                };
                let answer = handle.attach_for_client(OperationClass::Runtime, request, respond);
                answer.await.unwrap()
            }));
        }
        while handle.queue_length() < names.len() {
            assert!(
                adds.iter().all(|add| !add.is_finished()),
                "an ADD was refused"
            );
            tokio::task::yield_now().await;
        }
        handle.send(CoreEvent::Stop);
        run_core(core, &events);
        let mut results = Vec::new();
        for add in adds {
            results.push(add.await.unwrap());
        }
        results
    })
}

#[test]
fn adds_that_wait_together_are_a_few_flushes_and_each_answer_follows_its_policy() {
    let names: Vec<String> = (0..50).map(|n| format!("p{n}")).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&known), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &dataplane);
    synced(&mut core);
    let before = dataplane.calls().len();
    let results = run_queued_adds(core, &dataplane, &names);
    assert!(
        results.iter().all(|result| *result == Ok(true)),
        "{results:?}"
    );
    let flushes = dataplane.calls().len() - before;
    assert!(flushes <= 4, "{flushes} calls of the driver");
    let calls = host.calls();
    let first_open = calls
        .iter()
        .position(|call| call.starts_with("open"))
        .unwrap();
    assert_eq!(
        first_open, 50,
        "no interface is opened before the flush of all"
    );
    let text = std::fs::read_to_string(dir.path().join("workloads.json")).unwrap();
    assert_eq!(text.matches("\"pending\": true").count(), 0);
    assert_eq!(text.matches("\"shop\"").count(), 50);
}

/// The full load of a node at its boot, and as many again: none is told to try again.
#[test]
fn the_adds_of_a_whole_node_wait_in_the_queue() {
    let names: Vec<String> = (0..1_000).map(|n| format!("p{n}")).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&known), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &dataplane);
    synced(&mut core);
    let results = run_queued_adds(core, &dataplane, &names);
    let addresses = 253;
    let attached = results.iter().filter(|result| **result == Ok(true));
    assert_eq!(
        attached.count(),
        addresses,
        "as many as the pool has addresses"
    );
}

#[test]
fn of_adds_that_wait_together_one_fails_alone_and_those_of_one_pod_stay_in_order() {
    let mut names: Vec<String> = (0..5).map(|n| format!("p{n}")).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&known), FakeDataplane::new());
    host.0.lock().unwrap().refused_workload = Some("p3".to_owned());
    names.push("p1".to_owned());
    let mut core = core(dir.path(), &host, &dataplane);
    synced(&mut core);
    let results = run_queued_adds(core, &dataplane, &names);
    let attached: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(
        attached,
        [true, true, true, false, true, true],
        "{results:?}"
    );
    let opened = |name: &str| {
        let open = host.0.lock().unwrap();
        let calls = open
            .calls
            .iter()
            .filter(|call| **call == format!("open {name}"));
        calls.count()
    };
    assert_eq!(
        (opened("p1"), opened("p3"), opened("p4")),
        (1, 0, 1),
        "the second ADD of p1 finds it"
    );
    assert_eq!(host.0.lock().unwrap().joined.len(), 4);
    let text = std::fs::read_to_string(dir.path().join("workloads.json")).unwrap();
    assert_eq!(
        (text.matches("\"shop\"").count(), text.contains("\"p3\"")),
        (4, false)
    );
}

#[test]
fn the_time_from_add_to_open_is_measured_when_the_pod_is_known_and_the_interface_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = core(dir.path(), &Host::with(&["web"]), &FakeDataplane::new());
    synced(&mut core);
    let measured = |core: &mut Core| {
        let text = core.collect_metrics().text();
        let counts = text.lines().find_map(|line| {
            let count = line.strip_prefix("palisade_attach_duration_seconds_count ")?;
            count.parse::<u64>().ok()
        });
        counts.unwrap()
    };
    let request = CniAddRequest {
        pod: true,
        ..cni_request("web")
    };
    assert!(core.cni_add(&request).unwrap().closed.is_some());
    assert_eq!(measured(&mut core), 0);
    let pod = line::endpoint("shop/web");
    core.handle_event(CoreEvent::Source(UpdateBatch {
        updates: vec![Update::Upsert(Object::Endpoint(pod))],
        in_sync: true,
        ..UpdateBatch::default()
    }));
    assert_eq!(core.cni_add(&request).unwrap().closed, None);
    assert_eq!(measured(&mut core), 1);
}

#[test]
fn dels_that_wait_together_are_a_few_flushes_and_one_that_fails_fails_alone() {
    let names: Vec<String> = (0..50).map(|n| format!("p{n}")).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&known), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &dataplane);
    synced(&mut core);
    for name in &names {
        core.cni_add(&cni_request(name)).unwrap();
    }
    host.0.lock().unwrap().refused_removal = Some("p3".to_owned());
    let before = dataplane.calls().len();
    let (handle, events) = CoreHandle::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let results = runtime.block_on(async {
        let mut dels = Vec::new();
        // A runtime that repeats a DEL, and one of a container that is not there.
        for name in names.iter().map(String::as_str).chain(["p1", "other"]) {
            let (handle, dataplane) = (handle.clone(), dataplane.clone());
            let attachment = CniAttachment {
                container: format!("c-{name}"),
                network: "pods".to_owned(),
                interface: "eth0".to_owned(),
            };
            dels.push(tokio::spawn(async move {
                let respond = move |_: &mut Core, removed: Result<CniResponse, WorkloadError>| {
                    let removed = removed.map_err(|error| error.to_string())?.removed.len();
                    Ok::<_, String>((removed, dataplane.tables().unwrap().points.len()))
                };
                handle.detach_for_client(attachment, respond).await.unwrap()
            }));
        }
        while handle.queue_length() < names.len() + 2 {
            tokio::task::yield_now().await;
        }
        handle.send(CoreEvent::Stop);
        run_core(core, &events);
        let mut results = Vec::new();
        for del in dels {
            results.push(del.await.unwrap());
        }
        results
    });
    for (name, result) in names.iter().zip(&results) {
        if name == "p3" {
            assert!(result.is_err())
        } else {
            assert_eq!(*result, Ok((1, 4)), "{name}")
        }
    }
    let (repeated, unknown) = (&results[50], &results[51]);
    assert_eq!((repeated, unknown), (&Ok((0, 4)), &Ok((0, 4))));
    let flushes = dataplane.calls().len() - before;
    assert!(flushes <= 4, "{flushes} calls of the driver");
    let text = std::fs::read_to_string(dir.path().join("workloads.json")).unwrap();
    assert_eq!(text.matches("\"shop\"").count(), 1);
}
