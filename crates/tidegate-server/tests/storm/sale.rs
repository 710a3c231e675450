//! A sale in this process, over real HTTP: the contract at its smallest, and ways to break it.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::Instant;

const SECRET: [u8; 32] = [0xa7; 32];
pub(crate) const GOODS: &str = "phone-15";

/// How the sale behaves; by default honest, with nothing to sell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ways {
    pub(crate) stock: u64,
    /// So many asks of each user are refused with 429 and `Retry-After: 1`.
    pub(crate) refuses_first: usize,
    /// No path is given before this has passed since the first ask.
    pub(crate) stalls: Duration,
    /// The connection breaks after each user's order was placed, before it is answered.
    pub(crate) loses_first_answer: bool,
    /// The second order gets the first one's number.
    pub(crate) gives_a_number_twice: bool,
    /// Paths are given out to everybody, whatever the rate that it tells.
    pub(crate) tells_a_rate: Option<&'static str>,
    /// Whoever repeats an order is refused.
    pub(crate) refuses_on_repeat: bool,
    /// Whoever repeats an order gets another number.
    pub(crate) changes_on_repeat: bool,
    /// The first order is in no book, though the books add up.
    pub(crate) forgets_an_order: bool,
    /// The books have one unit too many.
    pub(crate) miscounts: bool,
    /// Orders cannot be looked up.
    pub(crate) knows_no_order: bool,
    /// Success, without anything in it.
    pub(crate) says_nothing: bool,
}

#[derive(Default)]
struct Books {
    first_ask: Option<Instant>,
    asks: HashMap<String, Vec<Instant>>,
    /// By path, as every path is for one order.
    orders: HashMap<String, String>,
    numbers: u64,
}

struct Shared {
    ways: Ways,
    books: Mutex<Books>,
}

/// A running sale, and the folder with its secret.
pub(crate) struct Sale {
    pub(crate) url: String,
    folder: TempDir,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

impl Sale {
    pub(crate) fn start(ways: Ways) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(Shared { ways, books: Mutex::default() });
        let router = axum::Router::new()
            .route("/randomPath", get(path))
            .route("/{path}/decrStock", post(order))
            .route("/orders/{number}", get(look_up))
            .route("/sale/{goods}", get(shown))
            .route("/sale/{goods}/books", get(books))
            .with_state(shared.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "a7".repeat(32)).unwrap();
        Self { url, folder, shared, _runtime: runtime }
    }

    /// `tidegate storm` on this sale.
    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = tidegate();
        command.args(["--url", &self.url, "--goods", GOODS, "--data"]).arg(self.folder.path());
        command.args(args.split_whitespace()).current_dir(self.folder.path());
        command
    }

    /// Runs it to its end, with `--json`.
    pub(crate) fn storm(&self, args: &str) -> Told {
        let output = self.command(args).args(["--json", "storm.json"]).output().unwrap();
        let file = std::fs::read_to_string(self.folder.path().join("storm.json")).unwrap();
        Told { json: serde_json::from_str(&file).unwrap_or_default(), ..Told::of(output) }
    }

    /// When each user asked for a path.
    pub(crate) fn asks(&self) -> Vec<Vec<Instant>> {
        self.shared.books.lock().unwrap().asks.values().cloned().collect()
    }
}

/// `tidegate storm`, knowing nothing of where the tests run.
pub(crate) fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("storm").env_remove("TIDEGATE_SALE_SECRET").env_remove("TIDEGATE_ADMIN_TOKEN");
    command.stdin(Stdio::null());
    command
}

/// What the program said.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) json: Value,
}

impl Told {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().expect("it ends by itself");
        Self { code, out: text(output.stdout), err: text(output.stderr), json: Value::Null }
    }

    /// A number in the report, by its pointer.
    #[track_caller]
    pub(crate) fn number(&self, pointer: &str) -> u64 {
        self.json.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {self:?}"))
    }

    /// How many answers had this code.
    pub(crate) fn answers(&self, code: u64) -> u64 {
        let all = self.json["answers"].as_array().unwrap().iter();
        all.filter(|row| row["code"] == code).map(|row| row["count"].as_u64().unwrap()).sum()
    }
}

fn say(status: u16, code: u32, data: impl serde::Serialize) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    let body = Json(json!({ "code": code, "message": "as it is", "data": data }));
    (status, [(header::CACHE_CONTROL, "no-store")], body).into_response()
}

