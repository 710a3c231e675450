//! The tower layer.

use crate::http::guard::Guard;
use crate::http::service::GuardService;
use tower_layer::Layer;

/// [`Guard::layer`].
#[derive(Clone, Debug)]
pub struct GuardLayer {
    pub(crate) guard: Guard,
}

impl<S> Layer<S> for GuardLayer {
    type Service = GuardService<S>;

    fn layer(&self, inner: S) -> GuardService<S> {
        GuardService { guard: self.guard.clone(), inner }
    }
}
