//! Names that are markup show as text in every view, and nothing is fetched from elsewhere; the page behind a token.

use super::chromium::Chromium;
use super::tab::Tab;
use crate::fixtures::{FakeAgent, IMAGE, SCRIPT};
use crate::served::ServedPage;
use palisade_page::PageLimits;

#[test]
fn markup_in_names_is_text_in_every_view() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let page = ServedPage::start(&agent, None, PageLimits::default());
    let mut tab = Tab::open(&mut browser, &page, "");
    tab.wait("main.querySelectorAll('tbody tr').length === 4");
    for (hash, name) in [
        ("#/live", IMAGE),
        ("#/flows", IMAGE),
        ("#/flows", SCRIPT),
        ("#/map", IMAGE),
        ("#/policies", SCRIPT),
        (
            "#/why?from=shop%2Fa&to=shop%2Fb&seen=%3Cimg%20src%3Dx%20onerror%3Dalert(3)%3E",
            IMAGE,
        ),
        (
            "#/policy?kind=NetworkPolicy&namespace=shop&name=%3Cimg%20src%3Dx%20onerror%3Dalert(4)%3E",
            "no such path",
        ),
    ] {
        tab.go(hash);
        tab.wait(&format!(
            "main.textContent.includes({})",
            serde_json::json!(name)
        ));
    }
    // Parameters of the address are text as well, and no view is taken from the prototype of objects.
    for hash in [
        "#/constructor",
        "#/__proto__?a=b",
        "#/flows?text=%3Cscript%3E&from=%22%3E%3Cscript%3Ealert(5)%3C/script%3E",
    ] {
        tab.go(hash);
    }
    let requests = tab.end();
    assert!(requests > 20, "{requests}");
    browser.end();
}

#[test]
fn the_token_opens_the_page() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let token = "a-token-of-many-letters";
    let page = ServedPage::start(&agent, Some(token), PageLimits::default());
    let mut tab = Tab::open(&mut browser, &page, "");
    tab.wait("location.pathname === '/login' && document.activeElement.name === 'token'");
    tab.insert("a wrong one");
    tab.press("Enter");
    tab.wait("document.querySelector('[role=alert]') && document.activeElement.name === 'token'");
    assert_eq!(tab.texts("[role=alert]"), ["This is not the token."]);
    tab.insert(token);
    tab.press("Enter");
    tab.wait("location.pathname === '/' && document.querySelectorAll('tbody tr').length === 4");
    assert_eq!(
        tab.value("document.cookie"),
        "",
        "scripts do not see the session"
    );
    tab.end();
    browser.end();
}
