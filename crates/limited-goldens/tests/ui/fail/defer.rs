#![allow(unused)]
use std::rc::Rc;
use std::sync::Arc;
use tidegate::limited;

struct Shop;

struct Answer;

#[limited("5/s", otherwise = defer(keys = id))]
async fn unknown(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer(key = id, key = id))]
async fn twice(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer(key = order))]
async fn no_argument(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer(deadline = "soon"))]
async fn deadline(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer(deadline = 3600))]
async fn deadline_number(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer(priority = 10))]
async fn priority(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer(method = id))]
async fn method(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer.await)]
async fn awaited(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer)]
fn not_async(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer)]
async fn no_result(id: u64) {}

#[limited("5/s", otherwise = defer)]
fn a_future(id: u64) -> impl Future<Output = Result<(), Answer>> {
    async move { todo!() }
}

#[limited("5/s", otherwise = defer)]
async fn generic<T>(id: T) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer)]
async fn generic_argument(id: impl ToString) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer)]
async fn apart((id, _): (u64, u64)) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer)]
async fn changes(id: &mut u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer)]
async fn borrows_inside(note: Option<&str>) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", by = user, otherwise = defer)]
async fn by_caller(id: u64) -> Result<(), Answer> {
    todo!()
}

#[limited("5/s", otherwise = defer)]
async unsafe fn unsafe_one(id: u64) -> Result<(), Answer> {
    todo!()
}

impl Shop {
    #[limited("5/s", otherwise = defer)]
    async fn owned(self, id: u64) -> Result<(), Answer> {
        todo!()
    }

    #[limited("5/s", otherwise = defer)]
    async fn changed(&mut self, id: u64) -> Result<(), Answer> {
        todo!()
    }

    #[limited("5/s", otherwise = defer)]
    async fn counted(self: Rc<Self>, id: u64) -> Result<(), Answer> {
        todo!()
    }
}

trait Ships {
    async fn ship(&self, id: u64) -> Result<(), Answer>;
}

#[limited("5/s", otherwise = defer)]
impl Ships for Shop {
    async fn ship(&self, id: u64) -> Result<(), Answer> {
        todo!()
    }
}

struct Desk;

#[limited("5/s", otherwise = defer(method = "desk"))]
impl Desk {
    async fn sell(&self, id: u64) -> Result<(), Answer> {
        todo!()
    }

    async fn take_back(&self, id: u64) -> Result<(), Answer> {
        todo!()
    }

    #[limited(off)]
    fn look(&self) {}
}

fn main() {}
