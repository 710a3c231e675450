//! What the compiler says: the words of every error that the attribute has, where it
//! points, and what compiles without one.
//!
//! `TRYBUILD=overwrite cargo test -p limited-goldens` writes the expected texts anew.

#[test]
fn errors_say_what_to_write() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
