//! Output: tables for people, JSON for programs. No output contains control characters other than line feeds,
//! and no table cell contains line feeds.

use crate::cli::OutputFormat;
use crate::exit::CommandError;
use palisade_text::{printable, printable_json, printable_lines};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};

/// Prints a value: as JSON, or as the text that `text` returns.
pub(crate) fn print_output<T: Serialize>(
    format: OutputFormat,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), CommandError> {
    let mut printed = match format {
        OutputFormat::Json => {
            let json = serde_json::to_string_pretty(value).map_err(|error| {
                CommandError::problem(format!("encoding the output as JSON: {error}"))
            })?;
            make_printable(json, printable_json)
        }
        OutputFormat::Text | OutputFormat::Yaml => make_printable(text(value), printable_lines),
    };
    if !printed.ends_with('\n') && !printed.is_empty() {
        printed.push('\n');
    }
    match io::stdout().write_all(printed.as_bytes()) {
        // A closed pipe means that the reader is done.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CommandError::problem(
            format!("writing to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Escapes a whole page; copies it only if needed.
fn make_printable(page: String, escape: fn(&str) -> Cow<'_, str>) -> String {
    match escape(&page) {
        Cow::Owned(fit) => fit,
        Cow::Borrowed(_) => page,
    }
}

/// Rows in aligned columns; the first row has the headings.
pub(crate) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        TextTable {
            rows: vec![headings.iter().map(|h| (*h).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cell = |cell: S| printable(&cell.into()).into_owned();
        self.rows.push(cells.into_iter().map(cell).collect());
    }
}

impl std::fmt::Display for TextTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The text, or a dash if it is empty.
pub(crate) fn or_dash(text: impl Into<String>) -> String {
    let text = text.into();
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

/// A number with its noun in singular or plural.
pub(crate) fn pluralize(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&["NAME", "N"]);
        table.row(["long-name", "1"]);
        table.row(["x", "22"]);
        assert_eq!(
            table.to_string(),
            "NAME       N\nlong-name  1\nx          22\n"
        );
    }
}
