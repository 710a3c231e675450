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
        #[pin]
        inner: Inner<B>,
        // Held until it has ended.
        permits: Vec<Permit>,
    }
}

pin_project! {
    #[project = InnerProj]
    #[derive(Debug)]
    enum Inner<B> {
        Service { #[pin] body: B },
        Refusal { bytes: Bytes },
    }
}

impl<B> Body<B> {
    pub(crate) fn of_service(body: B, permits: Vec<Permit>) -> Self {
        Self { inner: Inner::Service { body }, permits }
    }

    pub(crate) fn of_refusal(bytes: Bytes) -> Self {
        Self { inner: Inner::Refusal { bytes }, permits: Vec::new() }
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
        match this.inner.project() {
            InnerProj::Refusal { bytes } if bytes.is_empty() => Poll::Ready(None),
            InnerProj::Refusal { bytes } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            InnerProj::Service { mut body } => {
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
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Service { body } => body.is_end_stream(),
            Inner::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Service { body } => body.size_hint(),
            Inner::Refusal { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
