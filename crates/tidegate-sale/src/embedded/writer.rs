//! The way to the one thread that writes: its queue, and what stands in it.

use super::desk::{Desk, Tx};
use super::fault::WriteFault;
use super::place::Place;
use tokio::sync::{mpsc, oneshot};

/// Jobs that wait at most; more are told to try again.
const QUEUE_MAX: usize = 65_536;

/// Something to do within a transaction. It may be run again where one with others failed.
pub(super) trait Job: Send {
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), WriteFault>;

    /// After the transaction, before the next one: memory learns what the file knows.
    fn end(self: Box<Self>, desk: &Desk, outcome: Result<(), WriteFault>);
}

/// What stands in the queue.
pub(super) enum Errand {
    Write(Box<dyn Job>),
    /// Between two transactions, when memory and file say the same.
    Look(Box<dyn FnOnce(&Desk) + Send>),
    /// The last one. What is queued behind it is not done.
    Stop(oneshot::Sender<()>),
}

/// The queue to the thread. Dropping it ends the thread after what is queued.
pub(super) struct Writer {
    queue: mpsc::Sender<Errand>,
}

impl Writer {
    pub(super) fn new() -> (Self, mpsc::Receiver<Errand>) {
        let (queue, errands) = mpsc::channel(QUEUE_MAX);
        (Self { queue }, errands)
    }

    /// False once the thread has ended.
    pub(super) fn is_open(&self) -> bool {
        !self.queue.is_closed()
    }

    /// Queues an order, or gives it back at once if there is no room.
    pub(super) fn offer(&self, place: Place) -> Result<(), Place> {
        match self.queue.try_reserve() {
            Ok(room) => {
                room.send(Errand::Write(Box::new(place)));
                Ok(())
            }
            Err(_) => Err(place),
        }
    }

    /// Works within a transaction, then lets memory know, and answers after both.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> Result<T, WriteFault> + Send + 'static,
        land: impl FnOnce(&Desk, &mut T) + Send + 'static,
    ) -> Result<T, WriteFault> {
        let (reply, answer) = oneshot::channel();
        let task = Task { work, land, result: None, reply };
        self.send(Errand::Write(Box::new(task))).await?;
        answer.await.map_err(|_| WriteFault::stopped())?
    }

    /// Looks between two transactions.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Desk) -> T + Send + 'static,
    ) -> Result<T, WriteFault> {
        let (reply, answer) = oneshot::channel();
        self.send(Errand::Look(Box::new(move |desk| {
            // Whoever asked may have gone away.
            let _ = reply.send(look(desk));
        })))
        .await?;
        answer.await.map_err(|_| WriteFault::stopped())
    }

    /// Ends the thread once what is queued is written.
    pub(super) async fn stop(&self) {
        let (reply, answer) = oneshot::channel();
        if self.send(Errand::Stop(reply)).await.is_ok() {
            let _ = answer.await;
        }
        self.queue.closed().await;
    }

    async fn send(&self, errand: Errand) -> Result<(), WriteFault> {
        self.queue.send(errand).await.map_err(|_| WriteFault::stopped())
    }
}

struct Task<W, L, T> {
    work: W,
    land: L,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, WriteFault>>,
}

impl<W, L, T> Job for Task<W, L, T>
where
    W: FnMut(&Tx<'_>) -> Result<T, WriteFault> + Send,
    L: FnOnce(&Desk, &mut T) + Send,
    T: Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), WriteFault> {
        self.result = Some((self.work)(tx)?);
        Ok(())
    }

    fn end(self: Box<Self>, desk: &Desk, outcome: Result<(), WriteFault>) {
        let Self { land, result, reply, .. } = *self;
        let outcome = outcome.and_then(|()| result.ok_or_else(WriteFault::stopped)).map(|mut done| {
            land(desk, &mut done);
            done
        });
        let _ = reply.send(outcome);
    }
}
