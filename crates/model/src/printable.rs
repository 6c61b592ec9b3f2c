//! Text of others as a message may show it.

/// The text on one line: characters that move a cursor or end a line are shown as escapes.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_moves_a_cursor_is_escaped() {
        assert_eq!(printable("'größe' is 1\"\\"), "'größe' is 1\"\\");
        assert_eq!(printable("a\nb\r\t\u{1b}[2J\0\u{85}"), "a\\nb\\r\\t\\u{1b}[2J\\0\\u{85}");
    }
}
