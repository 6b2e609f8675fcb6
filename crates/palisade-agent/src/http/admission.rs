//! Admission control of requests: authorization, rate limits, body size.
//!
//! The client is identified by the credentials that the kernel recorded when the socket was connected
//! ([`palisade_sys::credentials`]), supplementary groups included, so there is no race with a process
//! that ends or changes its groups. Everyone who can open the socket may read; its mode (0660, root and
//! the API's group) decides who can. A request without known credentials can change nothing. The
//! handlers check further permissions with [`palisade_workloads::access`]; they receive the caller.

use super::server::{SpareConnection, UNKNOWN_UID, too_many_connections};
use super::{Operation, error_response};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use palisade_api::ApiError;
use palisade_node::clock::Clock;
use palisade_node::rate_limit::{RateLimit, RateLimiter};
use palisade_sys::credentials::SocketCredentials;
use palisade_workloads::access::{Caller, OperationClass, may_call};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The timeout for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The rate limit of container runtimes: a starting node creates all of its pods at once.
const RUNTIME_RATE: RateLimit = RateLimit {
    per_second: 200,
    burst: 1_000,
};

/// The privileged callers of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiPrincipals {
    /// The agent's own user.
    pub own_uid: u32,
    /// The gid of the API's group, if it exists.
    pub group_id: Option<u32>,
    /// The name of the API's group.
    pub group_name: String,
}

impl ApiPrincipals {
    /// Classifies a peer.
    pub fn classify(&self, peer: Option<&SocketCredentials>) -> Caller {
        let Some(peer) = peer else {
            return Caller::Other(None);
        };
        let member = |group| peer.gid == group || peer.groups.contains(&group);
        if peer.uid == 0 || peer.uid == self.own_uid {
            Caller::Root
        } else if self.group_id.is_some_and(member) {
            Caller::Member(peer.uid)
        } else {
            Caller::Other(Some(peer.uid))
        }
    }
}

/// The gid of a group from the text of `/etc/group`, given its name or its number. Only the file is
/// read, because a statically linked program cannot load NSS modules.
pub fn parse_group_id(name: &str, etc_group: &str) -> Option<u32> {
    let named = etc_group.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (found, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (found == name).then(|| number.parse().ok()).flatten()
    });
    named.or_else(|| name.parse().ok())
}

/// The number of finished requests by method, path and status.
pub type RequestCounts = BTreeMap<(&'static str, &'static str, u16), u64>;

/// The limits of each user's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The request rate.
    pub rate: RateLimit,
    /// The maximum size of a body, in bytes.
    pub body_limit: usize,
}

/// The state shared by all gates.
pub struct AdmissionControl {
    principals: ApiPrincipals,
    limits: RequestLimits,
    clock: Arc<dyn Clock>,
    limiter: Mutex<RateLimiter<(OperationClass, u32)>>,
    request_counts: Mutex<RequestCounts>,
}

impl AdmissionControl {
    /// Admission control with these principals and limits.
    pub fn new(principals: ApiPrincipals, limits: RequestLimits, clock: Arc<dyn Clock>) -> Self {
        AdmissionControl {
            principals,
            limits,
            clock,
            limiter: Mutex::default(),
            request_counts: Mutex::default(),
        }
    }

