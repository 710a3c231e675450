//! What every engine must do, on these servers.

use super::rig::{engine, shared, until};
use crate::engine::Engine;
use crate::sale::SaleState;
use crate::servers::{ServersConfig, ServersEngine};
use crate::suite::{Harness, engine_suite, phone};
use std::sync::Arc;

/// An engine with a database and a prefix of its own.
struct OnServers {
    config: ServersConfig,
    engine: Arc<ServersEngine>,
}

impl OnServers {
    fn sql(&self, text: &str) {
        shared().postgres.sql_in(&self.config.postgres, text);
    }
}

impl Harness for OnServers {
    async fn start() -> Self {
        let config = shared().config();
        let engine = engine(&config).await;
        Self { config, engine }
    }

    fn engine(&self) -> Arc<dyn Engine> {
        self.engine.clone()
    }

    /// Redis has forgotten everything, too.
    async fn reopen(&mut self) {
        let before = self.engine.known(&phone()).unwrap();
        self.engine.stop().await;
        let redis = &shared().redis;
        for key in redis.cmd(&["KEYS", &format!("{}:*", self.config.prefix)]).items() {
            redis.cmd(&["DEL", &key.text()]);
        }
        self.engine = engine(&self.config).await;
        until("it is loaded again", async || {
            let known = self.engine.known(&phone()).unwrap();
            let is_shown = !matches!(known.state, SaleState::Paused { .. });
            known.epoch > before.epoch && known.left.is_some() && is_shown
        })
        .await;
    }

    async fn poison(&self) {
        self.sql(
            "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'this user is poison'; END $$;
             CREATE TRIGGER poison BEFORE INSERT ON sale_orders FOR EACH ROW
             WHEN (NEW.buyer LIKE 'poison%' AND NEW.state <> 5) EXECUTE FUNCTION poison()",
        );
    }

    async fn cure(&self) {
        self.sql("DROP TRIGGER poison ON sale_orders; DROP FUNCTION poison()");
    }

    async fn miscount(&self) {
        self.sql("UPDATE sale_goods SET stock = stock - 3");
    }

    async fn inflate(&self, units: u32) {
        self.sql(&format!("UPDATE sale_orders SET quantity = {units}"));
    }
}

engine_suite!(OnServers);
