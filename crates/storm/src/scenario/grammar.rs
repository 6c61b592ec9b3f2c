//! The file: `key value` lines under `[section]` lines, events, and variants that change keys.

use super::keys::KEYS;
use super::{Event, Scenario, ScenarioError, Settings, Variant, What};
use crate::units;

/// Each is a run, and a column of the table.
const VARIANTS_MAX: usize = 16;

const SECTIONS: &str = "[cluster], [traffic], [controls], [events] or [variant NAME]";
const EVENTS: &str = "lose NODE, return NODE, load xF [for T], flap xF every T for T, \
                      slow NODE xF [for T] or cut NODE NODE [for T]";

/// Where a line stands.
enum Section {
    Top,
    Keys(&'static str),
    Events,
    Variant,
}

struct Reader {
    title: String,
    base: Settings,
    /// Which keys the file has set, so that no line is overruled in silence.
    set: Vec<&'static str>,
    variants: Vec<(String, Settings, Vec<&'static str>)>,
    events: Vec<(usize, Vec<String>)>,
    section: Section,
    line: usize,
}

pub(super) fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    let mut reader = Reader {
        title: String::new(),
        base: Settings::default(),
        set: Vec::new(),
        variants: Vec::new(),
        events: Vec::new(),
        section: Section::Top,
        line: 0,
    };
    for line in text.lines() {
        reader.line += 1;
        // Titles and names reach pictures and terminals as they are.
        if let Some(control) = line.chars().find(|c| c.is_control() && *c != '\t') {
            let detail =
                format!("{control:?} is not valid: expected text without control characters");
            return reader.fail("line", detail);
        }
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            reader.read(line)?;
        }
    }
    reader.finish()
}

impl Reader {
    fn fail<T>(&self, field: &str, detail: impl Into<String>) -> Result<T, ScenarioError> {
        Err(ScenarioError { line: self.line, field: field.to_owned(), detail: detail.into() })
    }

    fn read(&mut self, line: &str) -> Result<(), ScenarioError> {
        if let Some(rest) = line.strip_prefix('[') {
            let Some(name) = rest.strip_suffix(']') else {
                return self.fail(line, "not closed: expected a ']' at the end of the line");
            };
            return self.open(name.trim());
        }
        if matches!(self.section, Section::Events) {
            let words = line.split_whitespace().map(str::to_owned).collect();
            self.events.push((self.line, words));
            return Ok(());
        }
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        self.set(key, value.trim())
    }

