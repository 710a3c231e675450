//! The word that somebody meant.

/// ` (did you mean ...?)`, if one of the known words is close.
pub(crate) fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    // What the same thing is called elsewhere.
    let other = match word {
        "rate" | "quota" | "limits" | "permits" => Some("limit"),
        "fallback" | "or_else" | "else" | "on_limit" | "error" => Some("otherwise"),
        "keys" | "per" => Some("key"),
        "weight" | "units" | "tokens" => Some("cost"),
        "client" | "addr" | "address" | "remote" => Some("ip"),
        _ => None,
    };
    let known: Vec<&str> = known.collect();
    let nearest = || {
        let near = known.iter().map(|known| (distance(word, known), *known)).min();
        near.filter(|(distance, known)| *distance <= 2 && *distance < known.len()).map(|(_, known)| known)
    };
    match other.filter(|other| known.contains(other)).or_else(nearest) {
        Some(meant) => format!(" (did you mean `{meant}`?)"),
        None => String::new(),
    }
}

/// Letters to add, drop or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted() {
        assert_eq!(distance("limt", "limit"), 1);
        assert_eq!(distance("", "key"), 3);
        assert_eq!(distance("otherwize", "otherwise"), 1);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn only_close_words_are_suggested() {
        let known = ["limit", "key", "by"];
        assert_eq!(suggestion("limt", known.into_iter()), " (did you mean `limit`?)");
        assert_eq!(suggestion("rate", known.into_iter()), " (did you mean `limit`?)");
        assert_eq!(suggestion("banana", known.into_iter()), "");
        assert_eq!(suggestion("xy", ["by"].into_iter()), " (did you mean `by`?)");
        assert_eq!(suggestion("zz", ["by"].into_iter()), "");
    }
}