/// Who it is, by a token that is checked with other code than it was made with.
fn user(headers: &HeaderMap) -> Option<String> {
    let token = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer v1.")?;
    let [user, expiry, signature] = token.split('.').collect::<Vec<_>>()[..] else { return None };
    let user = String::from_utf8(URL_SAFE_NO_PAD.decode(user).ok()?).ok()?;
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&SECRET).unwrap();
    mac.update(format!("tidegate user v1\0{user}\0{expiry}").as_bytes());
    mac.verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    Some(user)
}

type Params = Query<HashMap<String, String>>;

async fn path(State(sale): State<Arc<Shared>>, Query(params): Params, headers: HeaderMap) -> Response {
    let Some(user) = user(&headers) else { return say(401, 40101, ()) };
    assert_eq!(params["goodsId"], GOODS);
    let ways = sale.ways;
    let (opens, asked, is_sold_out) = {
        let mut books = sale.books.lock().unwrap();
        let opens = *books.first_ask.get_or_insert_with(Instant::now) + ways.stalls;
        let asks = books.asks.entry(user.clone()).or_default();
        asks.push(Instant::now());
        (opens, asks.len(), books.orders.len() as u64 >= ways.stock)
    };
    tokio::time::sleep_until(opens).await;
    if asked <= ways.refuses_first {
        let mut response = say(429, 42901, json!({ "retry_after_ms": 900 }));
        response.headers_mut().insert(header::RETRY_AFTER, 1.into());
        return response;
    }
    match (ways.says_nothing, is_sold_out) {
        (true, _) => say(200, 200, ()),
        (_, true) => say(410, 41001, ()),
        _ => say(200, 200, format!("path_{user}")),
    }
}

async fn order(
    State(sale): State<Arc<Shared>>,
    Path(path): Path<String>,
    Query(params): Params,
    headers: HeaderMap,
) -> Response {
    let Some(user) = user(&headers) else { return say(401, 40101, ()) };
    if path != format!("path_{user}") {
        return say(404, 40402, ());
    }
    assert_eq!((params["goodsId"].as_str(), params["decrStock"].as_str()), (GOODS, "1"));
    let (number, is_new) = {
        let mut books = sale.books.lock().unwrap();
        match books.orders.get(&path).cloned() {
            Some(_) if sale.ways.refuses_on_repeat => return say(404, 40402, ()),
            Some(number) if sale.ways.changes_on_repeat => (format!("{number}b"), false),
            Some(number) => (number, false),
            None if books.orders.len() as u64 >= sale.ways.stock => return say(410, 41001, ()),
            None => {
                books.numbers += 1;
                let is_double = sale.ways.gives_a_number_twice && books.numbers == 2;
                let number = format!("{GOODS}-1-{}", if is_double { 1 } else { books.numbers });
                books.orders.insert(path, number.clone());
                (number, true)
            }
        }
    };
    if is_new && sale.ways.loses_first_answer {
        // The server ends a connection whose handler panics; said silently.
        std::panic::resume_unwind(Box::new(()));
    }
    say(200, 200, number)
}

async fn look_up(
    State(sale): State<Arc<Shared>>,
    Path(number): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(user) = user(&headers) else { return say(401, 40101, ()) };
    let books = sale.books.lock().unwrap();
    if sale.ways.knows_no_order || books.orders.get(&format!("path_{user}")) != Some(&number) {
        return say(404, 40403, ());
    }
    say(
        200,
        200,
        json!({ "order_sn": number, "goods_id": GOODS, "quantity": 1, "state": "placed", "reason": null }),
    )
}

async fn shown(State(sale): State<Arc<Shared>>) -> Response {
    match sale.ways.tells_a_rate {
        Some(rate) => say(200, 200, json!({ "goods": GOODS, "rate": rate })),
        None => say(404, 40401, ()),
    }
}

async fn books(State(sale): State<Arc<Shared>>, Path(goods): Path<String>) -> Response {
    if goods != GOODS {
        return say(404, 40401, ());
    }
    let (ways, orders) = (sale.ways, sale.books.lock().unwrap().orders.len() as u64);
    let placed = orders.saturating_sub(u64::from(ways.forgets_an_order));
    let left = ways.stock - placed + u64::from(ways.miscounts && orders > 0);
    say(
        200,
        200,
        json!({
            "total": ways.stock, "placed": placed, "in_flight": 0, "left": left, "returned": 0, "dead": 0,
            "balanced": true, "state": "open", "reason": null, "epoch": 1,
        }),
    )
}
