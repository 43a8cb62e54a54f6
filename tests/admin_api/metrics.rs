//! Metrics for Prometheus, and the contributed files that use their names.

use crate::support::{House, PATIENCE, SECRET, Sent};
use crate::{IN, http, number, numbers, parrot};
use std::collections::BTreeSet;
use std::process::Command;

async fn metrics(house: &House) -> String {
    let answer = house.ask("GET", "/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    String::from_utf8(answer.body).unwrap()
}

#[tokio::test]
async fn deliveries_and_outcomes_are_counted_under_bounded_labels() {
    let house = House::new(&numbers(""));
    house.deliver(IN, &number("d1", 1, "a")).await;
    house.deliver(IN, &number("d1", 1, "a")).await;
    house.deliver(IN, &number("d1", 13, "a")).await; // the same id with another body
    house.deliver(IN, &number("d4", 1, "no")).await;
    house.deliver(IN, &number("d5", 1, "a").with("x-hub-signature-256", "sha256=00")).await;
    house.quiet().await;
    let lines = [
        r#"hookonce_deliveries_total{source="numbers",verdict="accepted"} 2"#,
        r#"hookonce_deliveries_total{source="numbers",verdict="duplicate"} 1"#,
        r#"hookonce_deliveries_total{source="numbers",verdict="ignored"} 1"#,
        r#"hookonce_deliveries_total{source="numbers",verdict="refused"} 1"#,
        r#"hookonce_duplicates_total{source="numbers",same="delivery"} 1"#,
        r#"hookonce_duplicates_total{source="numbers",same="n+tag"} 0"#,
        r#"hookonce_delivery_id_conflicts_total{source="numbers"} 1"#,
        r#"hookonce_secret_matches_total{source="numbers",secret="0"} 4"#,
        r#"hookonce_attempts_total{source="numbers",route="act",outcome="delivered"} 1"#,
        r#"hookonce_attempts_total{source="numbers",route="act",outcome="failed"} 1"#,
        r#"hookonce_event_states_total{source="numbers",state="dead"} 1"#,
        r#"hookonce_event_states_total{source="numbers",state="done"} 1"#,
        r#"hookonce_event_states_total{source="numbers",state="running"} 2"#,
        r#"hookonce_attempt_duration_seconds_count{source="numbers",route="act"} 2"#,
        r#"hookonce_event_duration_seconds_count{source="numbers"} 1"#,
        r#"hookonce_ingest_duration_seconds_count{source="numbers"} 5"#,
        r#"hookonce_receivers_circuit_open{source="numbers",route="act"} 0"#,
        r#"hookonce_events{source="numbers",state="waiting"} 0"#,
        r#"hookonce_events{source="numbers",state="dead"} 1"#,
        "hookonce_oldest_waiting_event_seconds 0",
        "hookonce_leases_lost_total 0",
        "hookonce_request_bodies_bytes 0",
        // The duplicate was found by a reader, without a claim.
        "hookonce_claim_batch_size_sum 2.0",
        r#"hookonce_store_call_duration_seconds_count{call="claim"} 2"#,
    ];
    let told = house.counted(&lines).await;
    assert!(told.contains(concat!("hookonce_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",node_id=\"")));
    for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds"] {
        let value = told.lines().find_map(|line| line.strip_prefix(&format!("process_{name} "))).expect(name);
        assert!(value.parse::<f64>().unwrap() > 0.0, "{name} {value}");
    }
    let lines = told.lines().filter(|line| !line.starts_with('#')).count();
    for n in 0..50 {
        house.deliver(IN, &number(&format!("e{n}"), n, &format!("t{n}"))).await;
        house.deliver(&format!("/nowhere/{n}"), &number("x", 1, "a")).await;
    }
    assert_eq!(metrics(&house).await.lines().filter(|line| !line.starts_with('#')).count(), lines);
}

