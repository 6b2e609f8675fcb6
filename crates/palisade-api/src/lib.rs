//! The wire types of the agent's socket.
