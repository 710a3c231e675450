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
        read: Read,
        // Trailers or an error, which ended the reading before the body was over.
        then: Option<Result<Frame<B::Data>, B::Error>>,
        is_over: bool,
        #[pin]
        rest: B,
    }
}

/// What was read. The first chunk is kept as received; only a second one is copied, so that many
/// small ones take no more memory than their bytes.
#[derive(Debug, Default)]
enum Read {
    #[default]
    Nothing,
    Chunk(Bytes),
    Chunks(BytesMut),
}

impl Read {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Chunk(bytes) => bytes.len(),
            Self::Chunks(bytes) => bytes.len(),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::Chunk(bytes) => bytes,
            Self::Chunks(bytes) => bytes,
        }
    }

    fn push(&mut self, chunk: Bytes) {
        *self = match std::mem::take(self) {
            read if chunk.is_empty() => read,
            Self::Nothing => Self::Chunk(chunk),
            Self::Chunk(first) => {
                let mut bytes = BytesMut::from(&*first);
                bytes.extend_from_slice(&chunk);
                Self::Chunks(bytes)
            }
            Self::Chunks(mut bytes) => {
                bytes.extend_from_slice(&chunk);
                Self::Chunks(bytes)
            }
        };
    }

    fn take(&mut self) -> Option<Bytes> {
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::Chunk(bytes) => Some(bytes),
            Self::Chunks(bytes) => Some(bytes.freeze()),
        }
    }
}

impl<B: Body<Data = Bytes>> Replay<B> {
    /// Nothing was read of it yet.
    pub(crate) fn new(body: B) -> Self {
        Self { read: Read::Nothing, then: None, is_over: false, rest: body }
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
                    Ok(chunk) => this.read.push(chunk),
                    Err(trailers) => *this.then = Some(Ok(trailers)),
                },
                Some(Err(error)) => *this.then = Some(Err(error)),
                None => *this.is_over = true,
            }
        }
    }

    /// What was read so far.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.read.as_slice()
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
        if let Some(read) = this.read.take() {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        if let Some(then) = this.then.take() {
            return Poll::Ready(Some(then));
        }
        if *this.is_over { Poll::Ready(None) } else { this.rest.poll_frame(context) }
    }

    fn is_end_stream(&self) -> bool {
        self.read.len() == 0 && self.then.is_none() && (self.is_over || self.rest.is_end_stream())
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
