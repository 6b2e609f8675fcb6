//! Rules about one file: its opening, its length, its name, what it must not say.

use crate::code;

/// No file is longer.
const LONGEST: usize = 800;

/// Kernel tests that need other programs and no root, and parts with unit tests of their own.
const NEEDS_NO_ROOT: [&str; 5] = [
    "crates/palisade-hubble/tests/kernel/command.rs",
    "crates/palisade-hubble/tests/kernel/filters.rs",
    "crates/palisade-hubble/tests/kernel/judge.rs",
    "crates/palisade-hubble/tests/kernel/relay.rs",
    "crates/palisade/tests/kernel/alone/load/line.rs",
];

/// A file opens with `//!` and at least a sentence.
pub(crate) fn module_docs(path: &str, text: &str) -> Vec<String> {
    let docs: Vec<_> = text
        .lines()
        .skip_while(|line| line.trim().is_empty())
        .map_while(|line| line.strip_prefix("//!"))
        .collect();
    let prose = docs.join(" ");
    let sentence = prose.trim().len() >= 20 && prose.contains(['.', '!', '?', ':']);
    complain(!sentence, || {
        format!("{path}: does not open with a `//!` sentence saying what it is for")
    })
}

/// A file that grew past [`LONGEST`] is to be split by what it is about.
pub(crate) fn length(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    complain(lines > LONGEST, || {
        format!("{path}: {lines} lines, more than {LONGEST}")
    })
}

/// Nothing unfinished is committed, and a test that is switched off says why.
pub(crate) fn left_for_later(path: &str, text: &str) -> Vec<String> {
    let code = code::without_comments_and_strings(text);
    let mut complaints = Vec::new();
    for word in ["todo", "unimplemented"] {
        for line in code::lines_with_word(&code, word) {
            complaints.push(format!("{path}:{line}: {word}!"));
        }
    }
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        // In two halves, so that this file does not say it.
        if line.contains(concat!("FIX", "ME")) {
            complaints.push(format!("{path}:{number}: left for later"));
        }
        if line.trim_start().starts_with("#[ignore]") {
            complaints.push(format!("{path}:{number}: ignored without a reason"));
        }
    }
    complaints
}

/// `unsafe` is for the crate that speaks to the kernel.
pub(crate) fn unsafe_outside_sys(path: &str, text: &str) -> Vec<String> {
    if path.starts_with("crates/palisade-sys/") {
        return Vec::new();
    }
    let code = code::without_comments_and_strings(text);
    code::lines_with_word(&code, "unsafe")
        .into_iter()
        .map(|line| format!("{path}:{line}: unsafe outside palisade-sys"))
        .collect()
}

/// A name that says nothing collects everything.
pub(crate) fn drawer(path: &str) -> Vec<String> {
    let odd = path
        .split('/')
        .map(|part| part.trim_end_matches(".rs"))
        .any(|part| ["util", "utils", "helper", "helpers", "misc"].contains(&part));
    complain(odd, || format!("{path}: named for nothing it is about"))
}

/// The crates between dialects and kernel speak of policies, not of who wrote them.
pub(crate) fn dialect_names(path: &str, text: &str) -> Vec<String> {
    let inner = ["engine", "tables", "nft", "dataplane", "sys"];
    let concerns = |name: &&str| path.starts_with(&format!("crates/palisade-{name}/"));
    if !inner.iter().any(concerns) {
        return Vec::new();
    }
    let code = code::without_comments(text).to_lowercase();
    let mut complaints = Vec::new();
    for (at, line) in code.lines().enumerate() {
        for dialect in ["kubernetes", "cilium", "calico"] {
            if line.contains(dialect) {
                let number = at + 1;
                complaints.push(format!("{path}:{number}: names {dialect}"));
            }
        }
    }
    complaints
}

/// Tests that need root are those of the programs named kernel, in `tests/kernel`, and no other program begins with a k:
/// the runner tells the rings apart by that. Each crate has one program of a kind, and a program of its own only for
/// what is of the process.
pub(crate) fn kernel_tests(path: &str, text: &str) -> Vec<String> {
    let Some((_, inside)) = path.split_once("/tests/") else {
        return Vec::new();
    };
    let is_kernel = inside.starts_with("kernel/");
    let code = code::without_comments_and_strings(text);
    let asks = !code::lines_with_word(&code, "need_root").is_empty();
    let has_tests = code.lines().any(|line| line.trim() == "#[test]");
    let mut complaints = complain(asks && !is_kernel, || {
        format!("{path}: needs root, so it belongs in tests/kernel")
    });
    complaints.extend(complain(
        !is_kernel && inside.starts_with('k') && !inside.contains('/'),
        || format!("{path}: only the program kernel begins with a k"),
    ));
    complaints.extend(complain(
        is_kernel && has_tests && !asks && !NEEDS_NO_ROOT.contains(&path),
        || format!("{path}: a kernel test asks need_root() first"),
    ));
    complaints
}

