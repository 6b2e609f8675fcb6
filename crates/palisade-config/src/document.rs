//! The documentation of the configuration, generated from the table of parameters: a Markdown page, a
//! man page, and an example file. The generated files are checked in; a test compares them with the
//! output of this module (`make docs` writes them).

use crate::parameter::{Parameter, ReloadMode};
use crate::removed::REMOVED_PARAMETERS;
use crate::section::Section;
use crate::sections::SECTIONS;
use crate::sections::nftables::NftablesConfig;
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

The file is reread when it changes and on SIGHUP. Parameters marked *live* take effect immediately; for
all others the agent logs that a restart is needed, and `palisade config` shows the pending
value. A rejected file changes nothing: the former configuration stays in effect as a whole,
and `palisade status` shows the reason until the file is corrected. Flags and environment still override it.

Lists are separated by commas, given by repeating the flag, or written as a YAML list in the file.
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
        if section.title == NftablesConfig::TABLE.title {
            page.push_str(MARKS);
        }
    }
    page.push_str(LOGGING);
    page.push_str(REMOVED);
    for removed in REMOVED_PARAMETERS {
        let _ = writeln!(page, "| `{}` | {} |", removed.name, removed.replacement);
    }
    page
}

const REMOVED: &str = "
## Removed parameters

A file, a flag or an environment variable that still sets one of these is rejected with what replaces it. A
package upgrade checks the file before it restarts the agent: the former agent keeps running until the file is
corrected.

| parameter | what replaces it |
|---|---|
";

const MARKS: &str = "
### Marks of other programs

`mark-mask` says which bits of the *conntrack* mark are Palisade's: a run of at least eight, of which the
highest says that a TCP flow was first seen in its middle, and the others hold a number, the generation.
A flow with the live number is allowed without being evaluated again. Each start on a host without our
table begins with a random number in the upper half of what the bits hold, and numbers stay in that half,
so the second highest bit of the mask is set in each: a program that writes low bits alone never writes
the live number. Two programs must still not write the same bits. One that overwrites Palisade's costs an
evaluation each time; one that sets the highest bit of the mask makes a TCP flow be evaluated in either direction;
and Palisade overwrites what it keeps in these bits. *Packet* marks are different: they collide where
something copies them into the conntrack mark (`CONNMARK --save-mark`, `ct mark set mark`), and with
the bit `0x1000`, which Palisade writes at interfaces of the host that policies with `doNotTrack` or
`preDNAT` select, and nowhere else. It sets the bit where such a policy allows the packet and clears it
where it is judged next; before, it clears what others have set, so no mark of another program allows anything.

| program | packet mark | conntrack mark | beside `0xffffff00` | what to set |
|---|---|---|---|---|
| kube-proxy | `0x4000` (masquerade), `0x8000` (drop) | none | nothing to do | |
| Cilium | `0x0f00` (what the packet is), `0xffff0f00` with an identity in the upper half, `0xff00` with IPsec | none by default; `0x80` on AWS (ENI) | nothing to do, unless packet marks are saved | `mark-mask: \"0x000000ff\"` where packet marks are saved and `0x80` is free |
| Calico (Felix) | `0xffff0000` (its `IptablesMarkMask`, `NftablesMarkMask`) | none by default | nothing to do, unless packet marks are saved | `mark-mask: \"0x0000ff00\"` or give Calico a smaller mask |
| mwan3 | `0x3f00` (its `mmx_mask`) | `0x3f00`, restored to packets | **collides**: each would overwrite the other's | `mark-mask: \"0xffff0000\"`, and where policies have `doNotTrack` or `preDNAT`, mwan3's `mmx_mask` to bits without `0x1000` |
| AWS VPC CNI | `0x80` | `0x80` | nothing to do | |

A smaller mask works as well and is used up sooner: after a quarter of its numbers (32 with eight bits, a
number a revocation) conntrack is read once. What other programs of the host write, `conntrack -L` and
`nft list ruleset` (`iptables-save`) show.
";

const LOGGING: &str = "
## The log

The agent writes one line per event to standard error, as text or as JSON (`log-format`), with the
same names in both:

| name | |
|---|---|
| `time` | when, RFC 3339 in UTC, to the microsecond |
| `level` | `error`, `warn`, `info`, `debug` or `trace` |
| `component` | the source of the event: a module of the agent, or a crate ||
| `message` | what happened; the words stay the same, what varies is in the fields |
| `fields` | the event's own, such as `error`, `workload`, `revision`, `writes`, `millis` |

```
2026-11-21T07:32:05.000000Z WARN core: verifying the kernel's state failed; will resync error=\"no such table\"
{\"time\":\"2026-11-21T07:32:05.000000Z\",\"level\":\"warn\",\"component\":\"core\",\"message\":\"verifying the kernel's state failed; will resync\",\"fields\":{\"error\":\"no such table\"}}
```

In text the fields follow the message as `name=value`, quoted where that is needed; line breaks and
other control characters are escaped, so one event is one line. Level and format can change while the
agent runs.

The same message (level, component and text; not the fields) is written at most twenty times per minute.
Further ones are counted, and at the end of the minute the message is written once more with the field
`suppressed`. At `debug` and `trace` nothing is suppressed.
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
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
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
