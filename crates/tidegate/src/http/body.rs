//! The body of a response: the service's own, which holds slots until it has ended, or the few
//! bytes of a refusal.

use crate::permit::Permit;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// The body of a response that went through a guard. The slot of a concurrency limit
    /// is held until it has ended or is dropped.
    #[derive(Debug)]
    pub struct Body<B> {
        // None of a refusal.
        #[pin]
        service: Option<B>,
        refusal: Bytes,
        // Held until it has ended.
        permits: Vec<Permit>,
    }
}

impl<B> Body<B> {
    pub(crate) fn of_service(body: B, permits: Vec<Permit>) -> Self {
        Self { service: Some(body), refusal: Bytes::new(), permits }
    }

    pub(crate) fn of_refusal(refusal: Bytes) -> Self {
        Self { service: None, refusal, permits: Vec::new() }
    }
}

impl<B: http_body::Body<Data = Bytes>> http_body::Body for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(mut body) = this.service.as_pin_mut() else {
            let refusal = std::mem::take(this.refusal);
            return Poll::Ready((!refusal.is_empty()).then(|| Ok(Frame::data(refusal))));
        };
        let polled = body.as_mut().poll_frame(context);
        // A body whose stream has ended is not polled again.
        let is_over = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
            Poll::Ready(None | Some(Err(_))) => true,
        };
        if is_over {
            this.permits.clear();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.service.as_ref().map_or(self.refusal.is_empty(), B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let of_refusal = || SizeHint::with_exact(self.refusal.len() as u64);
        self.service.as_ref().map_or_else(of_refusal, B::size_hint)
    }
}
