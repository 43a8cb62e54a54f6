//! Handshakes: those that were answered, and what a sender brought, which is shown once.

use crate::support::{House, Sent, until};
use crate::visit;

const TOKEN: &str = "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_a_sender_brought_is_shown_once_and_the_handshake_is_listed() {
    let house = House::new(
        "[source.notion]\npreset = \"notion\"\nsecret = { file = \"notion.secret\" }\n[[source.notion.route]]\n\
         run = { steps = [\"true\"] }\n",
    );
    let page = visit(&house, "/sources").await;
    page.says("Its deliveries are not accepted: there is no secret in").await;
    page.says("Nothing waits to be seen. hookonce handshake notion waits for it.").await;
    let body = format!(r#"{{"verification_token":"{TOKEN}"}}"#);
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    assert_eq!(house.deliver("/in/notion", &Sent { headers, body: body.into() }).await.status, 200);
    until("the log tells of it", || house.log().contains("INFO handshake source=notion")).await;
    // The page hears of it without a reload.
    page.says("A value arrived").await;
    page.click("button.tiny:not(.copy)").await;
    page.shows("#brought", TOKEN).await;
    page.says("It is shown only now.").await;
    page.open(&house.admin_url("/sources")).await;
    page.says("Nothing waits to be seen.").await;
    page.open(&house.admin_url("/turned-away?verdict=ignored")).await;
    page.says("a handshake of the sender").await;
    page.says("brought a value; `hookonce handshake notion` shows it once").await;
    page.close(&house.admin_url("/")).await;
    assert!(!house.log().contains(TOKEN));
}
