//! The known name that a misspelt one is nearest to.

/// How alike a known name must be to be offered for an unknown one.
const ALIKE: f64 = 0.85;
/// Longest name that is compared: comparing takes time by the square of the length.
const MAX_NAME: usize = 64;

/// Returns the one of `known` most like `name`, if any is like it at all.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let name = name.to_lowercase();
    let close = |known: &str| {
        let steps = strsim::damerau_levenshtein(&name, known);
        let alike = strsim::jaro_winkler(&name, known);
        (steps <= known.len() / 3 || alike >= ALIKE).then_some((steps, alike))
    };
    let mut best: Option<((usize, f64), &str)> = None;
    for known in known.iter().filter(|k| k.len() <= MAX_NAME) {
        let Some(found) = close(known) else { continue };
        let better = best.is_none_or(|(b, _)| found.0 < b.0 || found.0 == b.0 && found.1 > b.1);
        if better {
            best = Some((found, known));
        }
    }
    best.map(|(_, known)| known)
}

/// Names an unknown key, and the nearest known one or else all that are known.
pub fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("unknown key `{name}`; did you mean `{nearest}`?"),
        None if known.is_empty() => format!("unknown key `{name}`; none is known here"),
        None => format!("unknown key `{name}`; known here: {}", known.join(", ")),
    }
}

/// Words in quotes, with commas between.
pub fn list(words: &[&str]) -> String {
    words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_the_nearest() {
        let known = ["idle", "handshake", "drain", "connections", "connections_per_source"];
        assert_eq!(nearest("idel", &known), Some("idle"));
        assert_eq!(nearest("Connection", &known), Some("connections"));
        assert_eq!(nearest("zzz", &known), None);
        assert_eq!(nearest(&"idle".repeat(40), &known), None);
    }

    #[test]
    fn an_unknown_key_like_none_lists_those_that_are_known() {
        assert_eq!(
            unknown("zzz", &["idle", "drain"]),
            "unknown key `zzz`; known here: idle, drain"
        );
        assert_eq!(unknown("zzz", &[]), "unknown key `zzz`; none is known here");
    }
}
