//! The source addresses of pods' traffic to external networks.

use crate::section::section;
use crate::value_parser::{networks, one_of};
use palisade_model::Prefix;

section! {
    /// The source addresses of pods' traffic to external networks.
    pub struct MasqueradeConfig: "Masquerading";

    /// Whether traffic of pods to external addresses (outside of all pools) is masqueraded with this host's address.
    is_enabled: bool = "masquerade", one_of(&["off", "outside"], &[false, true]), "off", "off|outside", Restart;

    /// Networks to which traffic of pods is never masqueraded.
    except: Vec<Prefix> = "masquerade-except", networks(), "", "CIDR,…", Restart;
}
