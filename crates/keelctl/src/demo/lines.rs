//! The lines that the demo publishes: of a file, or generated.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use crate::Failure;

/// Bytes of a block of lines.
const BLOCK: usize = 256 << 10;

/// Lines longer than this are cut, as no broker takes a record of any size.
const LONGEST: u64 = 256 << 10;

/// Blocks of lines, read or made ahead of their use.
pub(crate) struct Lines {
    blocks: mpsc::Receiver<Result<Vec<Bytes>, String>>,
    /// How many bytes there are to come, line ends included.
    pub(crate) total: u64,
}

impl Lines {
    /// The lines of a file.
    pub(crate) fn of_file(path: &Path) -> Result<Self, Failure> {
        let failed =
            |e: std::io::Error| Failure::Input(format!("cannot read {}: {e}", path.display()));
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(Failure::Input(format!(
                "cannot read {}: it is a directory",
                path.display()
            )));
        }
        if metadata.is_file() && metadata.len() == 0 {
            let line = format!("{} is empty: there is nothing to publish", path.display());
            return Err(Failure::Input(line));
        }
        let name = path.display().to_string();
        let (sender, blocks) = mpsc::channel(8);
        tokio::task::spawn_blocking(move || {
            let mut reader = BufReader::with_capacity(BLOCK, file);
            loop {
                match file_block(&mut reader) {
                    Ok(block) if block.is_empty() => return,
                    Ok(block) => {
                        if sender.blocking_send(Ok(block)).is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        // The receiver may be gone, and then nobody wants to know.
                        let _ = sender.blocking_send(Err(format!("cannot read {name}: {error}")));
                        return;
                    }
                }
            }
        });
        Ok(Self { blocks, total: metadata.len() })
    }

    /// At least `total` bytes of text, the same for the same seed.
    pub(crate) fn generated(seed: u64, total: u64) -> Self {
        let (sender, blocks) = mpsc::channel(8);
        tokio::task::spawn_blocking(move || {
            let mut text = Text { random: seed, number: 0 };
            let mut made = 0;
            while made < total {
                let block = text.block();
                made += block.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
                if sender.blocking_send(Ok(block)).is_err() {
                    return;
                }
            }
        });
        Self { blocks, total }
    }

    /// The next block; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, Failure> {
        self.blocks.recv().await.transpose().map_err(Failure::Input)
    }
}

fn file_block(reader: &mut BufReader<File>) -> std::io::Result<Vec<Bytes>> {
    let mut text = Vec::with_capacity(BLOCK + 4096);
    let mut ends = Vec::new();
    while text.len() < BLOCK {
        let before = text.len();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        let line_end = text.len() - usize::from(text.last() == Some(&b'\n'));
        ends.push((before, line_end));
    }
    let text = Bytes::from(text);
    Ok(ends.into_iter().map(|(from, to)| text.slice(from..to)).collect())
}

const WORDS: [&str; 32] = [
    "anchor",
    "ballast",
    "beam",
    "bow",
    "breeze",
    "bulkhead",
    "buoy",
    "cargo",
    "chart",
    "compass",
    "current",
    "deck",
    "draught",
    "ebb",
    "fathom",
    "harbour",
    "helm",
    "hull",
    "keel",
    "knot",
    "ledger",
    "log",
    "mast",
    "mooring",
    "port",
    "rudder",
    "sail",
    "starboard",
    "stern",
    "swell",
    "tide",
    "wake",
];

/// Numbered lines of words.
struct Text {
    random: u64,
    number: u64,
}

impl Text {
    fn block(&mut self) -> Vec<Bytes> {
        let mut text = BytesMut::with_capacity(BLOCK + 4096);
        let mut lines = Vec::with_capacity(BLOCK / 64);
        let mut used = 0;
        while used < BLOCK {
            self.number += 1;
            let number = format!("{:010}", self.number);
            text.extend_from_slice(number.as_bytes());
            for _ in 0..6 + self.draw() % 14 {
                text.extend_from_slice(b" ");
                text.extend_from_slice(WORDS[(self.draw() % 32) as usize].as_bytes());
            }
            let line = text.split().freeze();
            used += line.len();
            lines.push(line);
        }
        lines
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    async fn all(mut lines: Lines) -> Vec<Bytes> {
        let mut out = Vec::new();
        while let Some(block) = lines.next().await.unwrap() {
            out.extend(block);
        }
        out
    }

    #[tokio::test]
    async fn a_file_is_read_line_by_line_with_or_without_a_last_line_end() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one\n\nthree\xff\nlast").unwrap();
        let lines = all(Lines::of_file(file.path()).unwrap()).await;
        assert_eq!(lines, [&b"one"[..], b"", b"three\xff", b"last"]);
        let nothing = tempfile::NamedTempFile::new().unwrap();
        let empty = Lines::of_file(nothing.path()).err().unwrap().to_string();
        assert!(empty.ends_with(" is empty: there is nothing to publish"), "{empty}");
        let gone = Lines::of_file(Path::new("/nowhere/x")).err().unwrap().to_string();
        assert!(gone.starts_with("cannot read /nowhere/x: "), "{gone}");
    }

    #[tokio::test]
    async fn generated_text_is_as_long_as_asked_and_the_same_for_the_same_seed() {
        let one = all(Lines::generated(7, 1 << 20)).await;
        assert_eq!(one, all(Lines::generated(7, 1 << 20)).await);
        assert_ne!(one, all(Lines::generated(8, 1 << 20)).await);
        assert!(one.iter().map(|l| l.len() + 1).sum::<usize>() >= 1 << 20);
    }
}
