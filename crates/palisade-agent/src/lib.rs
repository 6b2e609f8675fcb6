//! The agent: wires sources, engine and dataplane together.
