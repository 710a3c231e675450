#![allow(unused)]
use serde::Serialize;
use tidegate::{Refusal, limited};
use tidegate_journal::Deferred;

struct Connection;

#[derive(Serialize)]
struct WriteOnly;

#[derive(Debug)]
struct Answer;

impl From<Refusal> for Answer {
    fn from(_: Refusal) -> Self {
        Self
    }
}

impl From<Deferred> for Answer {
    fn from(_: Deferred) -> Self {
        Self
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

#[limited("5/s", otherwise = defer)]
async fn not_written(id: u64, connection: &Connection) -> Result<(), Answer> {
    Ok(())
}

#[limited("5/s", otherwise = defer)]
async fn not_read(order: WriteOnly) -> Result<(), Answer> {
    Ok(())
}

#[limited("5/s", otherwise = defer)]
async fn result_not_kept(id: u64) -> Result<Connection, Answer> {
    Ok(Connection)
}

#[limited("5/s", otherwise = defer)]
async fn not_deferred(id: u64) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5/s", otherwise = defer)]
async fn not_refused(id: u64) -> Result<(), Deferred> {
    Ok(())
}

#[limited("5/s", otherwise = defer)]
async fn no_result(id: u64) -> u64 {
    id
}

#[limited("5/s", otherwise = defer(key = order))]
async fn key(order: Vec<u64>) -> Result<(), Answer> {
    Ok(())
}

#[limited("5/s", otherwise = defer(journal = id))]
async fn journal(id: u64) -> Result<(), Answer> {
    Ok(())
}

fn main() {}
