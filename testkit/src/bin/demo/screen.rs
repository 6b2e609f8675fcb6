//! Output of the demo: plain text, coloured on a terminal, ASCII if the locale is not UTF-8.
//!
//! Errors of standard output are ignored, so that a closed pipe does not prevent the cleanup.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// State of one cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellMark {
    /// Answered, unchanged.
    Passed,
    /// Dropped, unchanged.
    Dropped,
    /// Answered, dropped before.
    Opened,
    /// Dropped, answered before.
    Closed,
}

/// Output settings of the demo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    colour: bool,
    unicode: bool,
}

impl Screen {
    /// Settings for standard output.
    pub(crate) fn from_stdout() -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .filter_map(variable)
            .find(|value| !value.is_empty());
        let locale = locale.unwrap_or_default().to_ascii_uppercase();
        Screen {
            colour: io::stdout().is_terminal() && variable("NO_COLOR").is_none(),
            unicode: locale.contains("UTF-8") || locale.contains("UTF8"),
        }
    }

    /// Prints a line.
    pub(crate) fn line(self, text: impl Display) {
        let _ = writeln!(io::stdout(), "{text}");
    }

    /// Prints a line that belongs to the present step.
    pub(crate) fn detail(self, text: impl Display) {
        self.line(format_args!("   {text}"));
    }

    /// Prints the heading of a step.
    pub(crate) fn step(self, number: usize, text: &str) {
        self.line(format_args!(
            "\n{}",
            self.bold(&format!("{number}. {text}"))
        ));
    }

    /// Prints a command; its output follows.
    pub(crate) fn command(self, text: &str) {
        self.line(self.paint("36", &format!("   $ {text}")));
    }

    /// Reports a passed check.
    pub(crate) fn pass(self, text: impl Display) {
        let tick = if self.unicode { "✓" } else { "ok:" };
        self.detail(format_args!("{} {text}", self.paint("32", tick)));
    }

    /// Reports a failed check.
    pub(crate) fn fail(self, text: impl Display) {
        let cross = if self.unicode { "✗" } else { "WRONG:" };
        self.detail(self.paint("31;1", &format!("{cross} {text}")));
    }

    /// Prints a removed or added line of a file.
    pub(crate) fn edit(self, sign: char, text: &str) {
        let code = if sign == '+' { "32" } else { "31" };
        self.detail(self.paint(code, &format!("{sign} {text}")));
    }

    /// Bold text.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Mark of one cell, one column wide.
    pub(crate) fn mark(self, mark: CellMark) -> String {
        let (code, unicode, ascii) = match mark {
            CellMark::Passed => ("32", "✓", "y"),
            CellMark::Dropped => ("31", "✗", "-"),
            CellMark::Opened => ("30;42", "▲", "O"),
            CellMark::Closed => ("30;41", "▼", "X"),
        };
        self.paint(code, if self.unicode { unicode } else { ascii })
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Formats milliseconds below one second, seconds above.
pub(crate) fn duration_text(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the environment describes the terminal; this is not configuration of the product"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
