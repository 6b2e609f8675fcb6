//! The pictures of the documents, written with `PALISADE_BLESS=1`; else it is checked that they are there.

use super::chromium::Chromium;
use super::tab::Tab;
use crate::fixtures::FakeAgent;
use crate::served::ServedPage;
use palisade_page::PageLimits;
use std::path::Path;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures");
/// The most bytes of a picture.
const LARGEST: usize = 150 << 10;

const PICTURES: [(&str, &str, &str, &str); 4] = [
    (
        "page-live.png",
        "light",
        "#/live",
        "main.querySelectorAll('tbody tr').length === 4",
    ),
    (
        "page-map.png",
        "light",
        "#/map",
        "main.querySelector('svg')",
    ),
    (
        "page-why.png",
        "dark",
        "#/why?from=shop%2Fweb-1&to=shop%2Fdb-0&port=5432%2FTCP",
        "main.querySelector('pre .mark')",
    ),
    (
        "page-policy.png",
        "dark",
        "#/policy?kind=NetworkPolicy&namespace=shop&name=db",
        "main.querySelector('pre')",
    ),
];

#[test]
fn pictures_are_of_this_page() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let page = ServedPage::start(&FakeAgent::new().plain(), None, PageLimits::default());
    let mut tab = Tab::open(&mut browser, &page, "");
    for (name, scheme, hash, shown) in PICTURES {
        // Those with a manifest are longer.
        let has_manifest = shown.contains("pre");
        tab.resize(1_180, if has_manifest { 960 } else { 620 });
        tab.scheme(scheme);
        tab.go(hash);
        tab.wait(shown);
        let picture = tab.picture();
        assert!(
            picture.len() > 5_000 && picture.len() <= LARGEST,
            "{name}: {}",
            picture.len()
        );
        let file = Path::new(FOLDER).join(name);
        if std::env::var_os("PALISADE_BLESS").is_some() {
            std::fs::create_dir_all(FOLDER).unwrap();
            std::fs::write(&file, &picture).unwrap();
        }
        // Fonts differ between machines, so the bytes are not compared.
        let kept = std::fs::read(&file).unwrap();
        assert!(
            kept.starts_with(b"\x89PNG") && kept.len() <= LARGEST,
            "{name}"
        );
    }
    tab.end();
    browser.end();
}
