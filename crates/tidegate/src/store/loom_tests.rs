//! Every interleaving of the compare-and-swap paths, by loom: `RUSTFLAGS="--cfg loom"`.
