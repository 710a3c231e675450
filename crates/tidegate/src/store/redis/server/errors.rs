//! What an error of the server means: where an operation goes next, and whether the connection
//! stays.

use super::RedisServer;
use super::batch::{CallOutcome, Pipeline, TRY_AGAIN};
use crate::clock::Timestamp;
use crate::store::redis::request::Operation;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::sync::Arc;

const IS_REPLICA: &str = "it is a replica that takes no writes";

impl Pipeline<'_> {
    /// Errors of single operations that the server did not do.
    pub(super) fn check_errors(&self, errors: &[String]) -> CallOutcome {
        let Some(error) = errors.first() else { return CallOutcome::Done };
        self.log(error);
        // Its replicas are gone, perhaps to another master.
        if errors.iter().any(|error| error.contains("NOREPLICAS")) {
            self.client.sentinels.ask();
        }
        if errors.iter().any(|error| error.contains("READONLY")) {
            self.client.sentinels.ask();
            return CallOutcome::WrongServer(IS_REPLICA);
        }
        CallOutcome::Done
    }

    /// The whole call was refused. What was not done for sure is sent elsewhere, or again.
    pub(super) fn refused(&self, error: &RedisError, operations: Vec<Operation>) -> CallOutcome {
        let ErrorKind::Server(kind) = error.kind() else {
            self.give_up_operations(operations);
            if error.kind() == ErrorKind::Extension {
                return self.failed(error);
            }
            return CallOutcome::Disconnected;
        };
        let outcome = match kind {
            ServerErrorKind::Moved => {
                self.client.refresh_cluster();
                let server = error.redirect_node().and_then(|(at, slot)| self.client.moved(at, slot));
                return self.redirect(operations, server.as_ref(), false);
            }
            ServerErrorKind::Ask => {
                let server = error.redirect_node().and_then(|(at, _)| self.client.server_at(at));
                return self.redirect(operations, server.as_ref(), true);
            }
            ServerErrorKind::TryAgain => {
                let later = self.client.now() + TRY_AGAIN;
                operations.into_iter().for_each(|operation| self.server.redirect(operation, false, later));
                return CallOutcome::Done;
            }
            ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown => {
                CallOutcome::WrongServer("its cluster is down")
            }
            ServerErrorKind::BusyLoading => CallOutcome::WrongServer("it is loading its data"),
            ServerErrorKind::ReadOnly => {
                self.client.sentinels.ask();
                CallOutcome::WrongServer(IS_REPLICA)
            }
            ServerErrorKind::NoPerm => {
                tracing::error!(
                    server = self.server.address(),
                    error = error.to_string(),
                    "the Redis user may not run the script: see docs/redis.md for the rights it needs"
                );
                CallOutcome::WrongServer("the user lacks rights")
            }
            _ => {
                // A script that failed may have done a part of its operations.
                self.give_up_operations(operations);
                return self.failed(error);
            }
        };
        let unanswered = self.server.unanswered(self.client);
        operations.into_iter().for_each(|operation| operation.fail(unanswered));
        outcome
    }

    fn failed(&self, error: &RedisError) -> CallOutcome {
        self.log(&error.to_string());
        if error.code() == Some("NOREPLICAS") {
            self.client.sentinels.ask();
        }
        CallOutcome::Done
    }

    fn redirect(
        &self,
        operations: Vec<Operation>,
        server: Option<&Arc<RedisServer>>,
        is_ask_redirect: bool,
    ) -> CallOutcome {
        let unanswered = self.server.unanswered(self.client);
        for operation in operations {
            match server {
                Some(server) => server.redirect(operation, is_ask_redirect, Timestamp::default()),
                None => operation.fail(unanswered),
            }
        }
        CallOutcome::Done
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
