//! Memory: what a fresh Redis grows by when it learns keys such as `user:12345678`. Everybody but
//! the log holds one request of a key, and it would take no more for a hundred; the log holds a
//! hundred.

use super::allowance::Allowance;
use super::client::Work;
use super::clients::Clients;
use super::contenders::scripts::{KEY_PREFIX, first_number};
use super::contenders::{GCRA, Layers, PEERS, Who, ZSET};
use super::server::Server;
use super::trial::{Expect, Setting};
use crate::inproc::keys::Key;
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate};
use crate::{Fallible, Wanted};
use ::redis::{Script, cmd, pipe};

const NAME: &str = "bytes.key";
const KEYS: u32 = 100_000;
const LOG_KEYS: u32 = 20_000;
const LOG_REQUESTS: u32 = 100;
/// Keys a round trip while a log is filled.
const BATCH: u32 = 500;
const DEPTH: u32 = 64;
/// The figure hardly moves.
const ROUNDS_MAX: usize = 5;

/// What a log that other people wrote is likely to hold: the time and something random.
const TEXT_MEMBERS: &str = "zset, text members";

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    if !wanted.case(NAME) {
        return Ok(Vec::new());
    }
    let ours = Who::Ours(Layers::Exact);
    // limitador's cached store is the same to Redis as its plain one.
    let others = PEERS.iter().copied().filter(|who| !matches!(who, Who::Zset | Who::LimitadorCached));
    let mut entrants: Vec<Entrant<'_>> = std::iter::once(ours)
        .chain(others)
        .map(|who| Entrant::new(who.name(), who.role(), move |_| by_requests(who)))
        .collect();
    entrants.push(Entrant::new(ZSET, Role::Peer, |_| by_log("number")));
    // As long as a UUID.
    entrants
        .push(Entrant::new(TEXT_MEMBERS, Role::Peer, |_| by_log("string.format('%.0f-', now) .. number")));
    let series = alternate(NAME, entrants, wanted.rounds.min(ROUNDS_MAX))?;
    let notes = vec![
        format!(
            "growth of used_memory on a fresh server, {KEYS} keys; the log holds {LOG_REQUESTS} requests of \
             each of {LOG_KEYS} keys, added with the script's own commands, many in one call"
        ),
        format!(
            "with {TEXT_MEMBERS} they are 36 characters, as long as the UUID that most descriptions of the \
             log advise; the members of {ZSET} are integers, which Redis packs; {GCRA} keeps one number as text"
        ),
    ];
    let base = Base::BestOf(&[TEXT_MEMBERS]);
    let plan = Plan { name: NAME, unit: "bytes a key", better: Better::Lower, base, notes };
    Ok(vec![Case::new(plan, &series)?])
}

/// One real request for every key.
fn by_requests(who: Who) -> Fallible<Measured> {
    let work = Work::Fill { callers: DEPTH, keys: KEYS };
    let setting = Setting { nodes: 1, allowance: Allowance::SLOW, work, expect: Expect::Allowed };
    let mut server = Server::start()?;
    let before = server.memory()?;
    let mut clients = Clients::ready(&setting.jobs(who, server.port))?;
    clients.go()?;
    let outcomes = clients.outcomes()?;
    let allowed: u64 = outcomes.iter().map(|one| one.allowed).sum();
    grown(&mut server, before, KEYS, u64::from(KEYS).saturating_sub(allowed))
}

/// The log as the script leaves it, without calling it a hundred times a key. The times differ as
/// those of real requests would.
fn by_log(member: &str) -> Fallible<Measured> {
    let text = format!(
        "local time = redis.call('TIME') \
         local now = time[1] * 1000000 + time[2] \
         for i = 1, tonumber(ARGV[2]) do \
           now = now + 1 \
           local number = ARGV[3] .. string.format('%03d', i) \
           redis.call('ZADD', KEYS[1], now, {member}) \
           redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
         end"
    );
    let script = Script::new(&text);
    let mut server = Server::start()?;
    let before = server.memory()?;
    script.load(server.control())?;
    for batch in 0..LOG_KEYS / BATCH {
        let mut calls = pipe();
        for number in batch * BATCH..(batch + 1) * BATCH {
            calls
                .cmd("EVALSHA")
                .arg(script.get_hash())
                .arg(1)
                .arg([KEY_PREFIX, Key::numbered(number).as_str()].concat())
                .arg(Allowance::SLOW.period_us() / 1_000)
                .arg(LOG_REQUESTS)
                // Without its last three digits, which the script appends: Lua's numbers are too
                // short for the whole.
                .arg(first_number(0) / 1_000 + u64::from(number))
                .ignore();
        }
        calls.query::<()>(server.control())?;
    }
    let any = [KEY_PREFIX, Key::numbered(LOG_KEYS / 2).as_str()].concat();
    let held: u32 = cmd("ZCARD").arg(any).query(server.control())?;
    if held != LOG_REQUESTS {
        return Err(format!("the log of a key holds {held} requests instead of {LOG_REQUESTS}").into());
    }
    grown(&mut server, before, LOG_KEYS, 0)
}

fn grown(server: &mut Server, before: (u64, u64), keys: u32, unanswered: u64) -> Fallible<Measured> {
    let (bytes, held) = server.memory()?;
    let forgotten = u64::from(keys).saturating_sub(held - before.1);
    let keys = f64::from(keys);
    Ok(Measured {
        value: bytes.saturating_sub(before.0) as f64 / keys,
        wrong: (forgotten + unanswered) as f64 / keys,
    })
}
