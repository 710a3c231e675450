//! The layers before the network, each with its bound.
