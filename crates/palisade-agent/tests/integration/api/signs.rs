//! Notifications to the service manager: ready after the first sync, and watchdog notifications only
//! while the core responds.

use super::site::Site;
use palisade_agent::core::CoreEvent;
use palisade_agent::service_manager::ServiceManager;
use std::sync::mpsc;
use std::time::Duration;
use tokio::net::UnixDatagram;

/// The next notification; `None` if there is none within `patience`.
async fn heard(listener: &UnixDatagram, patience: Duration) -> Option<String> {
    let mut text = [0; 512];
    let received = tokio::time::timeout(patience, listener.recv(&mut text)).await;
    let length = received.ok()?.unwrap();
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}

#[tokio::test]
async fn a_stuck_core_gives_no_sign_of_life() {
    let site = Site::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let listener = UnixDatagram::bind(&path).unwrap();
    let environment = |name: &str| match name {
        "NOTIFY_SOCKET" => Some(path.display().to_string()),
        "WATCHDOG_USEC" => Some("300000".to_owned()),
        _ => None,
    };
    let manager = ServiceManager::from_environment(environment);
    manager.notify_ready(&site.core).await;
    let patience = Duration::from_secs(10);
    let ready = heard(&listener, patience).await.unwrap();
    assert!(
        ready.starts_with("READY=1\nSTATUS=enforcing: revision "),
        "{ready}"
    );
    let core = site.core.clone();
    let watching = tokio::spawn(async move { manager.run_watchdog(&core).await });
    for _ in 0..3 {
        let sign = heard(&listener, patience).await.unwrap();
        assert!(sign.starts_with("WATCHDOG=1\nSTATUS=enforcing"), "{sign}");
    }
    // The core blocks inside a request; the other threads of the agent continue.
    let (go_on, wait) = mpsc::channel::<()>();
    site.core.send(CoreEvent::Request(Box::new(move |_| {
        let _ = wait.recv();
    })));
    // One notification may still be in flight.
    while heard(&listener, Duration::from_millis(150)).await.is_some() {}
    let sign = heard(&listener, Duration::from_secs(1)).await;
    assert_eq!(sign, None, "a sign of life from a core that is stuck");
    go_on.send(()).unwrap();
    assert!(heard(&listener, patience).await.is_some(), "it lives again");
    watching.abort();
}

#[tokio::test]
async fn a_watchdog_for_another_process_is_not_ours() {
    let site = Site::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let listener = UnixDatagram::bind(&path).unwrap();
    let manager = ServiceManager::from_environment(|name: &str| match name {
        "NOTIFY_SOCKET" => Some(path.display().to_string()),
        "WATCHDOG_USEC" => Some("30000".to_owned()),
        "WATCHDOG_PID" => Some("1".to_owned()),
        _ => None,
    });
    let watching =
        tokio::time::timeout(Duration::from_millis(200), manager.run_watchdog(&site.core));
    assert!(watching.await.is_err(), "it waits for ever");
    assert_eq!(heard(&listener, Duration::from_millis(1)).await, None);
    manager.notify_reloading();
    let reloading = heard(&listener, Duration::from_secs(5)).await.unwrap();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    manager.notify_stopping("x");
    let stopping = heard(&listener, Duration::from_secs(5)).await.unwrap();
    assert_eq!(stopping, "STOPPING=1\nSTATUS=x");
}
