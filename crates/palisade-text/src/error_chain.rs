//! Errors as text, with their causes. Nothing is cut.

use alloc::string::{String, ToString};
use core::error::Error;

/// An error with all its causes, each once: some errors repeat their cause.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
