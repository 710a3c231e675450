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
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    #[derive(Debug)]
    enum Kind<B> {
        Service {
            #[pin]
            body: B,
            // Held until it has ended.
            permits: Vec<Permit>,
        },
        Refusal { bytes: Bytes },
    }
}

impl<B> Body<B> {
    #[inline]
    pub(crate) fn of_service(body: B, permits: Vec<Permit>) -> Self {
        Self { kind: Kind::Service { body, permits } }
    }

    pub(crate) fn of_refusal(bytes: Bytes) -> Self {
        Self { kind: Kind::Refusal { bytes } }
    }
}

impl<B: http_body::Body<Data = Bytes>> http_body::Body for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let (mut body, permits) = match self.project().kind.project() {
            KindProj::Service { body, permits } => (body, permits),
            KindProj::Refusal { bytes } => {
                let bytes = std::mem::take(bytes);
                return Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))));
            }
        };
        let polled = body.as_mut().poll_frame(context);
        // A body whose stream has ended is not polled again.
        let is_over = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
            Poll::Ready(None | Some(Err(_))) => true,
        };
        if is_over {
            permits.clear();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body, .. } => body.is_end_stream(),
            Kind::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body, .. } => body.size_hint(),
            Kind::Refusal { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
