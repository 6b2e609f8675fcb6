//! The documentation of the configuration, made from the table of parameters: a page of Markdown,
//! and an example file. Both are checked in; a test holds them equal to what is made here.

use super::{Change, Kind, PARAMETERS, Parameter, Section};
use std::fmt::Write;

const OPENING: &str = "\
# Configuration

<!-- Made from the table of parameters (crates/palisade-agent/src/config/parameters.rs) by `make docs`; edits here are lost. -->

Each parameter of the agent is a flag (`--settle 100`), an environment variable
(`PALISADE_SETTLE=100`) and a line of the configuration file (`settle: 100`). A flag wins over the
environment, that over the file, that over the default. The file is `/etc/palisade/palisade.yaml`,
which need not be there, or the one that `--config` (`PALISADE_CONFIG`) names, which must.

What cannot be read, an unknown name in the file, and values that contradict each other are refused
before anything is touched, all of it in one message that says who said what. `palisade config`
shows each value in force, where it came from, and what waits for a restart.

## Changing it while running

The file is read again when it changes and on SIGHUP. Parameters marked *live* count at once; of any
other the agent says in its log that it needs a restart, and `palisade config` shows the value that
waits. A file that is refused changes nothing: the former configuration stays in force as a whole,
and `palisade status` says why until the file is mended. Flags and environment still win.

Lists take commas, or the flag several times, or a list of the file.
";

/// The page of documentation.
pub fn markdown() -> String {
    let mut page = OPENING.to_owned();
    for section in Section::ALL {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "\n## {}\n", section.title());
        page.push_str("| parameter | default | values | changes | |\n|---|---|---|---|---|\n");
        for parameter in PARAMETERS.iter().filter(|p| p.section == section) {
            let default = match parameter.default {
                "" => "empty".to_owned(),
                text => format!("`{text}`"),
            };
            let change = match parameter.change {
                Change::Live => "live",
                Change::Restart => "restart",
            };
            let _ = writeln!(
                page,
                "| `{}` | {default} | {} | {change} | {} |",
                parameter.name,
                parameter.kind.words(),
                parameter.help.replace('|', "\\|")
            );
        }
    }
    page.push_str(LOGGING);
    page
}

const LOGGING: &str = "\n";

/// An example file: every parameter with its default as a comment, but for those given, which are
/// said.
pub fn example(said: &[(&str, &str)]) -> String {
    let mut text = "\
# Configuration of the Palisade agent. Every line that begins with `#` and a name says the default.
# `man 5 palisade.yaml` has the rules. Lines marked [live] count as soon as the file is written, all
# others at the next start.
"
    .to_owned();
    for section in Section::ALL {
        let _ = writeln!(text, "\n## {}", section.title());
        for parameter in PARAMETERS.iter().filter(|p| p.section == section) {
            text.push('\n');
            let live = match parameter.change {
                Change::Live => " [live]",
                Change::Restart => "",
            };
            wrapped(&mut text, &format!("{}{live}", parameter.help));
            let given = said.iter().find(|(name, _)| *name == parameter.name);
            let _ = match given {
                Some((name, value)) => writeln!(text, "{name}: {}", quoted(parameter, value)),
                None => {
                    let value = quoted(parameter, parameter.default);
                    writeln!(text, "#{}: {value}", parameter.name)
                }
            };
        }
    }
    text
}

/// A value as YAML takes it for what it is.
fn quoted(parameter: &Parameter, value: &str) -> String {
    let plain = matches!(
        parameter.kind,
        Kind::Number { .. } | Kind::NumberOrZero { .. } | Kind::Switch
    );
    match plain {
        true => value.to_owned(),
        false => format!("\"{value}\""),
    }
}

fn wrapped(text: &mut String, words: &str) {
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