    /// The number of requests so far, by result.
    pub fn request_counts(&self) -> RequestCounts {
        self.request_counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The present time.
    pub fn now(&self) -> Instant {
        self.clock.monotonic()
    }

    fn admit(
        &self,
        operation: &Operation,
        peer: Option<&SocketCredentials>,
    ) -> Result<Caller, Box<Response>> {
        let caller = self.principals.classify(peer);
        if operation.class == OperationClass::Probe {
            return Ok(caller);
        }
        if !may_call(caller, operation.class) {
            tracing::warn!(operation = operation.id, who = %caller, "request denied: not permitted");
            let (what, hint) = match (operation.class, self.principals.group_id) {
                (OperationClass::Change, Some(_)) => (
                    "change anything",
                    format!(
                        "sudo, or become a member of group {}",
                        self.principals.group_name
                    ),
                ),
                (OperationClass::Runtime, _) => ("act as a container runtime", "sudo".to_owned()),
                _ => ("change anything", "sudo".to_owned()),
            };
            let error = ApiError::new(format!("{caller} may not {what}"));
            return Err(Box::new(error_response(
                StatusCode::FORBIDDEN,
                error.with_hint(hint),
            )));
        }
        let rate = match operation.class {
            OperationClass::Runtime => RUNTIME_RATE,
            OperationClass::Probe | OperationClass::Read | OperationClass::Change => {
                self.limits.rate
            }
        };
        let uid = peer.map_or(UNKNOWN_UID, |peer| peer.uid);
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = limiter.try_acquire((operation.class, uid), rate, self.clock.monotonic());
        admitted.map(|()| caller).map_err(|wait| {
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
            let error = ApiError::new(format!(
                "user {uid} exceeds the rate limit of {} requests per second",
                rate.per_second
            ));
            let error = error.with_hint(format!("again in {seconds} s"));
            let mut response = error_response(StatusCode::TOO_MANY_REQUESTS, error);
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            Box::new(response)
        })
    }

    fn body_too_large(limit: usize) -> Response {
        let error = ApiError::new(format!("the body is larger than {limit} bytes"));
        error_response(StatusCode::PAYLOAD_TOO_LARGE, error)
    }

    /// Reads and discards a body up to the body limit.
    async fn discard_body(&self, request: Request) {
        let limit = self.limits.body_limit;
        let mut body = Limited::new(request.into_body(), limit);
        let arriving = async { while let Some(Ok(_)) = body.frame().await {} };
        // A timeout is ignored: the response is an error in any case.
        let _ = tokio::time::timeout(BODY_TIMEOUT, arriving).await;
    }

    /// Reads the whole body into memory.
    async fn read_body(&self, request: Request) -> Result<Request, Response> {
        let limit = self.limits.body_limit;
        let (parts, body) = request.into_parts();
        let content_length = parts.headers.get(CONTENT_LENGTH);
        let content_length =
            content_length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if content_length.is_some_and(|length| length > limit as u64) {
            return Err(Self::body_too_large(limit));
        }
        let arriving = Limited::new(body, limit).collect();
        match tokio::time::timeout(BODY_TIMEOUT, arriving).await {
            Ok(Ok(whole)) => Ok(Request::from_parts(parts, Body::from(whole.to_bytes()))),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Self::body_too_large(limit)),
            Ok(Err(error)) => {
                let error = ApiError::new(format!("reading the body: {error}"));
                Err(error_response(StatusCode::BAD_REQUEST, error))
            }
            Err(_) => {
                let error = ApiError::new("the body did not arrive in time");
                Err(error_response(StatusCode::REQUEST_TIMEOUT, error))
            }
        }
    }
}

/// The admission control of one operation.
#[derive(Clone)]
pub struct OperationGate {
    admission: Arc<AdmissionControl>,
    operation: Arc<Operation>,
}

impl OperationGate {
    /// A gate for this operation.
    pub fn new(guard: Arc<AdmissionControl>, operation: Operation) -> Self {
        OperationGate {
            admission: guard,
            operation: Arc::new(operation),
        }
    }

    async fn handle(&self, request: Request, next: Next) -> Response {
        if self.operation.class != OperationClass::Probe
            && request.extensions().get::<SpareConnection>().is_some()
        {
            return too_many_connections();
        }
        let peer = request.extensions().get::<SocketCredentials>();
        let caller = match self.admission.admit(&self.operation, peer) {
            Ok(caller) => caller,
            Err(refused) => {
                // A client that is still writing when the connection closes may never read the response.
                self.admission.discard_body(request).await;
                return *refused;
            }
        };
        match self.admission.read_body(request).await {
            Ok(mut request) => {
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(refused) => refused,
        }
    }
}

/// Admits or rejects a request.
pub async fn admit_request(
    State(gate): State<OperationGate>,
    request: Request,
    next: Next,
) -> Response {
    let response = gate.handle(request, next).await;
    let Operation { method, path, .. } = *gate.operation;
    let mut requests = gate
        .admission
        .request_counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    *requests
        .entry((method, path, response.status().as_u16()))
        .or_default() += 1;
    drop(requests);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_own_user_and_the_group_are_told_apart() {
        let permit = ApiPrincipals {
            own_uid: 5,
            group_id: Some(900),
            group_name: "palisade".to_owned(),
        };
        let peer = |uid, gid, groups: &[u32]| SocketCredentials {
            pid: 1,
            uid,
            gid,
            groups: groups.to_vec(),
        };
        for (peer, caller) in [
            (peer(0, 0, &[]), Caller::Root),
            (peer(5, 5, &[]), Caller::Root),
            (peer(1000, 900, &[]), Caller::Member(1000)),
            (peer(1000, 1000, &[27, 900]), Caller::Member(1000)),
            (peer(1000, 1000, &[27]), Caller::Other(Some(1000))),
        ] {
            assert_eq!(permit.classify(Some(&peer)), caller, "{peer:?}");
        }
        assert_eq!(permit.classify(None), Caller::Other(None));
        let nobody = ApiPrincipals {
            group_id: None,
            ..permit
        };
        let without = nobody.classify(Some(&peer(1000, 900, &[900])));
        assert_eq!(without, Caller::Other(Some(1000)));
    }

    #[test]
    fn groups_are_found_by_name_or_number() {
        let file = "root:x:0:\npalisade:x:998:ann,bob\nbroken\n";
        assert_eq!(parse_group_id("palisade", file), Some(998));
        assert_eq!(parse_group_id("wheel", file), None);
        assert_eq!(parse_group_id("42", file), Some(42));
    }
}
