//! The API as seen by clients: its document, its bodies, and the requests it rejects.

mod bodies;
mod crd;
mod document;
mod fast_path;
mod figures;
mod floods;
mod grows;
mod hostile;
mod recorded_flows;
mod refusals;
mod rights;
mod schema;
mod signs;
mod site;
mod wrong_requests;
