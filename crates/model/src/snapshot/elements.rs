//! A JSON document taken apart while it is read: its fields, and the elements of its large arrays,
//! one at a time. What lies between two braces is left to the JSON parser.

use std::io::Read;

use serde::de::DeserializeOwned;

use super::SnapshotError;

pub(super) struct Elements<R> {
    input: R,
    /// The least that is asked of the reader at once, bytes.
    piece: usize,
    buffer: Vec<u8>,
    /// Where the next byte is in the buffer.
    at: usize,
    ended: bool,
    /// Line and column, from 0, of the buffer's start.
    start: (usize, usize),
}

impl<R: Read> Elements<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, piece: 1024 * 1024, buffer: Vec::new(), at: 0, ended: false, start: (0, 0) }
    }

    /// Calls `each` with the name of every field of the object that the document is; it reads the
    /// field's value.
    pub(super) fn fields(
        &mut self,
        mut each: impl FnMut(&mut Self, String) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        if self.peek()? != Some(b'{') {
            return Err(self.unexpected(".", "an object"));
        }
        self.at += 1;
        let mut more = self.peek()? != Some(b'}');
        while more {
            if self.peek()? != Some(b'"') {
                return Err(self.unexpected(".", "a field's name in quotes"));
            }
            let name: String = self.value(|| ".".to_owned())?;
            if self.peek()? != Some(b':') {
                return Err(self.unexpected(&name, "':'"));
            }
            self.at += 1;
            each(self, name)?;
            more = self.goes_on(".", b'}')?;
        }
        self.at += 1;
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err(self.unexpected(".", "the end of the document")),
        }
    }

    /// Calls `each` with the number of every element of an array; it reads the element.
    pub(super) fn array(
        &mut self,
        name: &str,
        mut each: impl FnMut(&mut Self, usize) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        if self.peek()? != Some(b'[') {
            return Err(self.unexpected(name, "an array"));
        }
        self.at += 1;
        let mut more = self.peek()? != Some(b']');
        let mut number = 0;
        while more {
            each(self, number)?;
            number += 1;
            more = self.goes_on(name, b']')?;
        }
        self.at += 1;
        Ok(())
    }

    /// Reads one value; `path` names it in the document.
    pub(super) fn value<T: DeserializeOwned>(
        &mut self,
        path: impl Fn() -> String,
    ) -> Result<T, SnapshotError> {
        while self.peek()?.is_some() {
            let rest = &self.buffer[self.at..];
            let mut parser = serde_json::Deserializer::from_slice(rest).into_iter();
            let value = parser.next();
            let length = parser.byte_offset();
            match value {
                // Up to the last byte read, it might go on.
                Some(Ok(value)) if length < rest.len() || self.ended => {
                    self.at += length;
                    return Ok(value);
                }
                Some(Err(e)) if self.ended || !e.is_eof() => return Err(self.fault::<T>(path())),
                _ => drop(self.fill()?),
            }
        }
        Err(self.unexpected(&path(), "a value"))
    }

    /// Whether another element follows, with the comma before it read.
    fn goes_on(&mut self, path: &str, close: u8) -> Result<bool, SnapshotError> {
        match self.peek()? {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => Ok(false),
            _ => Err(self.unexpected(path, &format!("',' or '{}'", char::from(close)))),
        }
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Result<Option<u8>, SnapshotError> {
        loop {
            let rest = &self.buffer[self.at..];
            match rest.iter().position(|b| !b.is_ascii_whitespace()) {
                Some(blanks) => {
                    self.at += blanks;
                    return Ok(self.buffer.get(self.at).copied());
                }
                None => self.at = self.buffer.len(),
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Reads on, and lets go of what is done with. False at the end.
    fn fill(&mut self) -> Result<bool, SnapshotError> {
        if self.ended {
            return Ok(false);
        }
        self.start = self.position();
        self.buffer.drain(..self.at);
        self.at = 0;
        // A large value is begun again with every piece, so the pieces grow with it.
        let size = self.piece.max(self.buffer.len());
        let piece = (&mut self.input).take(size as u64).read_to_end(&mut self.buffer);
        let read = piece.map_err(|e| SnapshotError::at(".", format!("cannot be read: {e}")))?;
        self.ended = read == 0;
        Ok(!self.ended)
    }

    /// Line and column, from 0, of the next byte.
    fn position(&self) -> (usize, usize) {
        let done = &self.buffer[..self.at];
        let (line, column) = self.start;
        match done.iter().rposition(|b| *b == b'\n') {
            None => (line, column + done.len()),
            Some(last) => {
                let lines = done.iter().filter(|b| **b == b'\n').count();
                (line + lines, done.len() - last - 1)
            }
        }
    }

    fn unexpected(&self, path: &str, expected: &str) -> SnapshotError {
        let (line, column) = self.position();
        let found = match self.buffer.get(self.at) {
            None => "the document ends".to_owned(),
            Some(byte) => format!("found '{}'", byte.escape_ascii()),
        };
        let place = format!("at line {} column {}", line + 1, column + 1);
        SnapshotError::at(path, format!("{found}, expected {expected} {place}"))
    }

    /// What is wrong with the value that begins here, which the parser refused.
    fn fault<T: DeserializeOwned>(&self, path: String) -> SnapshotError {
        let mut parser = serde_json::Deserializer::from_slice(&self.buffer[self.at..]);
        let Err(e) = serde_path_to_error::deserialize::<_, T>(&mut parser) else {
            return self.unexpected(&path, "a value alone");
        };
        let (inner, error) = (e.path().to_string(), e.into_inner());
        let whole = match inner.as_str() {
            "." => path,
            _ if path == "." => inner,
            index if index.starts_with('[') => format!("{path}{index}"),
            field => format!("{path}.{field}"),
        };
        let text = error.to_string();
        let local = format!(" at line {} column {}", error.line(), error.column());
        let Some(text) = text.strip_suffix(&local) else {
            return SnapshotError::at(whole, text);
        };
        let (line, column) = self.position();
        let column = if error.line() == 1 { column + error.column() } else { error.column() };
        let place = format!("at line {} column {column}", line + error.line());
        SnapshotError::at(whole, format!("{text} {place}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The document read in pieces, and put together again.
    fn whole(text: &str, piece: usize) -> Result<Value, SnapshotError> {
        let mut all = serde_json::Map::new();
        let mut elements = Elements { piece, ..Elements::new(text.as_bytes()) };
        elements.fields(|elements, name| {
            let mut list = Vec::new();
            if name == "list" {
                elements.array(&name, |elements, i| {
                    list.push(elements.value::<Value>(|| format!("list[{i}]"))?);
                    Ok(())
                })?;
                all.insert(name, list.into());
            } else {
                let value = elements.value::<Value>(|| name.clone())?;
                all.insert(name, value);
            }
            Ok(())
        })?;
        Ok(all.into())
    }

    #[test]
    fn a_document_is_the_same_however_it_is_cut() {
        let text = r#" { "a\"" : -1.5e3 , "list" : [ ] , "b":[{}, {"x]":"\\"}],"c":null,
            "d":"}é\u00e9\\\"" }"#;
        let list = r#"{"list":[1, "two]" ,{"three":[3,{}]},[[]],null , true]}"#;
        for text in [text, list, "{}", "{\"list\":[7]}"] {
            let expected: Value = serde_json::from_str(text).unwrap();
            for piece in 1..text.len() + 1 {
                assert_eq!(whole(text, piece).unwrap(), expected, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_is_no_document_is_refused_where_it_stops_being_one() {
        let cases = [
            ("", ".: the document ends, expected an object at line 1 column 1"),
            ("[]", ".: found '[', expected an object at line 1 column 1"),
            ("{\n \"a\": 1 x}", ".: found 'x', expected ',' or '}' at line 2 column 9"),
            ("{\"a\": 1,}", ".: found '}', expected a field's name in quotes"),
            ("{\"a\" 1}", "a: found '1', expected ':' at line 1 column 6"),
            ("{\"list\":[1,]}", "list[1]: expected value at line 1 column 12"),
            ("{\"list\":{}}", "list: found '{', expected an array"),
            ("{\"list\":[1 2]}", "list: found '2', expected ',' or ']'"),
            ("{\"list\":[\n{\"x\":}]}", "list[0].x: expected value at line 2 column 6"),
            ("{\"a\":{\"b\":[0,tru", "a.b[1]: EOF while parsing a value at line 1 column 16"),
            ("{} {}", ".: found '{', expected the end of the document at line 1 column 4"),
            ("{\"a\":\"x", "a: EOF while parsing a string at line 1 column 7"),
        ];
        for (text, expected) in cases {
            for piece in 1..text.len() + 1 {
                let error = whole(text, piece).unwrap_err().to_string();
                assert!(error.starts_with(expected), "{error}");
            }
        }
    }
}
