//! `GET /v1/flows`: what is recorded is listed, and what is not says how it would be.

use super::site::{Host, Site, reader};
use hyper::StatusCode;
use palisade_api::{LossCause, LostEvents, MonitorLine};
use palisade_node::clock::{Clock, SystemClock};
use palisade_node::rate_limit::RateLimit;

#[tokio::test]
async fn lines_of_the_monitor_are_recorded() {
    let site = Site::new();
    let push = |core: &mut palisade_agent::core::Core| {
        let recent = core.monitor().recent().unwrap();
        let lost = LostEvents {
            api_version: palisade_api::api_version(),
            time: String::new(),
            cause: LossCause::Kernel,
            count: 7,
            reason: None,
            rule: None,
            policies: Vec::new(),
        };
        recent.push(SystemClock.wall(), MonitorLine::Lost(Box::new(lost)));
    };
    site.core.ask(push).await.unwrap();
    let (status, list) = site.ask(reader(), "GET", "/v1/flows?since=1h", "").await;
    assert_eq!(status, StatusCode::OK, "{list}");
    assert_eq!(
        (&list["lost"], &list["truncated"]),
        (&7.into(), &false.into())
    );
    let (status, error) = site.ask(reader(), "GET", "/v1/flows?since=soon", "").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{error}");
    let (_, status) = site.ask(reader(), "GET", "/v1/status", "").await;
    assert!(status["dataplane"]["conditions"].is_null(), "{status}");
}

#[tokio::test]
async fn without_a_record_the_error_says_what_to_set() {
    let rate = RateLimit {
        per_second: 1_000,
        burst: 1_000,
    };
    let site = Site::on(rate, &Host::default(), &[]);
    let (status, error) = site.ask(reader(), "GET", "/v1/flows", "").await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
    assert_eq!(error["error"], "the agent does not record flows");
    assert_eq!(
        error["hint"],
        "set flows: on in the configuration, then restart the agent"
    );
}
