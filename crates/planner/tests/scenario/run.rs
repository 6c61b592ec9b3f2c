//! Commands that ask the planner.

use std::fmt::Write as _;

use evenkeel_model::{Snapshot, Strategy};
use evenkeel_planner::{
    DEFAULT_PASSES, Plan, apply, balance, cancel_move, check, explain, explain_broker,
    force_promote, operator_move, plan, plan_without_stream_tiers, rank, settle, until_stable,
};
use serde_json::json;

use super::build::{self, Words, broker, shard, stream, time};

/// The cluster so far, and the last plan.
pub(super) struct Scenario {
    snapshot: Snapshot,
    plan: Option<Plan>,
    mutated: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self { snapshot: Snapshot::empty(1_700_000_000_000), plan: None, mutated: false }
    }
}

type Printed = Result<String, String>;

impl Scenario {
    /// Runs one command; returns what it prints.
    pub(super) fn run(&mut self, command: &str) -> Printed {
        let words: Vec<&str> = command.split_whitespace().collect();
        let (verb, rest) = (words[0], Words::new(&words[1..]));
        let s = &mut self.snapshot;
        match verb {
            "brokers" => build::brokers(s, &rest)?,
            "stream" | "streams" => build::add_stream(s, &rest)?,
            "assign" => build::assign(s, &rest)?,
            "report" => build::report(s, &rest)?,
            "marker" => build::marker(s, &rest)?,
            "history" => build::history(s, &rest)?,
            "load" => build::load(s, &rest)?,
            "row" => build::row(s, &rest)?,
            "policy" => build::policy(s, &rest)?,
            "pause" => build::pause(s, &rest)?,
            "resume" => s.copy_pauses.clear(),
            "paused" => s.paused = true,
            "resumed" => s.paused = false,
            "now" => s.as_of_ms = time(s.as_of_ms, words[1])?,
            "born" => s.first_registered_ms = time(s.as_of_ms, words[1])?,
            "elected" => s.elected_at_ms = time(s.as_of_ms, words[1])?,
            "drop" => drop(s.streams.remove(&stream(words[1])?)),
            "old_rule" => self.mutated = true,
            _ => return self.ask(verb, &rest),
        }
        Ok(String::new())
    }

    fn ask(&mut self, verb: &str, words: &Words<'_>) -> Printed {
        let s = &self.snapshot;
        let first = || words.plain.first().copied().ok_or("which?");
        match verb {
            "plan" => self.plan(true),
            "count" => self.plan(false),
            "apply" => self.apply(),
            "settle" => {
                settle(&mut self.snapshot);
                Ok(String::new())
            }
            "stable" => self.stable(words.flag("steps")),
            "leaders" => Ok(self.leaders()),
            "set" => self.set(first()?),
            "balance" => Ok(self.balance()),
            "rank" => self.rank(first()?),
            "explain" if first()?.contains('/') => {
                let found = explain(s, &shard(first()?)?).ok_or("no such shard")?;
                Ok(short(&found.text))
            }
            "explain" => {
                let found = explain_broker(s, &broker(first()?)?).ok_or("no such broker")?;
                Ok(short(&found.text))
            }
            "filters" => {
                let found = explain(s, &shard(first()?)?).ok_or("no such shard")?;
                Ok(format!("{}\n", found.load_rebalancing.unwrap_or_default()))
            }
            "move" => {
                let to = words.plain.get(1).map(|id| broker(id)).transpose()?;
                Ok(match operator_move(s, &shard(first()?)?, to.as_ref()) {
                    Ok(m) => format!(
                        "{}\nzones {} -> {}\n",
                        short(&m.decision.to_string()),
                        m.zones_before,
                        m.zones_after
                    ),
                    Err(refusal) => short(&format!("{refusal}\n")),
                })
            }
            "cancel" => Ok(match cancel_move(s, &shard(first()?)?) {
                Ok(decision) => {
                    let next = &decision.decision.write().ok_or("no write")?.next;
                    let next = short(&json!(next).to_string());
                    format!("{}\nnext {next}\n", short(&decision.to_string()))
                }
                Err(refusal) => short(&format!("{refusal}\n")),
            }),
            "force" => {
                let id = broker(words.plain.get(1).ok_or("which broker?")?)?;
                Ok(match force_promote(s, &shard(first()?)?, &id) {
                    Ok(forced) => format!(
                        "{}\nat risk {:?}\n",
                        short(&forced.decision.to_string()),
                        forced.records_at_risk
                    ),
                    Err(refusal) => short(&format!("{refusal}\n")),
                })
            }
            other => Err(format!("there is no command '{other}'")),
        }
    }

