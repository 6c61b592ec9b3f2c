//! The process's one metrics recorder and its text form.

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds, in seconds, of every histogram that does not end in `_bytes`.
const SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
    300.0,
];

/// Upper bounds of every histogram that ends in `_bytes`: 1 KiB to 1 GiB by factors of four.
const BYTES: [f64; 11] = [
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
];

/// How often histograms fold their samples, so that memory stays bounded without a scraper.
const UPKEEP: Duration = Duration::from_secs(5);

/// Renders what the process has measured.
#[derive(Clone)]
pub struct MetricsHandle(Option<PrometheusHandle>);

impl std::fmt::Debug for MetricsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "MetricsHandle" } else { "MetricsHandle(none)" })
    }
}

impl MetricsHandle {
    /// Records nothing: for simulations and tests.
    pub fn none() -> Self {
        Self(None)
    }

    /// The Prometheus text format; empty without a recorder.
    pub fn render(&self) -> String {
        self.0.as_ref().map(PrometheusHandle::render).unwrap_or_default()
    }
}

/// Installs the recorder; once per process, inside the runtime.
pub fn install(service: &'static str) -> Result<MetricsHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets(&SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES)?
        .install_recorder()?;
    evenkeel_coordination::metrics::describe();
    metrics::describe_gauge!("evenkeel_build_info", "1, labelled with the service and its version");
    metrics::gauge!("evenkeel_build_info", "service" => service, "version" => env!("CARGO_PKG_VERSION"))
        .set(1.0);
    let upkeep = handle.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(MetricsHandle(Some(handle)))
}
