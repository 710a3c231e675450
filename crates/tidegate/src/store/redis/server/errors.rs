//! What an error of the server means: where an operation goes next, and whether the connection
//! stays.

use super::RedisServer;
use super::batch::{CallOutcome, Disconnect, Pipeline, TRY_AGAIN};
use super::request_queue::QueuedOperation;
use crate::clock::Timestamp;
use crate::store::redis::request::Operation;
use redis::{ErrorKind, RedisError, ServerErrorKind};

impl Pipeline<'_> {
    /// Errors of what the server did not do, or not all of.
    pub(super) fn check_errors(&self, errors: &[String]) -> CallOutcome {
        let Some(error) = errors.first() else { return CallOutcome::Done };
        self.log(error);
        // Its replicas are gone, perhaps to another master.
        if errors.iter().any(|error| error.contains("NOREPLICAS")) {
            self.client.sentinels.ask();
        }
        if errors.iter().any(|error| error.contains("READONLY")) {
            return self.is_replica();
        }
        CallOutcome::Done
    }

    /// The whole call was refused. What was not done for sure is sent elsewhere, or again.
    pub(super) fn refused(&self, error: &RedisError, operations: Vec<Operation>) -> CallOutcome {
        let silent = |why| CallOutcome::GivenUp(Disconnect::silent(why));
        let at_once = Timestamp::default();
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                self.client.map.refresh.notify_one();
                let server = error.redirect_node().and_then(|(at, slot)| self.client.moved(at, slot));
                redirect(operations, server.as_deref(), false, at_once)
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                let server = error.redirect_node().and_then(|(at, _)| self.client.server_at(at));
                redirect(operations, server.as_deref(), true, at_once)
            }
            ErrorKind::Server(ServerErrorKind::TryAgain) => {
                redirect(operations, Some(self.server), false, self.client.now() + TRY_AGAIN)
            }
            ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown) => {
                silent("its cluster is down")
            }
            ErrorKind::Server(ServerErrorKind::BusyLoading) => silent("it is loading its data"),
            ErrorKind::Server(ServerErrorKind::ReadOnly) => self.is_replica(),
            ErrorKind::Server(ServerErrorKind::NoPerm) => {
                tracing::error!(
                    server = self.server.address(),
                    error = error.to_string(),
                    "the Redis user may not run the script: see docs/redis.md for the rights it needs"
                );
                silent("the user lacks rights")
            }
            ErrorKind::Server(_) | ErrorKind::Extension => {
                // A script that failed may have done a part of its operations.
                operations.iter().for_each(Operation::release_slots);
                self.check_errors(&[error.to_string()])
            }
            _ => {
                operations.iter().for_each(Operation::release_slots);
                CallOutcome::GivenUp(Disconnect::closed("the connection was closed"))
            }
        }
    }

    fn is_replica(&self) -> CallOutcome {
        self.client.sentinels.ask();
        CallOutcome::GivenUp(Disconnect::silent("it is a replica that takes no writes"))
    }

    fn log(&self, error: &str) {
        if !self.client.may_warn() {
            return;
        }
        let server = self.server.address();
        // As Redis 6 and 7 say it of a command within a script.
        if error.contains("can't run this command") || error.contains("ACL failure") {
            tracing::error!(
                server,
                error,
                "the Redis user may not do all that the script does: see docs/redis.md for the rights it needs"
            );
        } else {
            tracing::warn!(server, error, "Redis refused an operation");
        }
    }
}

/// Sends operations that another server did not do, or this one not yet, to a server, if there is one.
fn redirect(
    operations: Vec<Operation>,
    server: Option<&RedisServer>,
    is_ask_redirect: bool,
    not_before: Timestamp,
) -> CallOutcome {
    let Some(server) = server else { return CallOutcome::Done };
    for operation in operations {
        // In its own company: with others, of which only some have moved, it would be sent back again.
        server.push(QueuedOperation { operation, is_alone: true, is_ask_redirect, not_before });
    }
    CallOutcome::Done
}
