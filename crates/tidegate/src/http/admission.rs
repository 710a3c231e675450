//! What a request that may go on carries: fields for its response, permits to hold, and the
//! decisions for its handler.

use crate::http::extension::Decided;
use crate::http::response::fields::Fields;
use crate::permit::Permit;
use http::{Extensions, HeaderMap};

/// What a request that may go on carries.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    fields: Option<Fields>,
    /// Held until the response's body has ended.
    permits: Vec<Permit>,
    decided: Option<Box<Decided>>,
}

impl Admission {
    pub(crate) fn new(fields: Option<Fields>, permits: Vec<Permit>, decided: Option<Decided>) -> Self {
        Self { fields, permits, decided: decided.map(Box::new) }
    }

    /// Puts the decisions into the request's extensions.
    pub(crate) fn add_to_request(&mut self, extensions: &mut Extensions) {
        if let Some(decided) = self.decided.take() {
            decided.add_to(extensions);
        }
    }

    /// Puts the fields about the allowance into the head of a response, once.
    pub(crate) fn add_fields(&mut self, headers: &mut HeaderMap) {
        if let Some(fields) = self.fields.take() {
            fields.add_to(headers);
        }
    }

    pub(crate) fn take_permits(&mut self) -> Vec<Permit> {
        std::mem::take(&mut self.permits)
    }

    #[cfg(feature = "axum")]
    pub(crate) fn decided(&self) -> Option<&Decided> {
        self.decided.as_deref()
    }
}
