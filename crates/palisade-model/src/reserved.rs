//! Names of the labels in [`LabelScope::Reserved`](crate::LabelScope::Reserved), and the values of [`KIND`].

/// What the object is: one of the `KIND_…` values.
pub const KIND: &str = "kind";
/// The name of the namespace the object lives in; absent without one.
pub const NAMESPACE: &str = "namespace";
/// The object's own name.
pub const NAME: &str = "name";
/// The name of the service account an endpoint runs under; absent without one.
pub const SERVICE_ACCOUNT: &str = "serviceaccount";
/// The name of the node that an endpoint says it runs on; absent without one.
pub const NODE: &str = "node";
/// A pod or another attached workload.
pub const KIND_WORKLOAD: &str = "workload";
/// A node's own interface (a host endpoint).
pub const KIND_HOST: &str = "host";
/// All interfaces of a node (its node endpoint), which only policies of nodes select.
pub const KIND_NODE_ENDPOINT: &str = "nodeendpoint";
/// A node's own interface that is known by its addresses only: a network set that is a HostEndpoint.
pub const KIND_HOST_ENDPOINT: &str = "hostendpoint";
/// A node, identified by its addresses.
pub const KIND_NODE: &str = "node";
/// A network set.
pub const KIND_NETWORK_SET: &str = "networkset";
/// The networks from which the pods of a node get addresses: a network set with the name of the node.
pub const KIND_POD_NETWORK: &str = "podnetwork";
/// The addresses of endpoints of a Service: a network set that is an EndpointSlice.
pub const KIND_ENDPOINT_SLICE: &str = "endpointslice";
/// The addresses of endpoints of a Service that serve nothing: a part of an EndpointSlice.
pub const KIND_UNREADY_ENDPOINTS: &str = "unreadyendpoints";
/// A network set that is a CiliumCIDRGroup.
pub const KIND_CIDR_GROUP: &str = "cidrgroup";
/// The addresses of a domain name, as DNS answers have them: a network set with that name.
pub const KIND_DOMAIN_NAME: &str = "domainname";
/// The domain name whose addresses a network set has; absent on every other object.
pub const DOMAIN: &str = "domain";
/// Of a node, whether the judged endpoint runs on it ([`crate::Endpoint::own_node`]): [`IS_OWN_NODE`] or
/// [`IS_OTHER_NODE`]. Absent while the node of the judged endpoint is not known, and on every other object.
pub const OWN_NODE: &str = "ownnode";
/// The value of [`OWN_NODE`] on the node that the judged endpoint runs on.
pub const IS_OWN_NODE: &str = "true";
/// The value of [`OWN_NODE`] on every other node.
pub const IS_OTHER_NODE: &str = "false";
/// Present on a host endpoint whose node is known: the name of that node. Policies of nodes test it; see
/// [`crate::Policy::selects_nodes`].
pub const HOST_NODE: &str = "hostnode";
