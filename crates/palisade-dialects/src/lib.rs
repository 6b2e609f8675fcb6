//! Policy objects: parse, validate, lower.
