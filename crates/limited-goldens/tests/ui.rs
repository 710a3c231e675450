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

/// The attribute cannot depend on the journal, so the figure stands in both.
#[test]
fn a_name_is_as_long_as_the_journal_lets_it_be() {
    let of_the_attribute = include_str!("../../tidegate-macros/src/deferral.rs");
    let line = format!("const METHOD_MAX: usize = {};", tidegate_journal::METHOD_MAX);
    assert!(of_the_attribute.contains(&line), "{line}");
}
