//! Where the servers are, and how patient one is with them.

use std::fmt;
use std::time::Duration;

/// When an order number may be told to its buyer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerAfter {
    /// After Redis and the broker's confirm. Until PostgreSQL has the order, three hold it:
    /// Redis, RabbitMQ and the process that answered. Any two of them may be lost.
    #[default]
    Confirm,
    /// After Redis alone. Until the broker's confirm two hold the order: Redis and the process
    /// that answered. It is faster by a trip to the broker, and goes on selling while RabbitMQ
    /// is away. It does not survive these pairs of faults, within the moment before the confirm
    /// or for as long as RabbitMQ is away:
    ///
    /// - the process ends, and Redis is flushed or its disk is lost;
    /// - the process ends, and Redis goes back in time: a restored backup, a replica that took
    ///   over, or a kill without `appendfsync always`.
    ///
    /// The next count holds the sale then, and names the orders that other processes had heard
    /// of; they ask Redis every `refresh`, and do not hear of what was answered since.
    Redis,
}

/// A sale on Redis, RabbitMQ and PostgreSQL.
#[derive(Clone)]
pub struct ServersConfig {
    /// `redis://user:password@host:6379`.
    pub redis: String,
    /// `amqp://user:password@host:5672/%2f`.
    pub amqp: String,
    /// `postgres://user:password@host:5432/database`.
    pub postgres: String,
    /// What names in Redis and in the broker begin with. One database has one prefix.
    pub prefix: String,
    /// Queues, and so writers at work at the same time. The first process decides for all.
    pub shards: u16,
    /// When a number is told.
    pub answer_after: AnswerAfter,
    /// How long a buyer waits at most.
    pub deadline: Duration,
    /// An outbox entry that is older than this is published by whoever finds it.
    pub grace: Duration,
    /// Orders that share one transaction.
    pub batch_max: usize,
    /// Every so often a process asks what has changed, whatever it was told.
    pub refresh: Duration,
    /// Every so often the books are checked.
    pub reconcile: Duration,
}

impl ServersConfig {
    /// True if a number is told before the broker has it.
    pub(super) fn answers_before_broker(&self) -> bool {
        self.answer_after == AnswerAfter::Redis
    }

    /// These servers, with the defaults.
    pub fn new(redis: &str, amqp: &str, postgres: &str) -> Self {
        Self {
            redis: redis.into(),
            amqp: amqp.into(),
            postgres: postgres.into(),
            prefix: "tidegate-sale".into(),
            shards: 4,
            answer_after: AnswerAfter::Confirm,
            deadline: Duration::from_secs(3),
            grace: Duration::from_secs(2),
            batch_max: 500,
            refresh: Duration::from_millis(500),
            reconcile: Duration::from_secs(1),
        }
    }
}

/// Without the addresses, which have passwords in them.
impl fmt::Debug for ServersConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServersConfig")
            .field("prefix", &self.prefix)
            .field("shards", &self.shards)
            .field("answer_after", &self.answer_after)
            .finish_non_exhaustive()
    }
}
