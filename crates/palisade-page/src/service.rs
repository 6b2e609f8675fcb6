//! What the page answers to a request: its files, the login, the map, and what the agent answers.

use crate::access::{
    TokenCheck, check_request, check_token, is_cross_site, is_for_loopback, is_from_page, peer_of,
    session_cookie,
};
use crate::assets::{INDEX, LOGIN, LOGIN_MESSAGE, find_asset};
use crate::forwarding::{Forwarder, read_body};
use crate::map::{MapQuery, edge_flows, map_of_flows};
use crate::operations::{PageOperation, find_operation};
use crate::responses::{
    add_security_headers, busy_response, error_response, json_response, response,
};
use crate::sessions::LoginTable;
use crate::settings::PageSettings;
use crate::upstream::Upstream;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{LOCATION, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use palisade_api::{ApiError, RecordedFlowList};
use std::sync::Arc;
use tokio::time::Instant;

/// The path of the map.
const MAP: &str = "/map.json";
/// The path of the flows of an edge of the map.
const MAP_FLOWS: &str = "/map/flows.json";
/// The largest login form, in bytes.
const LOGIN_BODY: usize = 4 << 10;

const HTML: &str = "text/html; charset=utf-8";

/// The page with its settings and its way to the agent.
struct PageService {
    settings: PageSettings,
    logins: LoginTable,
    forwarder: Forwarder,
}

/// The page as a router, without the bounds of connections that [`crate::serve`] has.
pub fn router(settings: PageSettings, upstream: Arc<dyn Upstream>) -> Router {
    let forwarder = Forwarder::new(upstream, settings.limits());
    let service = PageService {
        settings,
        logins: LoginTable::default(),
        forwarder,
    };
    // Bodies have bounds of their own.
    Router::new()
        .fallback(answer)
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(service))
}

async fn answer(State(service): State<Arc<PageService>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = match service.admit(&parts) {
        Ok(()) => service.respond(parts, body).await,
        Err(refused) => *refused,
    };
    add_security_headers(response.headers_mut());
    response
}

/// An error response without a hint.
fn failure(status: StatusCode, error: impl Into<String>) -> Response {
    error_response(status, ApiError::new(error))
}

impl PageService {
    /// Whether a request is served at all; the error response if it is not.
    fn admit(&self, parts: &Parts) -> Result<(), Box<Response>> {
        if self.settings.token().is_none() && !is_for_loopback(parts) {
            let error = ApiError::new("the page is served under the names of this machine only")
                .with_hint("open it as http://localhost with its port, or set a token");
            return Err(Box::new(error_response(StatusCode::FORBIDDEN, error)));
        }
        if is_cross_site(parts) {
            let error = "the request is of a page of another site";
            return Err(Box::new(failure(StatusCode::FORBIDDEN, error)));
        }
        Ok(())
    }

    async fn respond(&self, parts: Parts, body: Body) -> Response {
        let path = parts.uri.path();
        if let Some((kind, bytes)) = find_asset(path) {
            return match parts.method {
                Method::GET => response(StatusCode::OK, kind, bytes),
                _ => method_not_allowed(),
            };
        }
        if path == "/login" {
            return self.log_in(&parts, body).await;
        }
        let mut by_header = false;
        if let Some(token) = self.settings.token() {
            match check_request(&parts, token, &self.logins, Instant::now()) {
                TokenCheck::Session => {}
                TokenCheck::Header => by_header = true,
                TokenCheck::Wrong => return ask_for_token(&parts),
                TokenCheck::TooOften => return too_many_attempts(),
            }
        }
        match (path, &parts.method) {
            ("/", &Method::GET) => response(StatusCode::OK, HTML, INDEX),
            (MAP | MAP_FLOWS, &Method::GET) => self.map(&parts).await,
            ("/" | MAP | MAP_FLOWS, _) => method_not_allowed(),
            (_, method) => match find_operation(method, path) {
                Ok(PageOperation::Preview) if !by_header && !is_from_page(&parts) => {
                    let error = "a preview is for the page itself";
                    failure(StatusCode::FORBIDDEN, error)
                }
                Ok(operation) => self.forwarder.forward(operation, &parts, body).await,
                Err(StatusCode::METHOD_NOT_ALLOWED) => method_not_allowed(),
                Err(status) => failure(status, "the page has no such path"),
            },
        }
    }

