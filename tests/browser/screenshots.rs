//! The screenshots of the docs: the real page over real deliveries. `HOOKONCE_BLESS=1` writes them; with
//! `HOOKONCE_MINUTES=20` the deliveries take that long, so that the charts have something to show.

use crate::browser::Browser;
use crate::support::{House, Sent, until};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum size of a screenshot.
const BYTES_MAX: usize = 200 << 10;

/// A realistic config: deploys of images, payments, and CI uploads.
const CONFIG: &str = r#"
[source.ghcr]
preset = "github-package"
secret = { env = "SECRET" }
[[source.ghcr.route]]
name  = "deploy"
group = ["package"]
run   = { steps = ["sh deploy.sh"] }
retry = { attempts = 2, first = "200ms", longest = "1s" }

[source.payments]
verify = { scheme = "github", secret = { env = "SECRET" } }
fields = { type = "body.type", customer = "body.customer", amount = "body.amount" }
[[source.payments.route]]
name = "book"
run  = { steps = ["test $HOOKONCE_FIELD_CUSTOMER != cus_gone || { echo no such customer >&2; exit 127; }"] }

[source.ci]
verify = { scheme = "github", secret = { env = "SECRET" } }
fields = { repo = "body.repo", commit = "body.commit", run = "body.run" }
[source.ci.once]
per = [["repo", "commit", "run"]]
[[source.ci.route]]
name = "record"
"#;

const SCRIPT: &str = r#"
b=$(printf '\033[1m'); r=$(printf '\033[31m'); g=$(printf '\033[32m'); y=$(printf '\033[33m'); c=$(printf '\033[36m'); d=$(printf '\033[90m'); n=$(printf '\033[0m')
echo "$b\$ docker compose pull$n"
echo "$c[+] Pulling 3/3$n"
echo " $g✔$n web     Pulled  ${d}sha256:$(echo $HOOKONCE_FIELD_SHA | cut -c8-19)$n  ${c}3.1s$n"
echo " $g✔$n worker  Pulled  ${d}sha256:77c0b1f9a2d4$n  ${c}2.8s$n"
echo " $y!$n db      Skipped ${d}image is pinned$n"
echo "$b\$ docker compose up -d$n"
if [ $HOOKONCE_FIELD_PACKAGE = billing ]; then
  echo " $r✘$n Container billing-1  ${r}Error$n"
  echo "${r}${b}Error response from daemon:$n driver failed programming external connectivity:"
  echo "  Bind for 0.0.0.0:8443 failed: ${y}port is already allocated$n" >&2
  exit 1
fi
echo " $g✔$n Container worker-1  ${g}Started$n"
if [ $HOOKONCE_FIELD_PACKAGE = search ]; then
  echo " $c⠿$n Container web-1     ${y}Starting$n"
  until test -e go; do sleep 0.05; done
fi
echo " $g✔$n Container web-1     ${g}Started$n"
"#;

/// A push of an image, as GitHub sends it.
fn push(id: &str, package: &str, tag: &str, version: u64) -> Sent {
    let mut body: serde_json::Value = serde_json::from_str(&crate::support::package(tag, version, 0)).unwrap();
    body["registry_package"]["name"] = package.into();
    let (minute, second) = (version / 60 % 60, version % 60);
    body["registry_package"]["updated_at"] = format!("2026-02-07T16:{minute:02}:{second:02}Z").into();
    // Each delivery has its own bytes, as GitHub's have.
    body["registry_package"]["package_version"]["summary"] = id.into();
    Sent::github("registry_package", id, &body.to_string())
}

fn id(n: u64) -> String {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:08x}-0440-11f1-9b3f-{:012x}", mixed >> 32, mixed & 0xffff_ffff_ffff)
}

