//! The paths of functions, as the compiler calls them and as people read them.

/// The name under which calls of a function are deferred, from the path of an item in it or in one
/// that was generated beside it.
pub fn deferred_function(item: &str) -> String {
    shortened(tidy(item))
}

/// The same of a method. Its type is whole, so that `Desk<u8>` and `Desk<u16>` are two.
pub fn deferred_method(type_name: &str, method: &str) -> String {
    deferred_function(&format!("{type_name}::{method}::_"))
}

/// The path of the function beside which one was generated: of `sell` for `__tidegate_sell_gate`.
fn original(path: &str) -> Option<String> {
    let (parent, generated) = path.rsplit_once("::")?;
    let (function, _) = generated.strip_prefix("__tidegate_")?.rsplit_once('_')?;
    Some(format!("{parent}::{function}"))
}

/// `shop::Desk::sell` from what the compiler calls an item inside of it. A path that cannot
/// be distinguished from all others in letters that a gate's name may have (`&Desk`, `fn 买`) begins
/// with a digest of the whole.
pub(super) fn tidy(item: &str) -> String {
    let path = item.rsplit_once("::").map_or(item, |(path, _)| path);
    // The body of an async function is a closure of it. One further left is another function.
    let path = path.trim_end_matches("::{{closure}}");
    let path = &original(path).unwrap_or_else(|| path.into());
    let is_inside_a_closure = path.contains("::{{closure}}");
    // In `<A as B>::c`, `a::<impl A>::c` and `A<_>::c` the brackets add nothing.
    let mut words = path.strip_prefix('<').unwrap_or(path).to_string();
    for (long, short) in [
        ("::{{closure}}", ""),
        ("::<impl ", "::impl-"),
        (" as ", "/"),
        (" for ", "-for-"),
        ("'_, ", ""),
        ("<'_>", ""),
        ("<_>", ""),
        ("<_, _>", ""),
        (", ", "--"),
    ] {
        words = words.replace(long, short);
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    let is_exact = !is_inside_a_closure && words.chars().all(|c| is_plain(c) || "<>".contains(c));
    let out = words.replace('>', "").replace(|c| !is_plain(c), "-");
    if is_exact { out } else { format!("{:016x}-{out}", crate::key::digest(path.as_bytes())) }
}

/// A name that fits a gate: a longer one keeps its end, its most specific part, and is
/// made unique by a digest that is the same in every process.
pub(super) fn shortened(name: String) -> String {
    if name.len() <= tidegate_limit::NAME_MAX {
        return name;
    }
    let digest = crate::key::digest(name.as_bytes());
    let end = &name[name.len() - (tidegate_limit::NAME_MAX - 17)..];
    format!("{digest:016x}-{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_a_reader_would_write() {
        assert_eq!(tidy("shop::desk::sell::item"), "shop::desk::sell");
        assert_eq!(tidy("shop::sell::{{closure}}::item"), "shop::sell");
        assert_eq!(tidy("<shop::Desk as shop::Sells>::sell::item"), "shop::Desk/shop::Sells::sell");
        assert_eq!(tidy("shop::<impl shop::Desk<_>>::sell::item"), "shop::impl-shop::Desk::sell");
        assert_eq!(tidy("shop::Two<_, _>::sell::item"), "shop::Two::sell");
        assert_eq!(tidy("shop::Desk<'_>::sell::item"), "shop::Desk::sell");
        assert_eq!(tidy("<Vec<_> as shop::Sells<u8>>::sell::item"), "Vec/shop::Sells-u8::sell");
        assert_eq!(tidy("shop::Desk<u8, Box<u16>>::sell::item"), "shop::Desk-u8--Box-u16::sell");
    }

    #[test]
    fn what_is_generated_beside_a_function_has_its_path() {
        for (item, function) in [
            ("shop::desk::__tidegate_sell_gate::item", "shop::desk::sell"),
            ("shop::__tidegate_sell_gate::{{closure}}::item", "shop::sell"),
            ("shop::__tidegate_sell_one_gate::item", "shop::sell_one"),
            (
                "shop::buy::{{closure}}::__tidegate_sell_gate::{{closure}}::item",
                "shop::buy::{{closure}}::sell",
            ),
            ("shop::Desk<_>::__tidegate_sell_gate::item", "shop::Desk<_>::sell"),
        ] {
            assert_eq!(tidy(item), tidy(&format!("{function}::item")), "{item}");
        }
        assert_eq!(deferred_function("shop::__tidegate_sell_method::item"), "shop::sell");
        assert_eq!(deferred_method("shop::Desk<u8>", "sell"), "shop::Desk-u8::sell");
    }

    #[test]
    fn no_two_paths_become_the_same() {
        let paths = [
            "<shop::Desk as shop::Sells>::sell::item",
            "<&shop::Desk as shop::Sells>::sell::item",
            "<&mut shop::Desk as shop::Sells>::sell::item",
            "<[shop::Desk] as shop::Sells>::sell::item",
            "<(shop::Desk,) as shop::Sells>::sell::item",
            "<shop::DeskT as shop::Sells>::sell::item",
            "<shop::Desk<T> as shop::Sells>::sell::item",
            "<shop::Desk as shop::Sells<u8>>::sell::item",
            "<shop::Desk as shop::Sells<u16>>::sell::item",
            "shop::Pair<A<B>, C>::sell::item",
            "shop::Pair<A, B<C>>::sell::item",
            "shop::买::item",
            "shop::卖::item",
            "shop::sell::g::item",
            "shop::sell::{{closure}}::g::item",
        ];
        let mut names: Vec<String> = paths.iter().map(|path| tidy(path)).collect();
        assert!(names.iter().all(|name| tidegate_limit::is_gate_name(&shortened(name.clone()))), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), paths.len(), "{names:?}");
        assert!(tidy(paths[1]).ends_with("-shop::Desk/shop::Sells::sell"), "{}", tidy(paths[1]));
    }

    #[test]
    fn a_long_name_becomes_a_gates_name_and_stays_apart_from_its_neighbour() {
        let long = |end: &str| shortened(format!("{}::{end}", "module::".repeat(20)));
        for name in [long("sell"), long("buy")] {
            assert!(tidegate_limit::is_gate_name(&name), "{name}");
        }
        assert_ne!(long("sell"), long("buy"));
        assert!(long("sell").ends_with("::sell"));
        assert_ne!(shortened(format!("a{}", "x".repeat(64))), shortened(format!("b{}", "x".repeat(64))));
    }
}
