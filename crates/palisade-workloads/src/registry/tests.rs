//! Which Pod is a workload's own, and what is passed on of both.

use super::*;
use palisade_node::workload_store::{Container, pod_id};

fn record(owner: Option<u32>, chained: bool) -> WorkloadRecord {
    WorkloadRecord {
        namespace: "shop".into(),
        name: "web".into(),
        netns: "web".to_owned(),
        inside: "eth0".to_owned(),
        interface: "veth0".into(),
        addresses: vec!["10.0.0.2".parse().unwrap()],
        labels: None,
        ports: Vec::new(),
        created: 7,
        pending: false,
        container: chained.then(|| Container {
            id: "c0".to_owned(),
            network: "pods".to_owned(),
            uid: None,
            pod: true,
        }),
        mtu: None,
        masquerade: None,
        chained,
        index: Some(7),
        netns_identity: None,
        owner,
    }
}

fn pod(addresses: &[&str]) -> Endpoint {
    Endpoint {
        id: pod_id("shop", "web"),
        interface: None,
        labels: [("app".into(), "web".into())].into(),
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        ..closed_endpoint(&"x".into())
    }
}

fn with(record: WorkloadRecord, pod: Option<Endpoint>) -> (WorkloadRegistry, Endpoint) {
    let mut registry = WorkloadRegistry::new("node-1".into(), true, false);
    let workload = Workload {
        record,
        state: EndpointState::Ready,
        reason: None,
    };
    let updates = registry.insert(workload, pod);
    (registry, last_endpoint(&updates))
}