    /// The login form, and its answer.
    async fn log_in(&self, parts: &Parts, body: Body) -> Response {
        let Some(token) = self.settings.token() else {
            return redirect("/");
        };
        match parts.method {
            Method::GET => return login_form(StatusCode::OK, ""),
            Method::POST if is_from_page(parts) => {}
            Method::POST => {
                let error = "the login is for the page itself";
                return failure(StatusCode::FORBIDDEN, error);
            }
            _ => return method_not_allowed(),
        }
        let limits = self.settings.limits();
        let body = match read_body(&parts.headers, body, LOGIN_BODY, limits).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let presented = form_urlencoded::parse(&body).find(|(name, _)| name == "token");
        let presented = presented.map(|(_, value)| value.trim().to_owned());
        let presented = presented.unwrap_or_default();
        let now = Instant::now();
        match check_token(&presented, token, peer_of(parts), &self.logins, now) {
            TokenCheck::TooOften => login_form(
                StatusCode::TOO_MANY_REQUESTS,
                "<p class=\"error\" role=\"alert\">Too many attempts: wait some seconds.</p>",
            ),
            TokenCheck::Wrong => login_form(
                StatusCode::UNAUTHORIZED,
                "<p class=\"error\" role=\"alert\">This is not the token.</p>",
            ),
            TokenCheck::Session | TokenCheck::Header => {
                let secret = self.logins.begin_session(now);
                let mut response = redirect("/");
                if let Ok(cookie) = HeaderValue::try_from(session_cookie(parts, &secret)) {
                    response.headers_mut().insert(SET_COOKIE, cookie);
                }
                response
            }
        }
    }

    /// The map of the recorded flows, or the flows of one of its edges.
    async fn map(&self, parts: &Parts) -> Response {
        let query = match MapQuery::parse(parts.uri.query().unwrap_or_default()) {
            Ok(query) => query,
            Err(error) => return failure(StatusCode::BAD_REQUEST, error),
        };
        let Some(permit) = self.forwarder.begin_computation() else {
            return busy_response("maps and previews");
        };
        let list = match self.recorded_flows(&query.target()).await {
            Ok(list) => list,
            Err(failed) => return failed,
        };
        let is_edge = parts.uri.path() == MAP_FLOWS;
        let computed = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            if is_edge {
                json_response(StatusCode::OK, &edge_flows(list, &query))
            } else {
                json_response(StatusCode::OK, &map_of_flows(&list, query.most_nodes()))
            }
        });
        let error = "computing the map failed";
        computed
            .await
            .unwrap_or_else(|_| failure(StatusCode::INTERNAL_SERVER_ERROR, error))
    }

    async fn recorded_flows(&self, target: &str) -> Result<RecordedFlowList, Response> {
        let upstream = self
            .forwarder
            .send(&Method::GET, target, Bytes::new())
            .await?;
        let status = upstream.status();
        let limit = self.settings.limits().map_body;
        let body = Limited::new(upstream.into_body(), limit).collect().await;
        let body = body.map_err(|error| {
            let error = format!("reading the recorded flows of the agent: {error}");
            failure(StatusCode::BAD_GATEWAY, error)
        })?;
        let body = body.to_bytes();
        if status != StatusCode::OK {
            return Err(response(status, "application/json", body));
        }
        serde_json::from_slice(&body).map_err(|error| {
            let error = format!("reading the recorded flows of the agent: {error}");
            failure(StatusCode::BAD_GATEWAY, error)
        })
    }
}

fn method_not_allowed() -> Response {
    let error = "this path does not take that method";
    failure(StatusCode::METHOD_NOT_ALLOWED, error)
}

fn redirect(target: &'static str) -> Response {
    let mut response = response(StatusCode::SEE_OTHER, "text/plain", "");
    let target = HeaderValue::from_static(target);
    response.headers_mut().insert(LOCATION, target);
    response
}

fn login_form(status: StatusCode, message: &'static str) -> Response {
    response(status, HTML, LOGIN.replace(LOGIN_MESSAGE, message))
}

/// The answer to a request without the token.
fn ask_for_token(parts: &Parts) -> Response {
    if parts.method == Method::GET && parts.uri.path() == "/" {
        return redirect("/login");
    }
    let error = ApiError::new("the page needs its token").with_hint("log in at /login");
    let mut response = error_response(StatusCode::UNAUTHORIZED, error);
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    response
}

fn too_many_attempts() -> Response {
    let error = ApiError::new("too many wrong tokens").with_hint("again in some seconds");
    let mut response = error_response(StatusCode::TOO_MANY_REQUESTS, error);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(5));
    response
}
