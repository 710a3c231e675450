//! The word that somebody meant.

use strsim::levenshtein;

/// ` (did you mean ...?)`, if one of the known words is close.
pub(crate) fn suggestion(word: &str, known: &[impl AsRef<str>]) -> String {
    // What the same thing is called elsewhere.
    let other = match plain(word).as_str() {
        "rate" | "quota" | "limits" | "permits" | "count" | "max" | "requests" => Some("limit"),
        "fallback" | "fallbackmethod" | "fallbackmethodname" | "defaultfallback" | "blockhandler"
        | "handler" | "orelse" | "else" | "onlimit" | "onrefused" | "error" => Some("otherwise"),
        "keys" | "per" | "cachekey" | "keyfunc" | "keyresolver" | "keygenerator" => Some("key"),
        "limittype" | "keytype" | "type" | "scope" => Some("by"),
        "resource" | "id" => Some("name"),
        "keyprefix" | "namespace" => Some("prefix"),
        "weight" | "units" | "tokens" | "requestedtokens" => Some("cost"),
        "client" | "addr" | "address" | "remote" => Some("ip"),
        _ => None,
    };
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let nearest = || {
        let near = known.iter().map(|known| (levenshtein(word, known), *known)).min();
        near.filter(|(distance, known)| *distance <= 2 && *distance < known.len()).map(|(_, known)| known)
    };
    match other.filter(|other| known.contains(other)).or_else(nearest) {
        Some(meant) => format!(" (did you mean `{meant}`?)"),
        None => String::new(),
    }
}

/// A limit whose text says what this word says elsewhere, where a limit is several options.
pub(crate) fn said_by_a_limit(word: &str) -> Option<&'static str> {
    Some(match plain(word).as_str() {
        "period" | "window" | "interval" | "rateinterval" | "duration" | "ttl" | "seconds" | "unit"
        | "timeunit" | "limitrefreshperiod" | "limitforperiod" => "10 per 60s",
        "permitspersecond" | "persecond" | "qps" | "rps" | "tps" | "replenishrate" => "10/s",
        "perminute" | "rpm" => "10/min",
        "burst" | "maxburst" | "maxburstseconds" | "burstcapacity" | "capacity" => "10/s burst 20",
        "wait" | "maxwait" | "maxwaitsecond" | "maxwaitseconds" | "timeout" | "timeoutduration" => {
            "10/s wait 1s"
        }
        "warmup" | "warmupperiod" => "10/s warmup 30s",
        "queue" | "queuelimit" => "leaky 10/s queue 20",
        "concurrent" | "concurrency" | "maxconcurrent" | "maxconcurrentcalls" => "10 concurrent",
        "algorithm" | "strategy" => "10 per 60s sliding-log",
        _ => return None,
    })
}

/// A word in one spelling: `maxBurst` is `max_burst`.
pub(crate) fn plain(word: &str) -> String {
    word.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted() {
        assert_eq!(levenshtein("limt", "limit"), 1);
        assert_eq!(levenshtein("", "key"), 3);
        assert_eq!(levenshtein("otherwize", "otherwise"), 1);
        assert_eq!(levenshtein("same", "same"), 0);
    }

    #[test]
    fn only_close_words_are_suggested() {
        let known = ["limit", "key", "by"];
        assert_eq!(suggestion("limt", &known), " (did you mean `limit`?)");
        assert_eq!(suggestion("rate", &known), " (did you mean `limit`?)");
        assert_eq!(suggestion("banana", &known), "");
        assert_eq!(suggestion("xy", &["by"]), " (did you mean `by`?)");
        assert_eq!(suggestion("zz", &["by"]), "");
    }

    #[test]
    fn words_of_annotations_are_known() {
        let known = ["limit", "key", "by", "otherwise", "name"];
        let meant = |word| suggestion(word, &known);
        assert_eq!(meant("blockHandler"), " (did you mean `otherwise`?)");
        assert_eq!(meant("fallback_method"), " (did you mean `otherwise`?)");
        assert_eq!(meant("limitType"), " (did you mean `by`?)");
        assert_eq!(said_by_a_limit("permitsPerSecond"), Some("10/s"));
        assert_eq!(said_by_a_limit("max_wait_second"), Some("10/s wait 1s"));
        assert_eq!(said_by_a_limit("limit"), None);
        for example in ["period", "qps", "rpm", "burst", "wait", "warmup", "queue", "concurrency", "strategy"]
        {
            let limit = said_by_a_limit(example).unwrap().parse::<tidegate_limit::Limit>();
            assert!(limit.is_ok(), "{example}: {limit:?}");
        }
    }
}
