//! Stands in for rocksdb. limitador 0.14 with `redis_storage` alone does not compile: its keys are
//! encoded by a module that only `disk_storage` brings along, and that needs rocksdb, a C++
//! library of many minutes and a clang. The bench never opens a disk store, so here are the names
//! that limitador's disk store uses, and a database that cannot be opened.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::Path;

pub type DB = DBWithThreadMode<MultiThreaded>;

pub struct MultiThreaded;

/// Cannot exist: none can be opened.
pub struct DBWithThreadMode<T>(Infallible, PhantomData<T>);

type Entry = Result<(Box<[u8]>, Box<[u8]>), Error>;

impl<T> DBWithThreadMode<T> {
    pub fn open<P: AsRef<Path>>(_: &Options, _: P) -> Result<Self, Error> {
        Err(Error)
    }

    pub fn get<K: AsRef<[u8]>>(&self, _: K) -> Result<Option<Vec<u8>>, Error> {
        match self.0 {}
    }

    pub fn delete<K: AsRef<[u8]>>(&self, _: K) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn merge<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, _: K, _: V) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn prefix_iterator<P: AsRef<[u8]>>(&self, _: P) -> std::vec::IntoIter<Entry> {
        match self.0 {}
    }

    pub fn iterator(&self, _: IteratorMode) -> std::vec::IntoIter<Entry> {
        match self.0 {}
    }
}

#[derive(Default)]
pub struct Options;

impl Options {
    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision + Send + 'static,
    {
    }

    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>> + Send + Sync + 'static,
    {
    }

    pub fn create_if_missing(&mut self, _: bool) {}
}

pub struct MergeOperands(Vec<Vec<u8>>);

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Vec<u8>>, fn(&'a Vec<u8>) -> &'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(Vec::as_slice)
    }
}

pub enum CompactionDecision {
    Keep,
    Remove,
}

pub enum DBCompressionType {
    None,
    Bz2,
}

pub enum IteratorMode {
    Start,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ErrorKind {
    TimedOut,
    TryAgain,
    NotSupported,
}

#[derive(Debug)]
pub struct Error;

impl Error {
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::NotSupported
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this build has no rocksdb")
    }
}

impl std::error::Error for Error {}
