//! This host among the nodes of its cluster.

use crate::section::section;
use crate::value_parser::{node_name, one_of};

section! {
    /// This host among the nodes of its cluster.
    pub struct NodesConfig: "Nodes";

    /// The name of this host's Node object; empty: the variable NODE_NAME, or else the host name.
    name: Option<String> = "node-name", node_name(), "", "NAME", Restart;

    /// Whether this host, if its Node has podCIDRs, has routes to the podCIDRs of other Nodes whose InternalIP is
    /// directly reachable.
    has_routes: bool = "node-routes", one_of(&["off", "auto"], &[false, true]), "auto", "auto|off", Restart;
}