/// A test that does not run says so in one form, which the runner counts.
pub(crate) fn skips_in_other_words(path: &str, text: &str) -> Vec<String> {
    if path == "testkit/src/ring.rs" || path.starts_with("tests/tests/tidy/") {
        return Vec::new();
    }
    let code = code::without_comments(text);
    let lines = code.lines().enumerate();
    lines
        .filter(|(_, line)| line.contains("SKIPPED"))
        .map(|(at, _)| format!("{path}:{}: skips without ring::skipped", at + 1))
        .collect()
}

/// A ban that nobody can explain is lifted.
pub(crate) fn bans_without_reason(clippy: &str) -> Vec<String> {
    clippy
        .lines()
        .filter(|line| line.contains("path = ") && !line.contains("reason = \""))
        .map(|line| format!("clippy.toml: no reason: {}", line.trim()))
        .collect()
}

fn complain(wrong: bool, say: impl FnOnce() -> String) -> Vec<String> {
    if wrong { vec![say()] } else { Vec::new() }
}

#[test]
fn a_file_without_an_opening_is_seen() {
    assert_eq!(
        module_docs("x.rs", "//! What this file is for.\nfn a() {}"),
        [""; 0]
    );
    for bad in [
        "",
        "fn a() {}",
        "//! Short.",
        "// Not a doc comment at all.",
        "//!\n//!\n",
    ] {
        assert_eq!(module_docs("x.rs", bad).len(), 1, "{bad:?}");
    }
}

#[test]
fn a_long_file_is_seen() {
    assert_eq!(length("x.rs", &"\n".repeat(LONGEST)), [""; 0]);
    assert_eq!(length("x.rs", &"\n".repeat(LONGEST + 1)).len(), 1);
}

#[test]
fn what_is_left_for_later_is_seen() {
    let text = "// todo!\nfn a() { todo!() }\n#[ignore]\n#[ignore = \"slow\"]\nunimplemented!();\n";
    let mut text = text.to_owned();
    text.push_str(concat!("// FIX", "ME\n"));
    let complaints = left_for_later("x.rs", &text);
    let lines = ["x.rs:2", "x.rs:5", "x.rs:3", "x.rs:6"];
    assert_eq!(complaints.len(), lines.len(), "{complaints:?}");
    for (complaint, line) in complaints.iter().zip(lines) {
        assert!(complaint.starts_with(line), "{complaint}");
    }
}

#[test]
fn misplaced_unsafe_code_is_seen() {
    let text = "// unsafe\n#![deny(unsafe_code)]\nunsafe { x() }\n";
    assert_eq!(
        unsafe_outside_sys("crates/palisade-agent/src/a.rs", text).len(),
        1
    );
    assert_eq!(
        unsafe_outside_sys("crates/palisade-sys/src/a.rs", text),
        [""; 0]
    );
}

#[test]
fn a_drawer_is_seen() {
    assert_eq!(drawer("crates/a/src/utils.rs").len(), 1);
    assert_eq!(drawer("crates/a/src/helpers/mod.rs").len(), 1);
    assert_eq!(drawer("crates/a/src/utilisation.rs"), [""; 0]);
}

#[test]
fn a_dialect_in_an_inner_crate_is_seen() {
    let text = "/// As Kubernetes does.\nlet a = \"cilium\";\nstruct CalicoTier;\n";
    assert_eq!(
        dialect_names("crates/palisade-engine/src/a.rs", text).len(),
        2
    );
    assert_eq!(
        dialect_names("crates/palisade-dialects/src/a.rs", text),
        [""; 0]
    );
}

#[test]
fn a_misplaced_kernel_test_is_seen() {
    let asks = "#[test]\nfn a() {\n    if !need_root() { return; }\n}";
    let other = "#[test]\nfn a() {}";
    assert_eq!(kernel_tests("testkit/tests/kernel/lab.rs", asks), [""; 0]);
    assert_eq!(
        kernel_tests("testkit/tests/integration/lab.rs", asks).len(),
        1
    );
    assert_eq!(kernel_tests("testkit/tests/lab.rs", asks).len(), 1);
    assert_eq!(kernel_tests("testkit/tests/kernel/lab.rs", other).len(), 1);
    assert_eq!(kernel_tests("testkit/tests/knots.rs", other).len(), 1);
    assert_eq!(kernel_tests("testkit/tests/kernel/part.rs", ""), [""; 0]);
    assert_eq!(kernel_tests("testkit/src/ring.rs", asks), [""; 0]);
}

#[test]
fn a_skip_in_other_words_is_seen() {
    let text = "// SKIPPED\neprintln!(\"SKIPPED: no vim\");\n";
    assert_eq!(skips_in_other_words("crates/a/tests/b.rs", text).len(), 1);
    assert_eq!(skips_in_other_words("testkit/src/ring.rs", text), [""; 0]);
}

#[test]
fn a_ban_without_reason_is_seen() {
    let clippy = "{ path = \"a\", reason = \"b\" }\n{ path = \"c\" }\n";
    assert_eq!(bans_without_reason(clippy).len(), 1);
}
