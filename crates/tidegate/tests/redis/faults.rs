//! What happens when Redis does not do what it should, on real servers.
