//! What a scraper reads after some rounds.

use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;

fn second(rig: &mut Rig, p99_ms: f64, state: &str) {
    let status = NodeStatus {
        share: 0.05,
        state: state.to_owned(),
        p99_ms: Some(p99_ms),
        queue_depth: 7,
        egress_bytes: 1_000,
        ingress_bytes: 2_000,
        maintenance_backlog_bytes: 5_000,
        expired_grant_bytes: 30,
        requests_shed: 4,
        ..NodeStatus::default()
    };
    rig.tell(Event::Status { broker: id("b3"), session: 0, status });
    for _ in 0..4 {
        rig.round();
        rig.progress("b3", 0, 0, ("running", rig.at.as_millis() as u64, 1 << 30));
    }
}

#[test]
fn states_ratios_queues_and_credits_are_what_a_scraper_reads() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let told = || recorder.handle().render();
    let has = |line: &str| {
        let text = told();
        assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
    };
    ::metrics::with_local_recorder(&recorder, || {
        let mut rig = Rig::new(SLOTS);
        rig.see();
        rig.open("b3");
        (0..30).for_each(|_| second(&mut rig, 50.0, "holding"));
        has("evenkeel_copy_node_p99_ratio{broker=\"b3\"} 0");
        has("evenkeel_copy_node_state{broker=\"b3\",state=\"holding\"} 1");
        rig.restore(0, &["b2"], "b3");
        rig.see();
        rig.round();
        (0..70).for_each(|_| second(&mut rig, 150.0, "floor"));
        for line in [
            "evenkeel_copy_node_p99_ratio{broker=\"b3\"} 3",
            "evenkeel_copy_node_state{broker=\"b3\",state=\"floor\"} 1",
            "evenkeel_copy_node_state{broker=\"b3\",state=\"holding\"} 0",
            "evenkeel_copy_node_out_of_capacity{broker=\"b3\"} 1",
            "evenkeel_copy_node_out_of_capacity{broker=\"b2\"} 0",
            "evenkeel_copy_allowed_bytes_per_second{broker=\"b3\"} 400000",
            "evenkeel_copy_node_share_ratio{broker=\"b3\"} 0.05",
            "evenkeel_copy_source_queue_requests{broker=\"b3\"} 7",
            "evenkeel_copy_maintenance_backlog_bytes{broker=\"b3\"} 5000",
            "evenkeel_copy_node_bytes_total{broker=\"b3\",direction=\"in\"} 200000",
            "evenkeel_copy_node_bytes_total{broker=\"b3\",direction=\"out\"} 100000",
            "evenkeel_copy_expired_grant_bytes_total{broker=\"b3\"} 3000",
            "evenkeel_copy_node_requests_shed_total{broker=\"b3\"} 400",
            "evenkeel_copies{class=\"under_replicated\",state=\"running\"} 1",
            "evenkeel_copies{class=\"unavailable\",state=\"running\"} 0",
            "evenkeel_copies_paused{class=\"drain\"} 0",
        ] {
            has(line);
        }
        let text = told();
        let granted = text.lines().find(|l| l.starts_with("evenkeel_copy_granted_bytes_total"));
        let granted: f64 = granted.and_then(|l| l.rsplit(' ').next()?.parse().ok()).unwrap();
        let most = 400_000.0 * 71.0;
        assert!((0.97 * most..=most).contains(&granted), "{granted} of {most}");
        assert!(text.contains("evenkeel_migrator_first_grant_seconds "), "{text}");
        // A broker that has left, and then a leadership that is over.
        rig.tell(Event::Closed { broker: id("b3"), session: 0 });
        rig.world.brokers.remove(&id("b3"));
        rig.see();
        rig.round();
        for line in [
            "evenkeel_copy_node_out_of_capacity{broker=\"b3\"} 0",
            "evenkeel_copy_node_share_ratio{broker=\"b3\"} 0",
            "evenkeel_copy_source_queue_requests{broker=\"b3\"} 0",
            "evenkeel_copy_allowed_bytes_per_second{broker=\"b3\"} 0",
            "evenkeel_copy_allowed_bytes_per_second{broker=\"b2\"} 1600000",
        ] {
            has(line);
        }
        let Rig { engine, .. } = rig;
        engine.retire();
        crate::metrics::leading(false);
        let text = told();
        let gauges = text.lines().filter(|l| l.starts_with("evenkeel_"));
        let left: Vec<&str> = gauges
            .filter(|l| !l.contains("_total") && !l.contains("_seconds_") && !l.ends_with(" 0"))
            .collect();
        assert!(left.iter().all(|l| l.contains("quantile") || l.contains("_bucket")), "{left:?}");
    });
}
