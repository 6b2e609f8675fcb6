//! The page in the browser: where it is served, and with which token.

use crate::section::section;
use crate::source::Contradictions;
use crate::value_parser::{optional_path, socket_address};
use std::net::SocketAddr;
use std::path::PathBuf;

section! {
    /// The page in the browser.
    pub struct PageConfig: "Page";

    /// The address of the page in the browser, such as 127.0.0.1:8088. Beyond loopback it needs
    /// page-token-file.
    address: Option<SocketAddr> = "page-address", socket_address(), "", "ADDRESS:PORT", Restart;

    /// The file with the page's token, 16 to 512 ASCII characters.
    token_file: Option<PathBuf> = "page-token-file", optional_path(), "", "FILE", Restart;
}

impl PageConfig {
    /// Adds a token that is not used, and an address that everybody could read.
    pub(crate) fn find_contradictions(&self, contradictions: &mut Contradictions<'_>) {
        match (self.address, &self.token_file) {
            (None, Some(_)) => {
                let reason = "the token is not used; set page-address, or remove page-token-file";
                contradictions.add("page-token-file", "page-address", reason.to_owned());
            }
            (Some(address), None) if !address.ip().is_loopback() => {
                let reason = format!("{address} is reached by other machines; set page-token-file");
                contradictions.add("page-address", "page-token-file", reason);
            }
            (None | Some(_), _) => {}
        }
    }
}
