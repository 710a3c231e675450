//! Methods that a rule can name, and what to write instead of one that no request has.
//!
//! A method is any token, so a typo (`PSOT`) is a method too, but no request has it. So a rule can
//! name the methods that are registered; others need a prefix (`extension:FETCH`).

/// The methods of RFC 9110, and PATCH.
pub(crate) const COMMON: [&str; 9] =
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE"];

/// The others of IANA's registry, and `PURGE`, which caches understand. Without `PRI`, which begins a
/// connection and is not a request.
const OTHERS: &str = "\
    QUERY PURGE ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR \
    MKCOL MKREDIRECTREF MKWORKSPACE MOVE ORDERPATCH PROPFIND PROPPATCH REBIND REPORT SEARCH UNBIND UNCHECKOUT \
    UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL";

/// All that are known, most common first.
fn known() -> impl Iterator<Item = &'static str> {
    COMMON.into_iter().chain(OTHERS.split(' '))
}

/// The prefix of a method that is not registered.
const EXTENSION: &str = "extension:";

/// How many letters a typo may have wrong.
const TYPO_MAX: usize = 2;

/// Reads `POST` or `extension:FETCH`.
///
/// # Errors
/// If no request has this method, with what to write.
pub(crate) fn parse(text: &str) -> Result<Box<str>, String> {
    if let Some(name) = text.strip_prefix(EXTENSION) {
        return match is_token(name) {
            true => Ok(name.into()),
            false => Err(format!("`{name}` is not a method: write letters, as in `{EXTENSION}FETCH`")),
        };
    }
    if known().any(|known| known == text) {
        return Ok(text.into());
    }
    let capitals = text.to_ascii_uppercase();
    if matches!(&*capitals, "*" | "ANY" | "ALL") {
        return Err(format!("`{text}` is not a method: leave it out to mean any, as in `/orders`"));
    }
    if known().any(|known| known == capitals) {
        return Err(format!("methods are written in capitals: write `{capitals}`"));
    }
    if text.contains([',', '|']) {
        return Err(format!("`{text}` is not a method: call `on` once for each method"));
    }
    let own = match is_token(text) {
        true => format!("; for a method of your own write `{EXTENSION}{text}`"),
        false => String::new(),
    };
    let instead = nearest(&capitals).map_or(String::new(), |near| format!(": write `{near}`"));
    Err(format!("`{text}` is not a registered method{instead}{own}"))
}

/// True for what a method can be (RFC 9110, 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_part)
}

/// True if a text without a path is meant as a method, also in lower case.
pub(crate) fn is_meant(text: &str) -> bool {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    // The other methods are words in paths as well: `search`, `update`.
    is_word || text.starts_with(EXTENSION) || COMMON.contains(&&*text.to_ascii_uppercase())
}

/// The known method that differs least, if that is little.
fn nearest(text: &str) -> Option<&'static str> {
    let distances = known().map(|known| (strsim::osa_distance(text, known), known));
    // Of a short word, two letters are most of it.
    let near = |(distance, known): &(usize, &str)| *distance <= TYPO_MAX && *distance * 2 <= known.len();
    distances.filter(near).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_method_is_one() {
        for known in known() {
            assert_eq!(&*parse(known).unwrap(), known);
        }
        assert_eq!(&*parse("extension:FETCH").unwrap(), "FETCH");
        assert_eq!(&*parse("extension:fetch").unwrap(), "fetch");
    }

    #[test]
    fn a_typo_is_reported_with_the_nearest_method() {
        for (typo, near) in [
            ("PSOT", "POST"),
            ("POTS", "POST"),
            ("GTE", "GET"),
            ("DELTE", "DELETE"),
            ("PACTH", "PATCH"),
            ("OPTION", "OPTIONS"),
            ("PROPFIN", "PROPFIND"),
        ] {
            let error = parse(typo).unwrap_err();
            let says =
                format!("`{typo}` is not a registered method: write `{near}`; for a method of your own");
            assert!(error.starts_with(&says), "{error}");
            assert!(error.ends_with(&format!("write `extension:{typo}`")), "{error}");
        }
        let far = parse("FROBNICATE").unwrap_err();
        assert!(far.starts_with("`FROBNICATE` is not a registered method; for a method"), "{far}");
    }

    #[test]
    fn what_other_routers_write_is_reported_with_ours() {
        for (text, says) in [
            ("post", "in capitals: write `POST`"),
            ("Get", "in capitals: write `GET`"),
            ("ANY", "leave it out"),
            ("*", "leave it out"),
            ("all", "leave it out"),
            ("GET,POST", "once for each method"),
            ("GET|POST", "once for each method"),
            ("extension:", "is not a method"),
            ("extension:A B", "is not a method"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