/// The endpoint of the workload, which is the last that is passed on.
fn last_endpoint(updates: &[Update]) -> Endpoint {
    match updates.last() {
        Some(Update::Upsert(Object::Endpoint(endpoint))) => endpoint.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_that_runs_elsewhere_keeps_its_address_from_a_member() {
    let (mut registry, here) = with(record(Some(1000), false), Some(pod(&[])));
    assert_eq!(here.interface.as_deref(), Some("veth0"));
    let appears = Update::Upsert(Object::Endpoint(pod(&["10.9.9.9"])));
    let [
        Update::Upsert(Object::Endpoint(of_pod)),
        Update::Upsert(Object::Endpoint(closed)),
    ] = &*registry.overlay_update(appears)
    else {
        panic!("both are endpoints");
    };
    assert_eq!(*of_pod, pod(&["10.9.9.9"]));
    assert_eq!(
        (&*closed.addresses, closed.interface.as_deref()),
        (&[][..], Some("veth0"))
    );
    let id = pod_id("shop", "web");
    let workload = registry.get(&id).unwrap();
    assert_eq!(workload.state, EndpointState::Closed);
    assert_eq!(workload.reason.as_deref(), Some(ELSEWHERE_REASON));
    assert!(registry.has_no_address(&id));
    // A workload of root is what runs here.
    let (_, roots) = with(record(None, false), Some(pod(&["10.9.9.9"])));
    assert_eq!(roots.addresses, record(None, false).addresses);
    // The workload's own address, as the cluster reports it.
    let (_, own) = with(record(Some(1000), false), Some(pod(&["10.0.0.2"])));
    assert_eq!(own.interface.as_deref(), Some("veth0"));
}

#[test]
fn a_chained_one_whose_interface_is_gone_is_judged_nowhere() {
    let (mut registry, here) = with(record(None, true), Some(pod(&[])));
    assert_eq!(here.interface.as_deref(), Some("veth0"));
    let id = pod_id("shop", "web");
    registry.get_mut(&id).unwrap().state = EndpointState::Lost;
    let lost = last_endpoint(&registry.endpoint_updates(&id));
    assert_eq!((lost.interface, lost.addresses), (None, Vec::new()));
    registry.get_mut(&id).unwrap().state = EndpointState::Closed;
    assert_eq!(last_endpoint(&registry.endpoint_updates(&id)), here);
}

#[test]
fn an_interface_without_a_workload_is_announced_and_holds_nothing() {
    let mut registry = WorkloadRegistry::new("node-1".into(), true, false);
    let closed = ClosedInterface {
        interface: "veth0".into(),
        index: 7,
    };
    let announced = last_endpoint(&[registry.close_interface(closed.clone())]);
    assert_eq!(announced.interface.as_deref(), Some("veth0"));
    assert!(announced.addresses.is_empty() && announced.profiles.is_empty());
    assert_eq!(registry.closed_interfaces().collect::<Vec<_>>(), [&closed]);
    let gone = Update::Delete(ObjectKey::Endpoint(announced.id));
    assert_eq!(
        registry.forget_closed_interface(&"veth0".into()),
        Some(gone)
    );
    assert_eq!(registry.forget_closed_interface(&"veth0".into()), None);
}

/// A container with this UID, on the node `node-1`.
fn container(uid: Option<&str>) -> WorkloadRecord {
    let mut record = record(None, true);
    record.chained = false;
    let container = record.container.as_mut().unwrap();
    container.uid = uid.map(str::to_owned);
    record
}

fn pod_of(uid: Option<&str>, node: Option<&str>, app: &str) -> Endpoint {
    Endpoint {
        metadata: EndpointMetadata {
            owner: None,
            uid: uid.map(Str::from),
        },
        node: node.map(Str::from),
        labels: [("app".into(), app.into())].into(),
        ..pod(&["10.9.9.9"])
    }
}

fn upsert(pod: Endpoint) -> Update {
    Update::Upsert(Object::Endpoint(pod))
}

/// Each endpoint that updates leave: its kind, label, interface and addresses.
fn endpoints(updates: Vec<Update>) -> Vec<String> {
    let state = palisade_model::State::from_updates(updates);
    let shown = state.endpoints.values().map(|endpoint| {
        let app = endpoint.labels.get("app").map_or("-", |app| app);
        let interface = endpoint.interface.as_deref().unwrap_or("-");
        let addresses = endpoint.addresses.iter().map(ToString::to_string);
        let addresses = addresses.collect::<Vec<_>>().join(" ");
        format!("{} {app} {interface} {addresses}", endpoint.id.kind.name())
    });
    shown.collect()
}

const OWN: [&str; 1] = ["Pod old veth0 10.0.0.2"];
const BOTH: [&str; 2] = ["Container old veth0 10.0.0.2", "Pod new - 10.9.9.9"];
const CLOSED: [&str; 2] = ["Container - veth0 ", "Pod new - 10.9.9.9"];

#[test]
fn a_pod_of_another_uid_or_node_gives_a_container_nothing() {
    let here = Some("node-1");
    for (what, uid, new) in [
        ("another UID", Some("a"), pod_of(Some("b"), here, "new")),
        (
            "another UID, no node yet",
            Some("a"),
            pod_of(Some("b"), None, "new"),
        ),
        (
            "another node",
            Some("a"),
            pod_of(Some("b"), Some("node-2"), "new"),
        ),
        (
            "another node, no UID passed",
            None,
            pod_of(Some("b"), Some("node-2"), "new"),
        ),
        (
            "another node, no UID in the source",
            Some("a"),
            pod_of(None, Some("node-0"), "new"),
        ),
    ] {
        let (mut registry, _) = with(container(uid), None);
        let own = registry.overlay_update(upsert(pod_of(uid, here, "old")));
        assert_eq!(endpoints(own.clone()), OWN, "{what}");
        let replaced = registry.overlay_update(upsert(new.clone()));
        let all = own.into_iter().chain(replaced).collect();
        assert_eq!(endpoints(all), BOTH, "{what}");
        assert_eq!(
            registry.closed_reason(&pod_id("shop", "web")),
            None,
            "{what}"
        );
        // The container goes: the Pod of its name is what it was.
        let (_, updates) = registry.remove(&pod_id("shop", "web")).unwrap();
        let left = [Update::Delete(ObjectKey::Endpoint(pod_id("shop", "web")))];
        let left = left.into_iter().chain(updates).collect();
        assert_eq!(endpoints(left), ["Pod new - 10.9.9.9"], "{what}");
        // Without a Pod of its own it is closed.
        let (mut registry, _) = with(container(uid), None);
        let foreign = registry.overlay_update(upsert(new));
        assert_eq!(endpoints(foreign), CLOSED, "{what}");
        let reason = registry.closed_reason(&pod_id("shop", "web"));
        assert_eq!(reason, Some(FOREIGN_POD_REASON), "{what}");
    }
}

#[test]
fn a_pod_is_a_containers_own_by_uid_or_else_by_name() {
    let here = Some("node-1");
    for (what, uid, pod) in [
        ("the same UID", Some("a"), pod_of(Some("a"), here, "old")),
        (
            "not scheduled as far as is known",
            Some("a"),
            pod_of(Some("a"), None, "old"),
        ),
        ("no UID passed", None, pod_of(Some("a"), here, "old")),
        ("no UID in the source", Some("a"), pod_of(None, here, "old")),
    ] {
        let (mut registry, closed) = with(container(uid), None);
        assert_eq!(closed.addresses, Vec::<std::net::IpAddr>::new(), "{what}");
        assert_eq!(
            endpoints(registry.overlay_update(upsert(pod))),
            OWN,
            "{what}"
        );
    }
    // What root attached by name is the Pod of that name, wherever the manifest says that it runs.
    let (mut registry, _) = with(record(None, false), None);
    let pod = pod_of(Some("a"), Some("node-2"), "old");
    assert_eq!(endpoints(registry.overlay_update(upsert(pod))), OWN);
}

#[test]
fn a_pod_becomes_a_containers_own_and_ceases_to_be() {
    let here = Some("node-1");
    let (old, new) = (
        pod_of(Some("a"), here, "old"),
        pod_of(Some("b"), here, "new"),
    );
    let id = pod_id("shop", "web");
    let gone = || Update::Delete(ObjectKey::Endpoint(pod_id("shop", "web")));
    // The container of a new Pod starts before its object is seen.
    let (mut registry, _) = with(container(Some("a")), None);
    let mut all = registry.overlay_update(upsert(new.clone()));
    all.extend(registry.overlay_update(upsert(old.clone())));
    assert_eq!(endpoints(all.clone()), OWN);
    // Its object is replaced, and the replacement deleted: the container keeps its own.
    all.extend(registry.overlay_update(upsert(new.clone())));
    all.extend(registry.overlay_update(gone()));
    assert_eq!(endpoints(all.clone()), OWN);
    assert_eq!(registry.endpoint_id(&id), id);
    // Its own is deleted: it is closed, and stays so whatever gets its name.
    all.extend(registry.overlay_update(upsert(old)));
    all.extend(registry.overlay_update(gone()));
    assert_eq!(endpoints(all.clone()), ["Pod - veth0 "]);
    all.extend(registry.overlay_update(upsert(new)));
    assert_eq!(endpoints(all), CLOSED);
}
