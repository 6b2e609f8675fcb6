//! The documentation of the configuration, made from the table of parameters: a page of Markdown,
//! a man page, and an example file. They are checked in; a test holds them equal to what is made here
//! (`make docs` writes them).

use super::{PARAMETERS, Parameter, ParameterKind, ReloadMode, Section};
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
        if section == Section::Kernel {
            page.push_str(MARKS);
        }
    }
    page.push_str(LOGGING);
    page
}

const MARKS: &str = "
### Marks of other programs

`mark-mask` says which bits of the *conntrack* mark are Palisade's: a run of at least eight, of which the
highest says that a TCP flow was first seen in its middle, and the others hold a number, the generation.
A flow that carries the live number passes without being judged again. Each start on a host without our
table begins with a random number in the upper half of what the bits hold, and numbers stay in that half,
so the second highest bit of the mask is set in each: a program that writes low bits alone never writes
the live number. Two programs must still not write the same bits. One that overwrites ours costs a
judgement each time; one that sets the highest bit of the mask has a TCP flow judged in either direction;
and ours are in the way of whatever it keeps in its bits. *Packet* marks are another thing: Palisade
neither reads nor writes them, so they collide only where something copies them into the conntrack mark
(`CONNMARK --save-mark`, `ct mark set mark`).

| program | packet mark | conntrack mark | beside `0xffffff00` | what to set |
|---|---|---|---|---|
| kube-proxy | `0x4000` (masquerade), `0x8000` (drop) | none | nothing to do | |
| Cilium | `0x0f00` (what the packet is), `0xffff0f00` with an identity in the upper half | none by default; `0x80` on AWS (ENI) | nothing to do, unless packet marks are saved | `mark-mask: \"0x000000ff\"` where packet marks are saved and `0x80` is free |
| Calico (Felix) | `0xffff0000` (its `IptablesMarkMask`, `NftablesMarkMask`) | none by default | nothing to do, unless packet marks are saved | `mark-mask: \"0x0000ff00\"` or give Calico a smaller mask |
| mwan3 | `0x3f00` (its `mmx_mask`) | `0x3f00`, restored to packets | **collides**: each would overwrite the other's | `mark-mask: \"0xffff0000\"`, or mwan3's `mmx_mask` to bits outside |
| AWS VPC CNI | `0x80` | `0x80` | nothing to do | |

A smaller mask works as well and is used up sooner: after a quarter of its numbers (32 with eight bits, a
number a revocation) conntrack is read once. What other programs of the host write, `conntrack -L` and
`nft list ruleset` (`iptables-save`) show.
";

const LOGGING: &str = "
## The log

The agent writes one line an event to standard error, as text or as JSON (`log-format`), with the
same names in both:

| name | |
|---|---|
| `time` | when, RFC 3339 in UTC, to the microsecond |
| `level` | `error`, `warn`, `info`, `debug` or `trace` |
| `component` | the part of the program that speaks: a module of the agent, or a crate |
| `message` | what happened; the words stay the same, what varies is in the fields |
| `fields` | the event's own, such as `error`, `workload`, `revision`, `writes`, `millis` |

```
2026-11-21T07:32:05.000000Z WARN core: checking the kernel failed error=\"no such table\"
{\"time\":\"2026-11-21T07:32:05.000000Z\",\"level\":\"warn\",\"component\":\"core\",\"message\":\"checking the kernel failed\",\"fields\":{\"error\":\"no such table\"}}
```

In text the fields follow the message as `name=value`, quoted where that is needed; line breaks and
other control characters are escaped, so one event is one line. Level and form can change while the
agent runs.

The same message (level, component and words; not the fields) is written twenty times in a minute.
What is left out is counted, and at the end of the minute told as the same message with the field
`suppressed`. At `debug` and `trace` nothing is left out.
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
    for section in Section::ALL {
        let _ = writeln!(page, ".SH {}", escape_roff(&section.title().to_uppercase()));
        for parameter in PARAMETERS.iter().filter(|p| p.section == section) {
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
            "YAML with one line for each parameter, as `settle: 100`. What is not said has its default. \
             The file is /etc/palisade/palisade.yaml, which need not be there, or the one that \
             --config or PALISADE_CONFIG names, which must.",
            "Each parameter is also a flag (--settle 100) and an environment variable \
             (PALISADE_SETTLE=100). A flag wins over the environment, that over the file, that over \
             the default. Lists take commas, or a list of the file, or the flag several times.",
            "What cannot be read, unknown names, and values that contradict each other are refused, \
             all of it in one message.",
        ],
    ),
    (
        "CHANGES",
        &[
            "The file is read again when it changes and on SIGHUP. What can change while the agent \
             runs counts at once; of anything else the log says that it needs a restart, and \
             palisade config shows the value that waits. A file that is refused changes nothing, and \
             palisade status says why until it is mended.",
        ],
    ),
];

/// Text as roff takes it for what it is.
fn escape_roff(text: &str) -> String {
    let text = text
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('…', "...");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

/// An example file: every parameter with its default as a comment, but for those given, which are
/// said.
pub fn example(overrides: &[(&str, &str)]) -> String {
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

/// A value as YAML takes it for what it is.
fn quote_yaml(parameter: &Parameter, value: &str) -> String {
    let plain = matches!(
        parameter.kind,
        ParameterKind::Number { .. } | ParameterKind::NumberOrZero { .. } | ParameterKind::Bool
    );
    match plain {
        true => value.to_owned(),
        false => format!("\"{value}\""),
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
