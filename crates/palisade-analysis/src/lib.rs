//! Set algebra over policies: connections, diff, nearest miss, explain.