#[tokio::test]
async fn a_duplicate_that_gets_the_kept_response_is_counted_by_its_identity_and_another_body_is_refused() {
    let receiver = parrot(&http("{\"ok\":true}")).await;
    let house = House::new(&format!(
        "[source.api]\npreset = \"idempotency-key\"\npath = \"{IN}\"\n\
         verify = {{ scheme = \"bearer\", secret = {{ env = \"SECRET\" }} }}\n\
         [[source.api.route]]\nforward = {{ url = \"{receiver}\" }}\n"
    ));
    let ask = |body: &'static str| {
        let headers = [
            ("authorization", format!("Bearer {SECRET}")),
            ("idempotency-key", "\"k-1\"".into()),
            ("content-type", "application/json".into()),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let house = &house;
        async move { house.deliver(IN, &Sent { headers, body: body.into() }).await.status }
    };
    assert_eq!([ask("{}").await, ask("{}").await, ask("{}").await, ask("{\"other\":1}").await], [200, 200, 200, 422]);
    let told = house.metrics().await;
    let counted = |name: &str| {
        let lines = told.lines().filter(|line| line.starts_with(name) && line.contains("source=\"api\""));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    assert_eq!(counted("hookonce_duplicates_total"), 2, "{told}");
    for (verdict, expected) in [("accepted", 1), ("duplicate", 2), ("refused", 1)] {
        let line = format!("hookonce_deliveries_total{{source=\"api\",verdict=\"{verdict}\"}} {expected}");
        assert!(told.lines().any(|found| found == line), "{line}\n{told}");
    }
    let away = crate::get(&house, "/api/deliveries?verdict=refused").await;
    assert_eq!(
        (&away["deliveries"][0]["reason"], &away["deliveries"][0]["status"]),
        (&"key_reused".into(), &422.into())
    );
}

/// The names of all metrics, without the suffixes of histograms.
async fn names() -> BTreeSet<String> {
    let house = House::new(&numbers(""));
    let told = metrics(&house).await;
    let types = told.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.map(|line| line.split(' ').next().unwrap().to_owned());
    names.filter(|name| !name.starts_with("process_")).collect()
}

fn contrib(name: &str) -> String {
    std::fs::read_to_string(format!("{}/contrib/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_name_only_existing_metrics() {
    let there = names().await;
    for file in ["grafana.json", "alerts.yml"] {
        let text = contrib(file);
        let mut named = 0;
        for (at, _) in text.match_indices("hookonce_") {
            let name: String = text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            assert!(there.contains(&name) || there.contains(base), "{file} names {name}");
            named += 1;
        }
        assert!(named > 5, "{file} names no metric");
    }
    let grafana: serde_json::Value = serde_json::from_str(&contrib("grafana.json")).unwrap();
    assert!(grafana["panels"].as_array().unwrap().len() > 5);
}

#[tokio::test]
async fn every_metric_is_described_and_nothing_else_is() {
    let text = std::fs::read_to_string(format!("{}/docs/watching.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `hookonce_"));
    let described: BTreeSet<_> =
        rows.map(|row| format!("hookonce_{}", row.split(['`', '{']).next().unwrap())).collect();
    assert_eq!(described, names().await);
}

#[tokio::test]
async fn a_collector_that_asks_for_openmetrics_gets_it_and_the_node_label_outlives_a_restart() {
    let mut house = House::new(&numbers(""));
    let label = |page: &str| page.split("node=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    let host = label(&metrics(&house).await).rsplit_once(':').unwrap().0.to_owned();
    house.stop();
    house.start();
    assert_eq!(label(&metrics(&house).await).rsplit_once(':').unwrap().0, host);
    let accept = [("accept", "application/openmetrics-text;version=1.0.0")];
    let answer = crate::request(&house, "GET", "/metrics", &accept, "").await;
    assert_eq!(answer.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let page = String::from_utf8(answer.body).unwrap();
    assert!(page.contains("# TYPE hookonce_deliveries counter\n") && page.ends_with("# EOF\n"), "{page}");
}

#[tokio::test]
async fn a_receiver_with_an_open_circuit_shows_in_the_metrics() {
    let house = House::new(
        "[source.s]\npath = \"/in\"\nverify = { scheme = \"github\", secret = { env = \"SECRET\" } }\n\
         [[source.s.route]]\nname = \"away\"\nforward = { url = \"http://127.0.0.1:1/\" }\n\
         retry = { attempts = 9, first = \"1ms\", longest = \"2ms\" }\n",
    );
    house.deliver("/in", &Sent::github("push", "d1", "{}")).await;
    let open = r#"hookonce_receivers_circuit_open{source="s",route="away"} 1"#;
    let start = std::time::Instant::now();
    loop {
        let told = house.metrics().await;
        if told.lines().any(|line| line == open) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{told}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn prometheus_reads_the_metrics_and_the_alerts() {
    let promtool = format!("{}/target/tools/prometheus/usr/bin/promtool", env!("CARGO_MANIFEST_DIR"));
    if !std::path::Path::new(&promtool).exists() {
        assert!(std::env::var_os("HOOKONCE_TOOLS").is_none(), "promtool is missing; ./test installs it");
        eprintln!("promtool is missing; ./test installs it");
        return;
    }
    let house = House::new(&numbers(""));
    house.deliver(IN, &number("d1", 1, "a")).await;
    house.quiet().await;
    std::fs::write(house.path("metrics"), metrics(&house).await).unwrap();
    let checked = Command::new(&promtool)
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(house.path("metrics")).unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() || checked.status.code() == Some(3), "{said}");
    assert!(!said.contains("error"), "{said}");
    let rules = format!("{}/contrib/alerts.yml", env!("CARGO_MANIFEST_DIR"));
    let checked = Command::new(&promtool).args(["check", "rules", &rules]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn counting_a_delivery_costs_a_small_part_of_judging_it() {
    use hookonce::decide::claim::MatchedBy;
    use hookonce::decide::delivery::{Delivery, borrow_headers};
    use hookonce::decide::id::{Digest, EventId};
    use hookonce::decide::judge::{self, judge};
    use hookonce::decide::time::Timestamp;
    use hookonce::internals::observe::{DeliveryRecord, DeliveryVerdict};
    use hookonce::internals::observe::{Metrics, StoreOp};
    let config =
        hookonce::internals::config::parse(&numbers(""), "t", std::path::Path::new("/"), &|_| Some(SECRET.into()))
            .unwrap();
    let (meter, source) = (Metrics::new(&config.sources), &config.sources[0]);
    let (digest, many) = (Digest::of(b"body"), 500_u32);
    let ids: Vec<String> = (0..100).map(|n| format!("f168a0a0-0440-11f1-9b3f-a185afe7ee{n:02}")).collect();
    let count = |n: u32| {
        meter.secret_used("numbers", 0);
        meter.check_id_conflict("numbers", &ids[n as usize % 100], &digest);
        meter.duplicate("numbers", &MatchedBy::Delivery);
        meter.store_call(StoreOp::Claim, std::time::Duration::from_micros(u64::from(n % 5000)), true);
        meter.batch(7);
        meter.delivery("numbers", DeliveryVerdict::Duplicate, Timestamp(i64::from(n)), || {
            DeliveryRecord::new(None, DeliveryVerdict::Duplicate, Timestamp(0))
        });
    };
    let one = number("d1", 1, "a");
    let headers: Vec<_> = one.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    let body = one.body.into();
    let take = |_| {
        let (at, path) = (Timestamp(0), source.path.shown());
        let delivery = Delivery { path, query: "", headers: &borrow_headers(&headers), body: &body, at, wall: at };
        let verdict = judge(source, &delivery, &mut || EventId([1; 16]));
        assert!(matches!(verdict, judge::Verdict::Events(_)), "{verdict:?}");
    };
    // CPU time, not elapsed time, because other processes use the CPU too; and both in turns, because a shared CPU is
    // not always equally fast.
    let spent = |what: &dyn Fn(u32)| {
        let now = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            std::time::Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
        };
        let start = now();
        (0..many).for_each(what);
        now().saturating_sub(start)
    };
    let (mut counting, mut judging) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    for _ in 0..20 {
        counting += spent(&count);
        judging += spent(&take);
    }
    println!("to count one delivery takes {:?}, to judge it {:?}", counting / (20 * many), judging / (20 * many));
    assert!(counting * 10 < judging, "{counting:?} of {judging:?}");
}
