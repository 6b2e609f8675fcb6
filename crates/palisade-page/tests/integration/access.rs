//! To whom the page is served, with which headers, and what reaches the agent.

use crate::fixtures::FakeAgent;
use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use palisade_page::{PageSettings, PageSettingsError, RouterUpstream, Upstream, router};
use std::net::SocketAddr;
use std::sync::Arc;

const TOKEN: &str = "a-token-of-many-letters";

struct Page(RouterUpstream, FakeAgent);

impl Page {
    fn new(token: Option<&str>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        let settings = PageSettings::new(address, token).unwrap();
        let agent = FakeAgent::new();
        let upstream = Arc::new(RouterUpstream(agent.router()));
        Page(RouterUpstream(router(settings, upstream)), agent)
    }

    async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(target);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "localhost:8080");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.0.send(request.body(body).unwrap()).await.unwrap()
    }

    async fn status(&self, target: &str, headers: &[(&str, &str)]) -> u16 {
        self.send("GET", target, headers, "")
            .await
            .status()
            .as_u16()
    }
}

async fn text(response: Response) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn other_machines_need_a_token() {
    let settings = |address: &str, token| PageSettings::new(address.parse().unwrap(), token);
    for loopback in [
        "127.0.0.1:1",
        "127.8.8.8:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
    ] {
        assert!(settings(loopback, None).is_ok(), "{loopback}");
    }
    for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
        let refused = settings(address, None).unwrap_err();
        assert_eq!(
            refused,
            PageSettingsError::TokenNeeded(address.parse().unwrap())
        );
        assert!(settings(address, Some(TOKEN)).is_ok(), "{address}");
    }
    let refused = |token| settings("0.0.0.0:1", Some(token)).unwrap_err();
    assert_eq!(refused(" short "), PageSettingsError::TokenLength(5));
    assert_eq!(
        refused("two words, no token"),
        PageSettingsError::TokenCharacters
    );
    let shown = format!("{:?}", settings("0.0.0.0:1", Some(TOKEN)).unwrap());
    assert!(!shown.contains(TOKEN), "{shown}");
}

#[tokio::test]
async fn only_loopback_names_are_served_without_a_token() {
    let page = Page::new(None);
    for target in ["/", "/page.js", "/v1/status", "/map.json"] {
        assert_eq!(page.status(target, &[]).await, 200, "{target}");
        let foreign = [("host", "rebound.example.org:8080")];
        assert_eq!(page.status(target, &foreign).await, 403, "{target}");
        let absolute = format!("http://rebound.example.org{target}");
        assert_eq!(page.status(&absolute, &[]).await, 403, "{target}");
    }
    // With a token the name does not matter: a foreign page has no session.
    let foreign = [
        ("host", "palisade.example.org"),
        ("authorization", "Bearer a-token-of-many-letters"),
    ];
    assert_eq!(
        Page::new(Some(TOKEN)).status("/v1/status", &foreign).await,
        200
    );
}

#[tokio::test]
async fn pages_of_other_sites_get_nothing() {
    let page = Page::new(None);
    for site in ["cross-site", "same-site"] {
        for target in ["/v1/status", "/v1/monitor", "/map.json", "/page.js"] {
            let status = page.status(target, &[("sec-fetch-site", site)]).await;
            assert_eq!(status, 403, "{target} of {site}");
        }
        assert_eq!(
            page.status("/", &[("sec-fetch-site", site)]).await,
            200,
            "a link"
        );
    }
    let json = ("content-type", "application/json");
    let status = async |headers: &[(&str, &str)]| {
        page.send("POST", "/v1/preview", headers, "{}")
            .await
            .status()
            .as_u16()
    };
    assert_eq!(status(&[json]).await, 403, "no browser says whose it is");
    assert_eq!(status(&[json, ("origin", "http://example.org")]).await, 403);
    assert_eq!(status(&[json, ("sec-fetch-site", "cross-site")]).await, 403);
    assert_eq!(
        status(&[json, ("origin", "http://localhost:8080")]).await,
        200
    );
    assert_eq!(
        status(&[json, ("sec-fetch-site", "same-origin")]).await,
        200
    );
    assert_eq!(status(&[("sec-fetch-site", "same-origin")]).await, 415);
    assert_eq!(page.1.bodies(), ["{}", "{}"]);
}

#[tokio::test]
async fn only_read_operations_reach_the_agent() {
    let page = Page::new(None);
    for (method, target, status) in [
        ("GET", "/v1/config", 404),
        ("GET", "/v1/identities", 404),
        ("GET", "/metrics", 404),
        ("GET", "/v1/policies/../config", 404),
        ("POST", "/v1/workloads", 404),
        ("DELETE", "/v1/workloads", 404),
        ("POST", "/v1/cni", 404),
        ("POST", "/v1/status", 405),
        ("DELETE", "/v1/policies/shop/db", 405),
        ("GET", "/v1/preview", 405),
        ("POST", "/", 405),
        ("POST", "/map.json", 405),
        ("GET", "/map.json?limit=1", 400),
    ] {
        let response = page
            .send(method, target, &[("sec-fetch-site", "same-origin")], "")
            .await;
        assert_eq!(response.status().as_u16(), status, "{method} {target}");
        let error: palisade_api::ApiError = serde_json::from_str(&text(response).await).unwrap();
        assert!(!error.error.is_empty());
    }
    assert_eq!(page.1.requests(), [""; 0]);
    let response = page
        .send(
            "GET",
            "/v1/flows?since=24h&from=shop/web",
            &[("cookie", "a=b")],
            "",
        )
        .await;
    assert_eq!(
        response.headers().get("set-cookie"),
        None,
        "the agent's headers stay behind"
    );
    assert_eq!(
        text(response).await,
        crate::fixtures::recorded_flows().to_string()
    );
    assert_eq!(page.1.requests(), ["GET /v1/flows?since=24h&from=shop/web"]);
}