    fn open(&mut self, name: &str) -> Result<(), ScenarioError> {
        self.section = match name {
            "cluster" => Section::Keys("cluster"),
            "traffic" => Section::Keys("traffic"),
            "controls" => Section::Keys("controls"),
            "events" => Section::Events,
            other => {
                let Some(variant) = other.strip_prefix("variant ").map(str::trim) else {
                    return self.fail(&format!("[{other}]"), format!("expected {SECTIONS}"));
                };
                if variant.is_empty() || self.variants.iter().any(|(n, ..)| n == variant) {
                    return self.fail("[variant]", "expected a name that no other variant has");
                }
                if self.variants.len() == VARIANTS_MAX {
                    let detail = format!("one too many: expected at most {VARIANTS_MAX} variants");
                    return self.fail("[variant]", detail);
                }
                self.variants.push((variant.to_owned(), self.base.clone(), Vec::new()));
                Section::Variant
            }
        };
        if !matches!(self.section, Section::Variant) && !self.variants.is_empty() {
            return self.fail(&format!("[{name}]"), "expected before the first variant");
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ScenarioError> {
        let own = match self.section {
            Section::Top => "",
            Section::Keys(section) => section,
            Section::Events | Section::Variant => "",
        };
        let in_variant = matches!(self.section, Section::Variant);
        if name == "title" && matches!(self.section, Section::Top) {
            self.title = value.to_owned();
            return Ok(());
        }
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return self
                .fail(name, format!("is no key: expected one of {}", known(own, in_variant)));
        };
        if key.section != own && !in_variant {
            let home = if key.section.is_empty() {
                "before the first section".to_owned()
            } else {
                format!("in [{}]", key.section)
            };
            return self.fail(name, format!("is out of place: expected {home}"));
        }
        let (settings, set) = match self.variants.last_mut() {
            Some((_, settings, set)) if in_variant => (settings, set),
            _ => (&mut self.base, &mut self.set),
        };
        if set.contains(&key.name) {
            return self.fail(name, "is there twice: expected it once in its section");
        }
        set.push(key.name);
        match (key.set)(settings, value) {
            Ok(()) => Ok(()),
            Err(expected) => {
                self.fail(name, format!("'{value}' is not valid: expected {expected}"))
            }
        }
    }

    fn finish(mut self) -> Result<Scenario, ScenarioError> {
        if self.variants.is_empty() {
            self.variants.push(("run".to_owned(), self.base.clone(), self.set.clone()));
        }
        for key in ["run", "nodes", "shards", "data", "link", "utilisation", "p99_idle", "target"] {
            let missing = |(_, _, set): &(String, Settings, Vec<&str>)| {
                !set.contains(&key) && !self.set.contains(&key)
            };
            if self.variants.iter().any(missing) {
                let section = KEYS.iter().find(|k| k.name == key).map_or("", |k| k.section);
                let place = match section {
                    "" => "before the first section".to_owned(),
                    section => format!("in [{section}]"),
                };
                return self.fail(key, format!("is missing: expected it {place}"));
            }
        }
        for (name, settings, _) in &self.variants {
            self.check(name, settings)?;
        }
        let nodes = self.variants.iter().map(|(_, s, _)| s.cluster.nodes).min().unwrap_or(0);
        let run_ms = self.variants.iter().map(|(_, s, _)| s.run_ms).fold(f64::MAX, f64::min);
        let mut events = Vec::new();
        for (line, words) in &self.events {
            self.line = *line;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match read_event(&words, nodes) {
                Ok(found) if found.first().is_some_and(|event| event.at_ms >= run_ms) => {
                    let detail = "comes too late: expected a time before the run ends";
                    return self.fail(&words.join(" "), detail);
                }
                Ok(found) => events.extend(found),
                Err(detail) => return self.fail(&words.join(" "), detail),
            }
        }
        events.sort_by(|a: &Event, b: &Event| a.at_ms.total_cmp(&b.at_ms));
        let variants =
            self.variants.into_iter().map(|(name, settings, _)| Variant { name, settings });
        Ok(Scenario { title: self.title, events, variants: variants.collect() })
    }

    fn check(&self, name: &str, s: &Settings) -> Result<(), ScenarioError> {
        let c = &s.cluster;
        let whose = |key: &str| format!("{key} of variant '{name}'");
        if c.nodes < c.replicas as usize {
            let detail = format!(
                "{} nodes cannot hold {} replicas each: expected nodes >= replicas",
                c.nodes, c.replicas
            );
            return self.fail(&whose("nodes"), detail);
        }
        if c.zones > c.nodes {
            let detail = format!("{} zones of {} nodes: expected zones <= nodes", c.zones, c.nodes);
            return self.fail(&whose("zones"), detail);
        }
        if c.data_bytes < u64::from(c.shards) {
            return self.fail(&whose("data"), "expected at least one byte a shard");
        }
        let steps = s.run_ms / 250.0 * c.nodes as f64;
        if steps > 50e6 {
            let detail = "too long for so many nodes: expected run x nodes of at most 3472 hours";
            return self.fail(&whose("run"), detail);
        }
        Ok(())
    }
}

/// The keys that could stand there.
fn known(section: &str, in_variant: bool) -> String {
    let here = KEYS.iter().filter(|key| in_variant || key.section == section);
    let mut names: Vec<&str> = here.map(|key| key.name).collect();
    if section.is_empty() && !in_variant {
        names.insert(0, "title");
    }
    names.join(", ")
}

/// `at TIME WHAT ...`; spans end by a second event that undoes the first.
fn read_event(words: &[&str], nodes: usize) -> Result<Vec<Event>, String> {
    let ["at", at, rest @ ..] = words else {
        return Err(format!("expected 'at TIME' and then {EVENTS}"));
    };
    let at_ms = units::millis(at).map_err(|e| format!("'{at}' is not valid: expected {e}"))?;
    let node = |name: &str| {
        let number = name.strip_prefix('n').and_then(|n| n.parse::<usize>().ok());
        let number = number.filter(|n| format!("n{n}") == name);
        let found = number.filter(|n| (1..=nodes).contains(n)).map(|n| n - 1);
        found.ok_or_else(|| format!("'{name}' is no node: expected n1 to n{nodes}"))
    };
    let factor = |text: &str| {
        units::factor(text).map_err(|e| format!("'{text}' is not valid: expected {e}"))
    };
    let time = |text: &str| {
        units::millis(text).map_err(|e| format!("'{text}' is not valid: expected {e}"))
    };
    let end = |rest: &[&str]| match rest {
        [] => Ok(None),
        ["for", span] => Ok(Some(at_ms + time(span)?)),
        _ => Err(format!("expected {EVENTS}")),
    };
    let span = |first: What, ended: Option<f64>, last: What| {
        let last = ended.map(|at_ms| Event { at_ms, what: last });
        std::iter::once(Event { at_ms, what: first }).chain(last).collect()
    };
    match rest {
        ["lose", name] => Ok(vec![Event { at_ms, what: What::Lose(node(name)?) }]),
        ["return", name] => Ok(vec![Event { at_ms, what: What::Return(node(name)?) }]),
        ["load", by, rest @ ..] => {
            let by = factor(by)?;
            Ok(span(What::Load(by), end(rest)?, What::Load(1.0)))
        }
        ["flap", by, "every", every, "for", long] => {
            let (by, every, long) = (factor(by)?, time(every)?, time(long)?);
            if every < 1000.0 {
                return Err(format!("'{}' is too short: expected at least 1s", rest[3]));
            }
            let turns = (long / every) as usize;
            let turn = |n: usize| {
                let high = n.is_multiple_of(2) && n < turns;
                let what = What::Load(if high { by } else { 1.0 });
                Event { at_ms: at_ms + n as f64 * every, what }
            };
            Ok((0..=turns).map(turn).collect())
        }
        ["slow", name, by, rest @ ..] => {
            let (node, part) = (node(name)?, factor(by)?);
            if part <= 0.0 || part > 1.0 {
                return Err(format!("'{by}' is no part of a speed: expected above x0, to x1"));
            }
            Ok(span(What::Slow(node, part), end(rest)?, What::Slow(node, 1.0)))
        }
        ["cut", a, b, rest @ ..] => {
            let (a, b) = (node(a)?, node(b)?);
            if a == b {
                let twice = format!("n{} is there twice", a + 1);
                return Err(format!(
                    "{twice}: expected two nodes that are cut off from each other"
                ));
            }
            Ok(span(What::Cut(a, b, true), end(rest)?, What::Cut(a, b, false)))
        }
        _ => Err(format!("expected {EVENTS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "title Two lost\nrun 5m\n[cluster]\nnodes 10 # ten\nshards 40\ndata 1TB\n\
        link 1Gbit/s\n[traffic]\nutilisation 50%\np99_idle 2ms\n[controls]\ntarget 8ms\n\
        [events]\nat 60s lose n2\nat 2m load x1.3 for 30s\nat 90s flap x2 every 10s for 20s\n\
        [variant off]\nlaw off\n[variant on]\nper_node 4\n";

    #[test]
    fn a_file_is_a_cluster_its_events_and_its_variants() {
        let scenario = Scenario::parse(WHOLE).unwrap();
        assert_eq!(scenario.variants().collect::<Vec<_>>(), ["off", "on"]);
        assert_eq!(scenario.variants[1].settings.controls.per_node, 4);
        assert_eq!(scenario.variants[0].settings.cluster.link, 125_000_000);
        let times: Vec<f64> = scenario.events.iter().map(|e| e.at_ms / 1000.0).collect();
        assert_eq!(times, [60.0, 90.0, 100.0, 110.0, 120.0, 150.0]);
        assert_eq!(scenario.events[0].what, What::Lose(1));
    }

    #[test]
    fn faults_name_line_field_value_and_expectation() {
        let cases = [
            ("nodes 10", "nodes ten", "4: nodes: 'ten' is not valid: expected a whole number"),
            ("shards 40", "shard 40", "5: shard: is no key: expected one of nodes, zones"),
            ("data 1TB", "data 1", "6: data: '1' is not valid: expected bytes with a unit"),
            ("data 1TB", "law off", "6: law: is out of place: expected in [controls]"),
            ("shards 40", "nodes 4", "5: nodes: is there twice"),
            ("[traffic]", "[trafic]", "8: [trafic]: expected [cluster], [traffic]"),
            ("[traffic]", "[traffic", "8: [traffic: not closed"),
            ("target 8ms", "", "21: target: is missing: expected it in [controls]"),
            ("nodes 10", "nodes 2", "21: nodes of variant 'off': 2 nodes cannot hold 3"),
            ("lose n2", "lose n11", "14: at 60s lose n11: 'n11' is no node: expected n1 to n10"),
            ("lose n2", "loose n2", "14: at 60s loose n2: expected lose NODE"),
            ("at 2m load", "at 2 load", "15: at 2 load x1.3 for 30s: '2' is not valid"),
            ("lose n2", "lose n02", "14: at 60s lose n02: 'n02' is no node: expected n1 to n10"),
            ("lose n2", "cut n4 n4", "14: at 60s cut n4 n4: n4 is there twice: expected two"),
            ("lose n2", "slow n4 x0", "14: at 60s slow n4 x0: 'x0' is no part of a speed"),
            ("lose n2", "slow n4 x2", "14: at 60s slow n4 x2: 'x2' is no part of a speed"),
            ("at 60s", "at 5m", "14: at 5m lose n2: comes too late: expected a time before"),
            ("every 10s", "every 10ms", "16: at 90s flap x2 every 10ms for 20s: '10ms' is too"),
            ("[variant on]", "[variant off]", "19: [variant]: expected a name that no other"),
            ("per_node 4", "[events]", "20: [events]: expected before the first variant"),
        ];
        for (from, to, expected) in cases {
            let text = WHOLE.replacen(from, to, 1);
            let error = Scenario::parse(&text).unwrap_err().to_string();
            let expected = expected.replace("21:", &format!("{}:", text.lines().count()));
            assert!(error.starts_with(&expected), "{error}, expected {expected}");
        }
        let refused = |text: &str| Scenario::parse(text).unwrap_err().to_string();
        assert_eq!(refused(""), "0: run: is missing: expected it before the first section");
        assert!(refused("title a\u{1b}[31m").starts_with("1: line: '\\u{1b}' is not valid"));
        let many: String = (0..17).map(|n| format!("[variant v{n}]\n")).collect();
        assert_eq!(refused(&many), "17: [variant]: one too many: expected at most 16 variants");
    }
}
