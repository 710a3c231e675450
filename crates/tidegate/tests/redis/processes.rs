//! Several processes on one Redis.
