//! Man pages, generated from the definition of the command line, and compared with `docs/man`.
//!
//! After an intended change run `make docs` and review the difference.

#![allow(
    clippy::disallowed_methods,
    reason = "make docs writes the pages through this test"
)]

use crate::cli::Cli;
use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Renders the pages of a command and its subcommands, by file name.
fn render_pages(command: &Command, pages: &mut BTreeMap<String, String>) {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        self::render_pages(below, pages);
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let section = if name == AGENT { "8" } else { "1" };
    let man = Man::new(refer_to_parameters(command.clone()))
        .title(name)
        .section(section)
        .source(concat!("palisade ", env!("CARGO_PKG_VERSION")))
        .manual("Palisade");
    let mut page = Vec::new();
    man.render(&mut page).unwrap();
    // The agent is a service, so its page has another section than the pages that refer to it.
    let page = String::from_utf8(page)
        .unwrap()
        .replace("palisade\\-agent(1)", "palisade\\-agent(8)");
    pages.insert(format!("{name}.{section}"), page);
}

/// The parameters of the agent are in one page, to which the pages of commands that take them refer.
fn refer_to_parameters(command: Command) -> Command {
    let is_parameter = |arg: &Arg| {
        palisade_config::parameters().any(|parameter| {
            arg.get_id() == parameter.name && arg.get_help_heading() == Some(parameter.section)
        })
    };
    if !command.get_arguments().any(is_parameter) {
        return command;
    }
    let help = "Any parameter of the agent, under its name in the configuration file; \
                palisade.yaml(5) lists them with their values and defaults";
    command
        .mut_args(|arg| {
            let is_hidden = is_parameter(&arg);
            arg.hide(is_hidden)
        })
        .arg(
            Arg::new("PARAMETER")
                .long("PARAMETER")
                .value_name("VALUE")
                .num_args(1)
                .help(help),
        )
}

const AGENT: &str = "palisade-agent";

fn generated_pages() -> BTreeMap<String, String> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut all = BTreeMap::new();
    render_pages(&command, &mut all);
    all
}

#[test]
fn the_man_pages_are_those_of_the_command_line() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    let made = generated_pages();
    let bless = std::env::var_os("PALISADE_BLESS").is_some();
    if bless {
        std::fs::create_dir_all(&folder).unwrap();
    }
    // Section 5 is generated elsewhere, from the table of parameters.
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".5") {
            continue;
        }
        match (bless, made.contains_key(&name)) {
            (true, false) => std::fs::remove_file(entry.path()).unwrap(),
            _ => {
                found.insert(name, std::fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    for (name, page) in &made {
        if bless {
            std::fs::write(folder.join(name), page).unwrap();
            continue;
        }
        let same = found.get(name) == Some(page);
        assert!(
            same,
            "docs/man/{name} differs: run `make docs` and review the difference"
        );
    }
    let names = |pages: &BTreeMap<String, String>| pages.keys().cloned().collect::<Vec<_>>();
    assert!(
        bless || names(&found) == names(&made),
        "docs/man has a page without a command"
    );
}

#[test]
fn each_command_and_each_parameter_has_its_place() {
    let made = generated_pages();
    for name in ["palisade.1", "palisade-agent.8", "palisade-endpoint-get.1"] {
        assert!(made.contains_key(name), "{name}: {:?}", made.keys());
    }
    assert!(made["palisade.1"].contains("palisade\\-agent(8)"));
    let parameters = palisade_config::man();
    for parameter in palisade_config::parameters() {
        let name = format!("\\fB{}\\fR", parameter.name.replace('-', "\\-"));
        assert!(parameters.contains(&name), "{name}");
    }
    for page in [
        "palisade-agent.8",
        "palisade-cleanup.1",
        "palisade-install-cni.1",
        "palisade-push.1",
        "palisade-uninstall-check.1",
    ] {
        let text = &made[page];
        assert!(text.contains("palisade.yaml(5)"), "{page}: {text}");
        assert!(!text.contains("settle"), "{page} repeats a parameter");
    }
}
