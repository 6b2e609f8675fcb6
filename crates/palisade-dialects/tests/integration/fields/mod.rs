//! The tables of fields against the dialects, and against the schemas that the projects publish.
//!
//! To accept a change of `docs/dialects.md` and the pages in `docs/dialects`, run with `PALISADE_BLESS=1` and review the difference.

mod document;
mod json_path;
mod mutations;
mod rows;
mod samples;
mod schema;
mod unknown_fields;
