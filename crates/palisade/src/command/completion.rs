//! `palisade completion`: shell completion scripts, generated from the definition of the command line.

use crate::cli::{Cli, OutputFormat, Shell};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use clap::CommandFactory;
use palisade_api::CompletionScript;

/// Prints the completion script of a shell.
pub(crate) fn run(shell: Shell, format: OutputFormat) -> CommandResult {
    let (name, generator) = match shell {
        Shell::Bash => ("bash", clap_complete::Shell::Bash),
        Shell::Zsh => ("zsh", clap_complete::Shell::Zsh),
        Shell::Fish => ("fish", clap_complete::Shell::Fish),
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut Cli::command(), "palisade", &mut script);
    let completion = CompletionScript {
        api_version: palisade_api::api_version(),
        shell: name.to_owned(),
        script: String::from_utf8(script).map_err(|error| {
            CommandError::problem(format!(
                "generating the completion script of {name}: {error}"
            ))
        })?,
    };
    print_output(format, &completion, |completion| completion.script.clone())?;
    Ok(ExitStatus::Success)
}