/// One moment of an ordinary day.
async fn moment(house: &House, n: u64) {
    let package = ["shop", "api", "worker", "shop", "site", "api"][usize::try_from(n % 6).unwrap()];
    let version = 100 + n;
    if n.is_multiple_of(3) {
        // One push is five deliveries, each with its own id; two are of other tags.
        for (i, tag) in ["latest", "main", "latest", "sha-4f6b3fa", "latest"].iter().enumerate() {
            house.deliver("/in/ghcr", &push(&id(n * 100 + i as u64), package, tag, version)).await;
        }
    }
    if n.is_multiple_of(2) {
        let body = json!({ "type": "invoice.paid", "customer": format!("cus_{:04x}", n * 7919 % 65_521), "amount": 400 + n * 37 % 9_000 });
        let sent = Sent::github("push", &id(n * 100 + 10), &body.to_string());
        house.deliver("/in/payments", &sent).await;
        if n.is_multiple_of(8) {
            house.deliver("/in/payments", &sent).await;
        }
    }
    if n % 4 == 1 {
        let body = json!({ "repo": "web", "commit": format!("{:07x}", n * 104_729 % 0xfff_ffff), "run": n });
        for i in 0..=(n % 3) {
            house
                .deliver(
                    "/in/ci",
                    &Sent::github(
                        "push",
                        &id(n * 100 + 20 + i),
                        &format!("{body}{}", " ".repeat(usize::try_from(i).unwrap())),
                    ),
                )
                .await;
        }
    }
    if n % 23 == 7 {
        house
            .deliver(
                "/in/ghcr",
                &push(&id(n * 100 + 30), "shop", "latest", version).with("x-hub-signature-256", "sha256=00"),
            )
            .await;
    }
}

async fn picture(page: &Browser, name: &str) {
    let picture = page.screenshot().await;
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000, "{name} is {} bytes", picture.len());
    assert!(picture.len() <= BYTES_MAX, "{name} is {} bytes", picture.len());
    if std::env::var_os("HOOKONCE_BLESS").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        std::fs::write(folder.join(format!("dashboard-{name}.png")), picture).unwrap();
    }
}

#[tokio::test]
async fn the_screenshots_can_be_taken() {
    let house = House::empty(CONFIG);
    std::fs::write(house.path("deploy.sh"), SCRIPT).unwrap();
    let mut house = house;
    house.start();
    let minutes: u64 = std::env::var("HOOKONCE_MINUTES").map_or(0, |minutes| minutes.parse().unwrap());
    let (start, length) = (Instant::now(), Duration::from_secs(60 * minutes));
    let mut n = 0;
    while if minutes > 0 { start.elapsed() < length } else { n < 60 } {
        moment(&house, n).await;
        n += 1;
        // Busy and quiet minutes, like a short day.
        let wave = (start.elapsed().as_secs_f64() / 97.0).sin() + (start.elapsed().as_secs_f64() / 31.0).sin() * 0.6;
        if minutes > 0 {
            tokio::time::sleep(Duration::from_secs_f64(0.9 - 0.5 * wave)).await;
        }
    }
    let billing = house.deliver("/in/ghcr", &push(&id(7), "billing", "latest", 90)).await.event();
    let gone = json!({ "type": "invoice.paid", "customer": "cus_gone", "amount": 900 });
    house.deliver("/in/payments", &Sent::github("push", &id(8), &gone.to_string())).await;
    house.quiet().await;
    let running = house.deliver("/in/ghcr", &push(&id(9), "search", "latest", 91)).await.event();
    until("a deploy to run", || house.count("running") == 1).await;

    let page = Browser::new(1280, 900).await;
    page.system_theme("light").await;
    page.open(&house.admin_url("/")).await;
    page.shows("#live", "Live").await;
    page.shows("#feed", "search").await;
    // Three duplicates that arrive while the page is open.
    for i in 0..3 {
        house.deliver("/in/ghcr", &push(&id(20 + i), "search", "latest", 91)).await;
    }
    page.until("document.querySelectorAll('#feed .verdict-duplicate').length >= 3").await;
    page.until("document.querySelectorAll('.plot svg').length === 3").await;
    picture(&page, "overview-light").await;
    page.system_theme("dark").await;
    picture(&page, "overview-dark").await;

    page.system_theme("light").await;
    page.open(&house.admin_url(&format!("/events/{billing}"))).await;
    page.shows(".timeline .verdict-failed", "failed").await;
    page.shows(".json", "action").await;
    picture(&page, "event").await;

    page.system_theme("dark").await;
    page.size(390, 844).await;
    page.open(&house.admin_url(&format!("/events/{running}"))).await;
    page.shows(".event-head .chip", "running").await;
    page.shows("#live-output", "Live output").await;
    picture(&page, "phone").await;
    std::fs::write(house.path("go"), "").unwrap();
    page.shows(".event-head .chip", "done").await;
    page.close(&house.admin_url("/")).await;
}
