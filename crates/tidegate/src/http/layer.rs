//! The tower layer.

use crate::http::guard::Guard;
use crate::http::service::GuardService;
use std::sync::Arc;
use tower_layer::Layer;

/// [`Guard::layer`].
#[derive(Clone, Debug)]
pub struct GuardLayer {
    pub(crate) guard: Guard,
}

impl<S> Layer<S> for GuardLayer {
    type Service = GuardService<S>;

    fn layer(&self, inner: S) -> GuardService<S> {
        GuardService { guard: Arc::new(self.guard.clone()), inner }
    }
}
