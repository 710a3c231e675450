//! A body whose beginning was read already, and is replayed.

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The body that a [`JsonLayer`](crate::http::JsonLayer) passes on: first what was read of
    /// it, then the rest. Its bytes, trailers and errors are those of the body as received;
    /// only the boundaries of chunks may differ.
    #[derive(Debug)]
    pub struct Replay<B: Body> {
        read: BytesMut,
        // Trailers or an error, which ended the reading before the body was over.
        then: Option<Result<Frame<B::Data>, B::Error>>,
        is_over: bool,
        #[pin]
        rest: B,
    }
}

impl<B: Body<Data = Bytes>> Replay<B> {
    /// Nothing was read of it yet.
    pub(crate) fn new(body: B) -> Self {
        Self { read: BytesMut::new(), then: None, is_over: false, rest: body }
    }

    /// Reads on, until the body is over or more than `max` bytes are there. Ready with
    /// true if they are all there.
    pub(crate) fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, max: usize) -> Poll<bool> {
        let mut this = self.project();
        loop {
            if this.read.len() > max || this.then.is_some() {
                return Poll::Ready(this.read.len() <= max && matches!(this.then, Some(Ok(_))));
            }
            if *this.is_over || this.rest.is_end_stream() {
                return Poll::Ready(true);
            }
            match ready!(this.rest.as_mut().poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    // The first is kept as received, if nobody else has it. Others are copied, so that
                    // many small ones take no more memory than their bytes.
                    Ok(chunk) if this.read.is_empty() => *this.read = chunk.into(),
                    Ok(chunk) => this.read.extend_from_slice(&chunk),
                    Err(trailers) => *this.then = Some(Ok(trailers)),
                },
                Some(Err(error)) => *this.then = Some(Err(error)),
                None => *this.is_over = true,
            }
        }
    }

    /// What was read so far.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.read
    }
}

impl<B: Body<Data = Bytes>> Body for Replay<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if !this.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(this.read).freeze()))));
        }
        if let Some(then) = this.then.take() {
            return Poll::Ready(Some(then));
        }
        if *this.is_over { Poll::Ready(None) } else { this.rest.poll_frame(context) }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.then.is_none() && (self.is_over || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.len() as u64;
        let rest = if self.is_over { SizeHint::with_exact(0) } else { self.rest.size_hint() };
        let mut hint = SizeHint::new();
        hint.set_lower(read.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}
