//! How large partitions are and how busy: the text of `kafka-log-dirs --describe`, and lines of rates.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::printable;
use serde::Deserialize;

use super::{Broker, Fault, broker};

/// A partition of a topic.
pub type TopicPartition = (String, u32);

/// What is known of partitions beside who holds them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traffic {
    /// Bytes on disk, of the largest replica.
    pub sizes: BTreeMap<TopicPartition, u64>,
    /// Bytes in and out per second.
    pub rates: BTreeMap<TopicPartition, f64>,
    /// Brokers that answered, whether they hold anything or not.
    pub brokers: BTreeSet<Broker>,
}

#[derive(Deserialize)]
struct Document {
    version: u32,
    brokers: Vec<BrokerDirs>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BrokerDirs {
    broker: Broker,
    log_dirs: Vec<LogDir>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogDir {
    log_dir: String,
    error: Option<String>,
    partitions: Vec<Replica>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Replica {
    partition: String,
    size: u64,
    #[serde(default)]
    is_future: bool,
}

/// Lines that the tool says beside its one line of JSON.
const SAID: [&str; 2] =
    ["Querying brokers for log directories information", "Received log directory information from"];

impl Traffic {
    /// Reads what `kafka-log-dirs --describe` printed; a fault in its JSON is named by its path.
    pub fn add_log_dirs(&mut self, text: &str) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        for (at, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || SAID.iter().any(|said| text.starts_with(said)) {
                continue;
            }
            if let Err(detail) = self.add_document(text) {
                faults.push(Fault { line: at + 1, detail });
            }
        }
        if faults.is_empty() && self.brokers.is_empty() {
            let detail = "no broker answered: expected what kafka-log-dirs --describe prints";
            faults.push(Fault { line: 1, detail: detail.to_owned() });
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn add_document(&mut self, text: &str) -> Result<(), String> {
        let document: Document = crate::json::parse(text.as_bytes())?;
        if document.version != 1 {
            return Err(format!("version: {} is not known: expected 1", document.version));
        }
        for (b, one) in document.brokers.into_iter().enumerate() {
            self.brokers.insert(one.broker);
            for (d, dir) in one.log_dirs.into_iter().enumerate() {
                let at = format!("brokers[{b}].logDirs[{d}]");
                if let Some(error) = dir.error {
                    let (error, dir) = (printable(&error), printable(&dir.log_dir));
                    return Err(format!("{at}.error: {dir} has {error}"));
                }
                for (p, replica) in dir.partitions.into_iter().enumerate() {
                    let name = partition(&replica.partition).ok_or_else(|| {
                        let name = replica.partition.escape_debug();
                        format!(
                            "{at}.partitions[{p}].partition: '{name}': expected <topic>-<number>"
                        )
                    })?;
                    // A future replica is a copy on its way to another directory.
                    if !replica.is_future {
                        let size = self.sizes.entry(name).or_insert(0);
                        *size = replica.size.max(*size);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads lines of `TOPIC PARTITION BYTES_PER_SECOND`; `#` begins a comment.
    pub fn add_rates(&mut self, text: &str) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        for (at, text) in text.lines().enumerate() {
            let words: Vec<&str> =
                text.split('#').next().unwrap_or_default().split_whitespace().collect();
            let read = match words[..] {
                [] => continue,
                [topic, number, rate] => broker(number)
                    .zip(rate.parse::<f64>().ok())
                    .map(|(number, rate)| ((topic.to_owned(), number), rate)),
                _ => None,
            };
            let detail = match read.filter(|(_, rate)| rate.is_finite() && *rate >= 0.0) {
                None => format!(
                    "'{}' is not valid: expected TOPIC PARTITION BYTES_PER_SECOND",
                    words.join(" ").escape_debug()
                ),
                Some((of, rate)) => match self.rates.insert(of, rate) {
                    None => continue,
                    Some(_) => format!("{} of {} is there twice", words[1], words[0]),
                },
            };
            faults.push(Fault { line: at + 1, detail });
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// The partitions that anything is known of.
    pub fn partitions(&self) -> BTreeSet<&TopicPartition> {
        self.sizes.keys().chain(self.rates.keys()).collect()
    }
}

fn partition(name: &str) -> Option<TopicPartition> {
    let (topic, number) = name.rsplit_once('-')?;
    let number = broker(number).filter(|_| !topic.is_empty())?;
    Some((topic.to_owned(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_DIRS: &str = "Querying brokers for log directories information
Received log directory information from brokers 1,2
{\"brokers\":[{\"broker\":1,\"logDirs\":[{\"partitions\":[{\"partition\":\"my-topic-0\",\"size\":70,\
\"offsetLag\":0,\"isFuture\":false},{\"partition\":\"my-topic-0\",\"size\":900,\"isFuture\":true}],\
\"error\":null,\"logDir\":\"/k\"}]},{\"broker\":2,\"logDirs\":[{\"partitions\":[\
{\"partition\":\"my-topic-0\",\"size\":80}],\"error\":null,\"logDir\":\"/k\"}]}],\"version\":1}\n";

    #[test]
    fn sizes_are_those_of_the_largest_replica() {
        let mut traffic = Traffic::default();
        traffic.add_log_dirs(LOG_DIRS).unwrap();
        assert_eq!(traffic.sizes, BTreeMap::from([(("my-topic".to_owned(), 0), 80)]));
        assert_eq!(traffic.brokers, BTreeSet::from([1, 2]));
        let fault = |text: &str| Traffic::default().add_log_dirs(text).unwrap_err()[0].to_string();
        let bad = fault(&LOG_DIRS.replace("\"size\":70", "\"size\":-70"));
        assert!(bad.starts_with("3: brokers[0].logDirs[0].partitions[0].size: "), "{bad}");
        let offline = fault(&LOG_DIRS.replacen("\"error\":null", "\"error\":\"Offline\"", 1));
        assert_eq!(offline, "3: brokers[0].logDirs[0].error: /k has Offline");
        let unnamed = fault(&LOG_DIRS.replacen("my-topic-0", "mytopic", 1));
        assert!(unnamed.contains("partitions[0].partition: 'mytopic': expected"), "{unnamed}");
        assert!(fault("").starts_with("1: no broker answered"));
    }

    #[test]
    fn rates_are_lines() {
        let mut traffic = Traffic::default();
        traffic.add_rates("orders 0 1.5e3 # busy\n\nclicks 1 0\n").unwrap();
        assert_eq!(traffic.rates[&("orders".to_owned(), 0)], 1500.0);
        for bad in ["orders 0", "orders x 1", "orders 0 NaN", "orders 0 -1", "orders 0 1 2"] {
            let faults = Traffic::default().add_rates(bad).unwrap_err();
            assert!(faults[0].to_string().ends_with("expected TOPIC PARTITION BYTES_PER_SECOND"));
        }
        let twice = traffic.add_rates("orders 0 2").unwrap_err();
        assert_eq!(twice[0].to_string(), "1: 0 of orders is there twice");
    }
}
