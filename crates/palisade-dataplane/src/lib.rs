//! Executes transactions, reads the kernel back, repairs.
