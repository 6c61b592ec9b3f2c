//! Globs of the blacklist, over `/<namespace>/<name>`.

/// Whether `glob` matches all of `text`: `*` stands for any run of characters, `/` included, and `?`
/// for one character; every other character stands for itself.
pub fn matches(glob: &str, text: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut g, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                g += 1;
                t += 1;
            }
            _ => {
                // Let the last star take one character more.
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                g = at + 1;
                t = from + 1;
            }
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_crosses_slashes_and_names_match_whole() {
        assert!(matches("/system/*", "/system/metrics"));
        assert!(matches("/system/*", "/system/a/b"));
        assert!(!matches("/system/*", "/systemx/topic"));
        assert!(!matches("/system/*", "/production/metrics"));
        assert!(matches("/default/critical-*", "/default/critical-orders"));
        assert!(matches("/default/orders", "/default/orders"));
        assert!(!matches("/default/orders", "/default/orders2"));
        assert!(matches("*", "/a/b") && matches("*/b", "/a/b") && !matches("", "/a/b"));
        assert!(matches("/a/?*c", "/a/bcc") && !matches("/a/?c", "/a/c"));
    }
}
