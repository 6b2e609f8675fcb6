//! How the demo prints: plain text, coloured on a terminal, ASCII where the locale is not UTF-8.
//!
//! A closed output never stops the demo half-way: what cannot be printed is not worth leaving things
//! standing for.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// What a cell of the matrix shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellMark {
    /// Answered, as before.
    Passed,
    /// Dropped, as before.
    Dropped,
    /// Answered, and was not before.
    Opened,
    /// Dropped, and was not before.
    Closed,
}

/// Where the demo prints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    colour: bool,
    unicode: bool,
}

impl Screen {
    /// Standard output, as it is.
    pub(super) fn from_stdout() -> Self {
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

    /// A line of its own.
    pub(super) fn line(self, text: impl Display) {
        let _ = writeln!(io::stdout(), "{text}");
    }

    /// A line that belongs to the step above it.
    pub(super) fn detail(self, text: impl Display) {
        self.line(format_args!("   {text}"));
    }

    /// The headline of a step.
    pub(super) fn step(self, number: usize, text: &str) {
        self.line(format_args!(
            "\n{}",
            self.bold(&format!("{number}. {text}"))
        ));
    }

    /// A command as it would be typed; what follows is its output.
    pub(super) fn command(self, text: &str) {
        self.line(self.paint("36", &format!("   $ {text}")));
    }

    /// That a check went well.
    pub(super) fn pass(self, text: impl Display) {
        let tick = if self.unicode { "✓" } else { "ok:" };
        self.detail(format_args!("{} {text}", self.paint("32", tick)));
    }

    /// That a check did not.
    pub(super) fn fail(self, text: impl Display) {
        let cross = if self.unicode { "✗" } else { "WRONG:" };
        self.detail(self.paint("31;1", &format!("{cross} {text}")));
    }

    /// A removed or added line of a file.
    pub(super) fn edit(self, sign: char, text: &str) {
        let code = if sign == '+' { "32" } else { "31" };
        self.detail(self.paint(code, &format!("{sign} {text}")));
    }

    /// What is said most loudly.
    pub(super) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// One mark of the matrix, one column wide.
    pub(super) fn mark(self, mark: CellMark) -> String {
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

/// Milliseconds below a second, seconds above, for people.
pub(super) fn duration_text(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "how a terminal wants its text is said in the environment, and is nobody's configuration"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
