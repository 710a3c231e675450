//! Encryption on the way to PostgreSQL, as the address says.

use crate::place::call;
use std::fs;
use testkit::servers::PostgresServer;
use tidegate_journal::{Journal, JournalError};

async fn opened(url: &str) -> Result<Journal, JournalError> {
    Journal::builder().patience(std::time::Duration::from_secs(5)).without_roles().postgres(url).await
}

#[test]
fn the_way_to_the_server_is_encrypted_and_the_server_is_checked_as_the_address_says() {
    let (server, files) = PostgresServer::with_tls();
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (folder.path().join("ca.pem"), folder.path().join("other.pem"));
    fs::write(&ours, &files.ca).unwrap();
    fs::write(&other, &files.client_cert).unwrap();
    let (ours, other) =
        (format!("sslrootcert={}", ours.display()), format!("sslrootcert={}", other.display()));
    let url = server.database();
    // The same server under a name that its certificate does not have.
    let alias = format!("{}?hostaddr=127.0.0.1&", url.replace("127.0.0.1", "db.example"));
    let encrypted = || {
        server.sql_in(
            &url,
            "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
             WHERE a.application_name = 'tidegate-journal' AND a.datname = current_database()",
        )
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for (address, is_encrypted) in [
            (format!("{url}?sslmode=disable"), "f"),
            (url.clone(), "t"),
            (format!("{url}?sslmode=require"), "t"),
            (format!("{url}?sslmode=verify-full&{ours}"), "t"),
            (format!("{alias}sslmode=verify-ca&{ours}"), "t"),
        ] {
            let journal = opened(&address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
            journal.defer(call("ship", 1)).await.unwrap();
            assert_eq!(encrypted(), is_encrypted, "{address}");
            drop(journal);
            crate::place::until("its connections are closed", async || encrypted().is_empty().then_some(()))
                .await;
        }
        for (address, told) in [
            (format!("{url}?sslmode=verify-full&{other}"), "certificate"),
            (format!("{url}?sslmode=verify-ca&{other}"), "certificate"),
            (format!("{url}?sslmode=verify-full"), "certificate"),
            (format!("{alias}sslmode=verify-full&{ours}"), "certificate"),
            (format!("{url}?sslmode=verify-full&sslrootcert=/nowhere.pem"), "/nowhere.pem"),
            (format!("{url}?sslmode=strict"), "sslmode"),
        ] {
            let error = opened(&address).await.unwrap_err().to_string();
            assert!(error.contains(told), "{address}: {error}");
        }
    });
}

#[test]
fn who_asks_for_encryption_gets_no_other() {
    let server = PostgresServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let error = opened(&format!("{}?sslmode=require", server.database())).await.unwrap_err().to_string();
        assert!(error.contains("TLS"), "{error}");
        opened(&server.database()).await.unwrap();
    });
}
