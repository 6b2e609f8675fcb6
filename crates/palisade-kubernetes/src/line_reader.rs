//! The lines of an answer as they arrive, with a limit on their length and on the silence between them.

use crate::api_error::ApiServerError;
use http_body_util::BodyExt;
use kube::client::Body;
use std::time::Duration;

/// The maximum length of a line: an object, of which a server stores at most 1.5 MB by default.
const MAX_LINE: usize = 32 << 20;

/// Reads an answer line by line.
pub(crate) struct LineReader {
    body: Body,
    buffered: Vec<u8>,
    /// The bytes before it have been returned.
    start: usize,
    /// No line ends before it.
    searched: usize,
}

impl LineReader {
    pub(crate) fn new(body: Body) -> Self {
        LineReader {
            body,
            buffered: Vec::new(),
            start: 0,
            searched: 0,
        }
    }

    /// The next line, without its end; `None` at the end of the answer, where half a line is dropped.
    ///
    /// # Errors
    /// If the connection breaks, nothing arrives for `silence`, or the line is too long or not UTF-8.
    pub(crate) async fn next_line(
        &mut self,
        silence: Duration,
    ) -> Result<Option<&str>, ApiServerError> {
        let end = loop {
            let rest = self.buffered.get(self.searched..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                break self.searched + at;
            }
            self.buffered.drain(..self.start);
            self.start = 0;
            self.searched = self.buffered.len();
            if self.buffered.len() > MAX_LINE {
                let reason = format!("a line has more than {MAX_LINE} bytes");
                return Err(ApiServerError::Answer(reason));
            }
            let frame = tokio::time::timeout(silence, self.body.frame()).await;
            let frame = frame.map_err(|_| ApiServerError::Timeout(silence))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(ApiServerError::Connection(error.to_string())),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffered.extend_from_slice(data);
                    }
                }
            }
        };
        let line = self.buffered.get(self.start..end).unwrap_or_default();
        (self.start, self.searched) = (end + 1, end + 1);
        let line = std::str::from_utf8(line);
        line.map(Some)
            .map_err(|error| ApiServerError::Answer(error.to_string()))
    }
}
