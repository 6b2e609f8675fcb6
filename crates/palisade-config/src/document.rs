//! The documentation of the configuration, generated from the table of parameters: two Markdown pages, a
//! man page, and an example file. The generated files are checked in; a test compares them with the
//! output of this module (`make docs` writes them).

use crate::parameter::{Parameter, ReloadMode};
use crate::removed::REMOVED_PARAMETERS;
use crate::sections::SECTIONS;
use std::fmt::Write;

const OPENING: &str = "\
# Configuration

<!-- Generated from the table of parameters (crates/palisade-config/src/sections) by `make docs`; edits here are lost. -->

Each parameter of the agent is a flag (`--monitor-rate 50`), an environment variable
(`PALISADE_MONITOR_RATE=50`) and a line of the configuration file (`monitor-rate: 50`). A flag overrides the
environment, which overrides the file, which overrides the default. The file is `/etc/palisade/palisade.yaml`,
which is optional, or the one given by `--config` (`PALISADE_CONFIG`), which must exist.

Invalid values, unknown parameters in the file, and contradictory values are rejected
before anything is changed, in one message with the source of each value. `palisade config`
shows each value in effect, its source, and the values that need a restart;
`palisade config --check FILE` checks a file without an agent.

## Changing it while running

The file is reread when it changes and on SIGHUP. Parameters marked *live* take effect at once; for
all others the agent logs that a restart is needed, and `palisade config` shows the pending
value. A rejected file changes nothing: the former configuration stays in effect as a whole,
and `palisade status` shows the reason until the file is corrected.

Lists are separated by commas, repeated flags, or YAML lists in the file.

[Marks of other programs](marks.md) says how `mark-mask` goes together with the marks of other software, and
[the log](log.md) what `log-level` and `log-format` change. [Removed parameters](removed-parameters.md) have replacements.
";

/// The Markdown page.
pub fn markdown() -> String {
    let mut page = OPENING.to_owned();
    for section in SECTIONS {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "\n## {}\n", section.title);
        page.push_str("| parameter | default | values | changes | |\n|---|---|---|---|---|\n");
        for parameter in section.parameters {
            let default = match parameter.default {
                "" => "empty".to_owned(),
                text => format!("`{text}`"),
            };
            let change = match parameter.reload {
                ReloadMode::Live => "live",
                ReloadMode::Restart => "restart",
            };
            let _ = writeln!(
                page,
                "| `{}` | {default} | {} | {change} | {} |",
                parameter.name,
                parameter.kind.describe(),
                parameter.help.replace('|', "\\|")
            );
        }
    }
    page
}

/// The Markdown page of removed parameters.
pub fn removed_markdown() -> String {
    let mut page = REMOVED.to_owned();
    for removed in REMOVED_PARAMETERS {
        let _ = writeln!(page, "| `{}` | {} |", removed.name, removed.replacement);
    }
    page
}

const REMOVED: &str = "\
# Removed parameters

<!-- Generated from the table of removed parameters (crates/palisade-config/src/removed.rs) by `make docs`; edits here are lost. -->

A file, a flag or an environment variable that still sets one of these is rejected with what replaces it. A
package upgrade checks the file before it restarts the agent: the former agent keeps running until the file is
corrected.

| parameter | what replaces it |
|---|---|
";

/// The man page of the configuration file, section 5.
pub fn man() -> String {
    let mut page = format!(
        ".TH palisade.yaml 5 \"\" \"palisade {}\" \"Palisade\"\n",
        env!("CARGO_PKG_VERSION")
    );
    page.push_str(".SH NAME\npalisade.yaml \\- configuration of the Palisade agent\n");
    for (title, paragraphs) in MAN {
        let _ = writeln!(page, ".SH {title}");
        for paragraph in *paragraphs {
            let _ = writeln!(page, ".PP\n{}", escape_roff(paragraph));
        }
    }
    for section in SECTIONS {
        let _ = writeln!(page, ".SH {}", escape_roff(&section.title.to_uppercase()));
        for parameter in section.parameters {
            let default = match parameter.default {
                "" => "empty",
                text => text,
            };
            let change = match parameter.reload {
                ReloadMode::Live => "changes while the agent runs",
                ReloadMode::Restart => "needs a restart",
            };
            let _ = writeln!(
                page,
                ".TP\n\\fB{}\\fR: \\fI{}\\fR\n{}\n.br\nTakes {}; default {}; {change}.",
                escape_roff(parameter.name),
                escape_roff(parameter.placeholder),
                escape_roff(parameter.help),
                escape_roff(&parameter.kind.describe()),
                escape_roff(default),
            );
        }
    }
    page.push_str(".SH SEE ALSO\n\\fBpalisade\\-agent\\fR(8), \\fBpalisade\\-config\\fR(1)\n");
    page
}

const MAN: &[(&str, &[&str])] = &[
    (
        "DESCRIPTION",
        &[
            "A YAML file with one line for each parameter, as `monitor-rate: 50`. Omitted parameters have their default. \
             The file is /etc/palisade/palisade.yaml, which is optional, or the one given by \
             --config or PALISADE_CONFIG, which must exist.",
            "Each parameter is also a flag (--monitor-rate 50) and an environment variable \
             (PALISADE_MONITOR_RATE=50). A flag overrides the environment, which overrides the file, which overrides \
             the default. Lists are separated by commas, written as a YAML list, or given by repeating the flag.",
            "Invalid values, unknown parameters, and contradictory values are rejected, \
             in one message.",
        ],
    ),
    (
        "CHANGES",
        &[
            "The file is reread when it changes and on SIGHUP. Live parameters take effect \
             immediately; for all others the agent logs that a restart is needed, and \
             palisade config shows the pending value. A rejected file changes nothing, and \
             palisade status shows the reason until it is corrected.",
        ],
    ),
];

/// Escapes a text for roff.
fn escape_roff(text: &str) -> String {
    let text = text
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('…', "...");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

/// An example file: every parameter with its default as a comment, except for the overrides, which are
/// set.
pub fn example(overrides: &[(&str, &str)]) -> String {
    let mut text = "\
# Configuration of the Palisade agent. Every line that begins with `#` and a name shows the default.
# See `man 5 palisade.yaml`. Parameters marked [live] take effect as soon as the file is written, all
# others at the next start.
"
    .to_owned();
    for section in SECTIONS {
        let _ = writeln!(text, "\n## {}", section.title);
        for parameter in section.parameters {
            text.push('\n');
            let live = match parameter.reload {
                ReloadMode::Live => " [live]",
                ReloadMode::Restart => "",
            };
            write_comment(&mut text, &format!("{}{live}", parameter.help));
            let override_value = overrides.iter().find(|(name, _)| *name == parameter.name);
            let _ = match override_value {
                Some((name, value)) => writeln!(text, "{name}: {}", quote_yaml(parameter, value)),
                None => {
                    let value = quote_yaml(parameter, parameter.default);
                    writeln!(text, "#{}: {value}", parameter.name)
                }
            };
        }
    }
    text
}

/// Quotes a value for YAML where necessary.
fn quote_yaml(parameter: &Parameter, value: &str) -> String {
    if parameter.kind.is_plain_in_yaml() {
        value.to_owned()
    } else {
        format!("\"{value}\"")
    }
}

fn write_comment(text: &mut String, words: &str) {
    let mut line = "#".to_owned();
    for word in words.split(' ') {
        if line.len() + 1 + word.len() > 100 {
            let _ = writeln!(text, "{line}");
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}
