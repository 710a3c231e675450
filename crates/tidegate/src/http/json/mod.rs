//! Fields of JSON bodies for rules, bounded, and the same bytes for the service.

pub(crate) mod fields;
pub(crate) mod layer;
pub(crate) mod replay;
