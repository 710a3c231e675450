//! Places of a concurrency limit, held across processes.