#[tokio::test]
async fn every_response_has_a_strict_policy() {
    for (page, targets) in [
        (
            Page::new(None),
            [
                "/",
                "/page.js",
                "/page.css",
                "/v1/status",
                "/v1/monitor",
                "/none",
                "/login",
            ],
        ),
        (
            Page::new(Some(TOKEN)),
            [
                "/",
                "/page.js",
                "/page.css",
                "/v1/status",
                "/v1/monitor",
                "/none",
                "/login",
            ],
        ),
    ] {
        for target in targets {
            let response = page.send("GET", target, &[], "").await;
            let header = |name| response.headers()[name].to_str().unwrap();
            let policy = header("content-security-policy");
            for part in [
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                "connect-src 'self'",
                "img-src 'self'",
                "form-action 'self'",
                "base-uri 'none'",
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
            ] {
                assert!(
                    policy.split("; ").any(|found| found == part),
                    "{target}: {part}"
                );
            }
            assert!(!policy.contains("unsafe") && !policy.contains('*'));
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("referrer-policy"), "no-referrer");
            assert_eq!(header("cache-control"), "no-store");
            assert_eq!(header("x-frame-options"), "DENY");
        }
    }
}

#[test]
fn the_files_are_small_and_have_nothing_inline() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
    let mut scripts = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "srcdoc",
            " style=",
            "javascript:",
        ] {
            assert!(!text.contains(word), "{name} has {word}");
        }
        if name.ends_with(".js") {
            scripts += text.len();
        } else if name.ends_with(".html") {
            assert_eq!(
                text.matches("<script").count(),
                text.matches("<script type=\"module\" src=").count()
            );
            let handler = |word: &str| word.starts_with("on") && word.contains('=');
            let has_handler = text.split_whitespace().any(handler);
            assert!(!text.contains("<style") && !has_handler, "{name}");
        }
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("://"), "{name} names another host");
    }
    assert!(
        (1..=50 * 1024).contains(&scripts),
        "{scripts} bytes of scripts"
    );
}

#[tokio::test]
async fn a_session_begins_with_the_token() {
    let page = Page::new(Some(TOKEN));
    let response = page.send("GET", "/", &[], "").await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers()["location"], "/login");
    assert_eq!(page.status("/page.css", &[]).await, 200);
    for target in ["/v1/status", "/map.json", "/none"] {
        assert_eq!(page.status(target, &[]).await, 401, "{target}");
    }
    let own = ("sec-fetch-site", "same-origin");
    let foreign = ("sec-fetch-site", "cross-site");
    let form = format!("token={TOKEN}");
    assert_eq!(
        page.send("POST", "/login", &[foreign], &form)
            .await
            .status(),
        403
    );
    assert_eq!(
        page.send("POST", "/login", &[own], "token=other")
            .await
            .status(),
        401
    );
    let response = page.send("POST", "/login", &[own], &form).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    let cookie = response.headers()["set-cookie"]
        .to_str()
        .unwrap()
        .to_owned();
    let secret = cookie.split(';').next().unwrap();
    assert!(
        secret.starts_with("palisade-page-8080=") && !secret.contains(TOKEN),
        "{cookie}"
    );
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert_eq!(page.status("/v1/status", &[("cookie", secret)]).await, 200);
    assert_eq!(
        page.status("/", &[("cookie", &format!("a=b; {secret}"))])
            .await,
        200
    );
    assert_eq!(
        page.status("/v1/status", &[("cookie", &secret[..secret.len() - 1])])
            .await,
        401
    );
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(
        page.status("/v1/status", &[("authorization", &bearer)])
            .await,
        200
    );
    assert_eq!(
        page.status("/v1/status", &[("authorization", TOKEN)]).await,
        401
    );
    // A program with the token may ask for a preview.
    let headers = [
        ("authorization", &*bearer),
        ("content-type", "application/json"),
    ];
    assert_eq!(
        page.send("POST", "/v1/preview", &headers, "{}")
            .await
            .status(),
        200
    );
    assert_eq!(
        page.send("POST", "/login", &[own], &"x".repeat(5_000))
            .await
            .status(),
        413
    );
}

#[tokio::test(start_paused = true)]
async fn guessing_is_slow() {
    let page = Page::new(Some(TOKEN));
    let own = ("sec-fetch-site", "same-origin");
    let mut answers = Vec::new();
    for _ in 0..7 {
        answers.push(
            page.send("POST", "/login", &[own], "token=guess")
                .await
                .status()
                .as_u16(),
        );
    }
    assert_eq!(answers, [401, 401, 401, 401, 401, 429, 429]);
    let guess = [("authorization", "Bearer guess")];
    assert_eq!(
        page.status("/v1/status", &guess).await,
        429,
        "by the header as well"
    );
    let form = format!("token={TOKEN}");
    assert_eq!(
        page.send("POST", "/login", &[own], &form).await.status(),
        429
    );
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert_eq!(
        page.send("POST", "/login", &[own], &form).await.status(),
        303
    );
}
