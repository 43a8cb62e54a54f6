//! Quarantined messages, on the page of rejected deliveries.

use crate::LONG;
use crate::server::Nats;
use crate::support::{House, until};
use crate::visit;

#[tokio::test(flavor = "multi_thread")]
async fn quarantined_messages_are_shown_with_the_reason_and_their_beginning_as_text() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let house = House::new(&format!(
        r#"
[source.hooks]
from   = {{ nats = "{}", stream = "GITHUB", create = true }}
verify = {{ scheme = "carried", of = "github", secret = {{ env = "SECRET" }} }}
"#,
        nats.url()
    ));
    let page = visit(&house, "/turned-away").await;
    page.says("Nothing was turned away").await;
    page.lacks("#quarantine").await;
    let forged = [("X-Hub-Signature-256".to_owned(), "sha256=00".to_owned())];
    nats.put("github.push", &forged, b"<script>window.broken=1</script>").await;
    until("it to be given up", || house.log().contains("quarantined")).await;
    page.open(&house.admin_url("/turned-away")).await;
    page.shows("#quarantine h2", "1 message in quarantine").await;
    page.shows("#quarantine li", "bad signature").await;
    page.shows("#quarantine li", "github.push · 32 B").await;
    page.shows("#quarantine code", "GITHUB:1@").await;
    page.click("#quarantine summary").await;
    page.shows("#quarantine pre", "<script>window.broken=1</script>").await;
    assert_eq!(page.value("window.broken ?? null").await, serde_json::Value::Null);
    page.open(&house.admin_url("/turned-away?verdict=ignored")).await;
    page.says("Nothing was turned away").await;
    page.lacks("#quarantine").await;
    page.close(&house.admin_url("/")).await;
}
