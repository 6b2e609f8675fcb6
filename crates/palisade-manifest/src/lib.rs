//! YAML and JSON documents whose every value knows its file, line and column.
