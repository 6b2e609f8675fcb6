//! Typical manifests, compared with their lowered form.
//!
//! `golden/*.yaml` is the input, `*.txt` beside it the complete expected output. To accept a change, run with
//! `PALISADE_BLESS=1` and review the difference.

use crate::common;
use std::path::Path;

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "a switch of this test, and files of the source tree"
)]
fn golden() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("PALISADE_BLESS").is_some();
    let mut inputs: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    inputs.sort();
    assert!(
        inputs.len() >= 12,
        "the goldens are not where they should be"
    );
    let mut wrong = Vec::new();
    for input in inputs {
        let name = input.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&input).unwrap();
        let shown = common::show(&common::lowering(name, &text));
        let expected = input.with_extension("txt");
        if bless {
            std::fs::write(&expected, &shown).unwrap();
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != shown {
            wrong.push(format!("{name} is lowered to:\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
