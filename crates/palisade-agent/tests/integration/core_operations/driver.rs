//! What the core does with what a driver reports of itself.

use super::{Host, add, core, synced};
use crate::requests::CoreRequests;
use palisade_api::{Health, Status};
use palisade_dataplane::{
    DriverCondition, DriverError, DriverErrorKind, PolicyDriver, StepObserver,
};
use palisade_tables::Phase;
use palisade_testkit::FakeDataplane;
use std::sync::{Arc, Mutex};

fn conditions(status: &Status) -> Vec<&str> {
    let conditions = status.dataplane.conditions.iter();
    conditions.map(|condition| &*condition.kind).collect()
}

#[test]
fn conditions_come_and_go_in_the_status_and_degrade_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dataplane = FakeDataplane::new();
    let mut core = core(dir.path(), &Host::with(&["web"]), &dataplane);
    synced(&mut core);
    assert_eq!(conditions(&core.status()), [""; 0]);
    dataplane.set_conditions(vec![DriverCondition {
        kind: "FastPathUnavailable",
        reason: "MapFull",
        message: "the fast path takes no new flows: its map is full".to_owned(),
    }]);
    let status = core.status();
    assert_eq!(conditions(&status), ["FastPathUnavailable"]);
    assert_eq!(status.health, Health::Ready);
    dataplane.set_conditions(Vec::new());
    assert_eq!(conditions(&core.status()), [""; 0]);
}

#[test]
fn a_step_whose_observer_fails_is_followed_by_a_resync() {
    let dir = tempfile::tempdir().unwrap();
    let dataplane = FakeDataplane::new();
    let mut core = core(dir.path(), &Host::with(&["web"]), &dataplane);
    synced(&mut core);
    let written: Arc<Mutex<Vec<(usize, Phase)>>> = Arc::default();
    let log = Arc::clone(&written);
    let observer = StepObserver::new(move |step, phase| {
        log.lock().unwrap().push((step, phase));
        if step == 0 {
            return Ok(());
        }
        let kind = DriverErrorKind::Retryable;
        Err(DriverError::new(kind, "arming", "the fast path", "refused"))
    });
    dataplane.clone().set_step_observer(Some(observer));
    core.add_workload(&add("web")).unwrap();
    let steps: Vec<usize> = written
        .lock()
        .unwrap()
        .iter()
        .map(|(step, _)| *step)
        .collect();
    assert_eq!(steps, [0, 1], "the observer fails at the second step");
    assert_eq!(core.status().health, Health::Ready);
    assert_eq!(core.status().dataplane.error, None);
    let tables = dataplane.tables().unwrap();
    assert!(tables.points.len() >= 2, "the workload has its points");
}