    fn plan(&mut self, listed: bool) -> Printed {
        let plan = if self.mutated {
            plan_without_stream_tiers(&self.snapshot)
        } else {
            plan(&self.snapshot)
        };
        let violations = check(&self.snapshot, &plan);
        if let Some(violation) = violations.first() {
            return Err(format!("the plan breaks a rule: {violation}"));
        }
        let mut out = String::new();
        for decision in plan.decisions.iter().filter(|_| listed) {
            writeln!(out, "{}", short(&decision.to_string())).unwrap();
        }
        let r = &plan.report;
        writeln!(
            out,
            "report written={} waiting={} refused={}",
            r.written(),
            r.waits(),
            r.refusals()
        )
        .unwrap();
        self.plan = Some(plan);
        Ok(out)
    }

    fn apply(&mut self) -> Printed {
        let plan = self.plan.take().ok_or("nothing is planned")?;
        plan.decisions.iter().for_each(|d| apply(&mut self.snapshot, d));
        Ok(String::new())
    }

    fn stable(&mut self, listed: bool) -> Printed {
        let stable = until_stable(self.snapshot.clone(), DEFAULT_PASSES);
        self.snapshot = stable.snapshot;
        let mut out = String::new();
        for step in stable.steps.iter().filter(|_| listed) {
            let name = |b: &Option<_>| b.as_ref().map_or("-".to_owned(), ToString::to_string);
            let (from, to) = (name(&step.from), name(&step.to));
            let shard = short(&step.shard.to_string());
            writeln!(out, "{}: {} {shard} {from} -> {to} ({})", step.pass, step.step, step.reason)
                .unwrap();
        }
        let mut moved: Vec<String> = stable
            .steps
            .iter()
            .filter(|s| s.step.as_str() == "cut_over" || s.step.as_str() == "seat")
            .map(|s| s.shard.to_string())
            .collect();
        moved.sort();
        let twice = moved.windows(2).filter(|w| w[0] == w[1]).count();
        writeln!(
            out,
            "stable={} passes={} writes={} moves={} twice={twice} waiting={}",
            stable.stable,
            stable.passes,
            stable.steps.len(),
            stable.moves,
            stable.waiting
        )
        .unwrap();
        Ok(out)
    }

    /// Leaders per stream and in total.
    fn leaders(&self) -> String {
        let balance = balance(&self.snapshot);
        let mut out = String::new();
        for stream in &balance.streams {
            let counts: Vec<String> =
                stream.leaders.iter().map(|(b, n)| format!("{b}={n}")).collect();
            let uneven = if stream.level { "" } else { " uneven" };
            let name = short(&stream.stream.to_string());
            writeln!(out, "{name:10} {}{uneven}", counts.join(" ")).unwrap();
        }
        let totals: Vec<String> = balance.totals.iter().map(|(b, n)| format!("{b}={n}")).collect();
        writeln!(out, "{:10} {}", "total", totals.join(" ")).unwrap();
        out
    }

    fn set(&self, name: &str) -> Printed {
        let key = shard(name)?;
        Ok(match self.snapshot.assignments.get(&key) {
            None => format!("{name} is not placed\n"),
            Some(a) => format!("{}\n", short(&json!(a).to_string())),
        })
    }

    fn balance(&self) -> String {
        let b = balance(&self.snapshot);
        let mut out = format!(
            "mean={:.3} std_dev={:.3} cv={:.2} {:?}\n",
            b.mean, b.std_dev, b.cv_percent, b.status
        );
        for one in &b.brokers {
            writeln!(
                out,
                "{} score={:.3} {:?} leaders={} replicas={}",
                one.broker, one.score, one.class, one.leaders, one.replicas
            )
            .unwrap();
        }
        writeln!(
            out,
            "under_replicated={} missing={} crowded={} zone_limited={}",
            b.under_replicated, b.replicas_missing, b.crowded, b.zone_limited
        )
        .unwrap();
        out
    }

    fn rank(&self, strategy: &str) -> Printed {
        let strategy: Strategy =
            serde_json::from_value(json!(strategy)).map_err(|e| e.to_string())?;
        let mut out = String::new();
        for one in rank(&self.snapshot, strategy).rankings {
            let unknown = if one.known { "" } else { " unknown" };
            writeln!(out, "{} {:.3}{unknown}", one.broker, one.score).unwrap();
        }
        Ok(out)
    }
}

/// Names without what is the same everywhere.
fn short(text: &str) -> String {
    text.replace("stream/default/", "").replace("cache/default/", "cache:")
}
