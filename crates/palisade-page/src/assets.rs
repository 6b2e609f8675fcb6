//! The files of the page, embedded as they are written. They are no secret: they are served without the token.

/// A file of the page: its content type and its bytes.
pub(crate) type AssetFile = (&'static str, &'static [u8]);

/// The page.
pub(crate) const INDEX: &str = include_str!("../assets/index.html");
/// The login form.
pub(crate) const LOGIN: &str = include_str!("../assets/login.html");
/// Where the login form has its message.
pub(crate) const LOGIN_MESSAGE: &str = "<!--message-->";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The file at a path.
pub(crate) fn find_asset(path: &str) -> Option<AssetFile> {
    macro_rules! asset {
        ($kind:expr, $name:literal) => {
            ($kind, include_bytes!(concat!("../assets/", $name)))
        };
    }
    Some(match path {
        "/page.css" => asset!("text/css; charset=utf-8", "page.css"),
        "/icon.svg" => asset!("image/svg+xml", "icon.svg"),
        "/page.js" => asset!(SCRIPT, "page.js"),
        "/api.js" => asset!(SCRIPT, "api.js"),
        "/elements.js" => asset!(SCRIPT, "elements.js"),
        "/flows.js" => asset!(SCRIPT, "flows.js"),
        "/why.js" => asset!(SCRIPT, "why.js"),
        "/map.js" => asset!(SCRIPT, "map.js"),
        "/manifest.js" => asset!(SCRIPT, "manifest.js"),
        "/policies.js" => asset!(SCRIPT, "policies.js"),
        "/preview.js" => asset!(SCRIPT, "preview.js"),
        _ => return None,
    })
}
