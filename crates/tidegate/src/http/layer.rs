//! The tower layer.

use crate::http::guard::Guard;
use crate::http::service::GuardService;
use tower_layer::Layer;

/// [`Guard::layer`].
#[derive(Clone, Debug)]
pub struct GuardLayer {
    guard: Guard,
}

impl GuardLayer {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard }
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = GuardService<S>;

    fn layer(&self, inner: S) -> GuardService<S> {
        GuardService::new(self.guard.clone(), inner)
    }
}
