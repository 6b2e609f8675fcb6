//! The page by keyboard alone, and its contrast in light and dark.

use super::chromium::Chromium;
use super::tab::Tab;
use crate::fixtures::FakeAgent;
use crate::served::ServedPage;
use palisade_page::PageLimits;
use serde_json::json;

/// Texts whose contrast with what is behind them is less than 4.5.
const FAINT: &str = "(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const part = (value) => { const x = value / 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (a > 0.99) return [r, g, b];
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [0, 0, 0] : [255, 255, 255];
  };
  const faint = [];
  let looked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest('svg, noscript, [hidden]')) continue;
    const [one, other] = [light(numbers(getComputedStyle(node).color)), light(behind(node))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    looked += 1;
    if (contrast < 4.5) faint.push(contrast.toFixed(2) + ' ' + node.textContent.slice(0, 40));
  }
  return { looked, faint };
})()";

#[test]
fn everything_is_reached_by_keyboard() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let agent = FakeAgent::new();
    let page = ServedPage::start(&agent, None, PageLimits::default());
    let mut tab = Tab::open(&mut browser, &page, "#/flows");
    tab.wait("main.dataset.ready === 'true'");
    let mut order = Vec::new();
    for _ in 0..20 {
        tab.press("Tab");
        order.push(tab.focus());
        let outlined = "(() => { const node = document.activeElement; const style = getComputedStyle(node); return node.matches(':focus-visible') && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2; })()";
        assert_eq!(
            tab.value(outlined),
            true,
            "the focus on {} is seen",
            order.last().unwrap()
        );
    }
    assert_eq!(
        order[..17],
        [
            "skip",
            "Live flows",
            "Recorded flows",
            "Map",
            "Policies",
            "Why",
            "Preview",
            "verdict",
            "namespace",
            "endpoint",
            "from",
            "to",
            "protocol",
            "port",
            "since",
            "until",
            "text"
        ]
    );
    assert!(
        order[17].starts_with("Why: shop/web (Deployment) to shop/db (Deployment)"),
        "{order:?}"
    );
    // Keys of the page.
    tab.press("Escape");
    tab.value("document.activeElement.blur()");
    tab.press("/");
    assert_eq!(tab.focus(), "text");
    tab.press("j");
    assert_eq!(tab.focus(), "text", "a letter in a field is a letter");
    tab.press("Escape");
    assert_eq!(tab.focus(), "main");
    tab.value("document.querySelector('[name=text]').value = ''; document.querySelector('[name=text]').dispatchEvent(new Event('input', {bubbles: true}))");
    tab.press("j");
    let first = tab.focus();
    tab.press("j");
    tab.press("k");
    assert_eq!(tab.focus(), first);
    tab.press("Enter");
    tab.wait(
        "main.querySelector('h1').textContent === 'Why' && main.querySelector('section.case')",
    );
    tab.press("3");
    tab.wait("main.querySelector('svg')");
    assert_eq!(tab.texts("nav [aria-current]"), ["Map"]);
    // From box to box, and the edges of one.
    tab.value("document.querySelector('[data-node][tabindex=\"0\"]').focus()");
    let start = tab.value("document.activeElement.dataset.node");
    let mut walked = std::collections::BTreeSet::new();
    for key in [
        "ArrowDown",
        "ArrowLeft",
        "ArrowUp",
        "ArrowRight",
        "ArrowRight",
        "ArrowDown",
    ] {
        tab.press(key);
        walked.insert(
            tab.value("document.activeElement.dataset.node")
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert!(walked.len() > 2, "{start} {walked:?}");
    assert_eq!(
        tab.value("document.querySelectorAll('[data-node][tabindex=\"0\"]').length"),
        1,
        "one stop for Tab"
    );
    let all = tab.rows("#edges").len();
    tab.press("Enter");
    assert!(tab.rows("#edges").len() < all);
    assert!(
        tab.value("location.hash")
            .as_str()
            .unwrap()
            .contains("node=")
    );
    // The skip link, and the labels that a screen reader reads.
    tab.value("document.getElementById('skip').focus()");
    tab.press("Enter");
    assert_eq!(tab.focus(), "main");
    let nameless = "[...document.querySelectorAll('input, select, textarea, button, a, table')].filter((node) => !(node.labels?.length || node.textContent.trim() || node.getAttribute('aria-label'))).length";
    for hash in [
        "#/live",
        "#/flows",
        "#/map",
        "#/policies",
        "#/why",
        "#/preview",
    ] {
        tab.go(hash);
        assert_eq!(tab.value(nameless), json!(0), "{hash}");
        assert_eq!(tab.value("document.querySelectorAll('h1').length"), 1);
    }
    tab.end();
    browser.end();
}

#[test]
fn texts_have_contrast_in_light_and_dark() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let page = ServedPage::start(&FakeAgent::new(), None, PageLimits::default());
    let mut tab = Tab::open(&mut browser, &page, "");
    tab.wait("main.querySelectorAll('tbody tr').length === 4");
    for hash in [
        "#/live",
        "#/flows",
        "#/map",
        "#/policies",
        "#/policy?kind=NetworkPolicy&namespace=shop&name=db",
        "#/why?from=shop%2Fa&to=shop%2Fb",
        "#/preview",
    ] {
        tab.go(hash);
        let mut colours = Vec::new();
        for scheme in ["light", "dark"] {
            tab.scheme(scheme);
            let result = tab.value(FAINT);
            assert_eq!(result["faint"], json!([]), "{hash} {scheme}");
            assert!(result["looked"].as_u64().unwrap() > 15, "{hash} {scheme}");
            colours.push(tab.value("getComputedStyle(document.body).backgroundColor"));
        }
        assert_ne!(colours[0], colours[1], "{hash}");
    }
    tab.end();
    browser.end();
}
