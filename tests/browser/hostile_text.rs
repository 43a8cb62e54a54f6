//! Hostile texts: as fields, delivery ids, bodies and output, on every page.

use crate::browser::Browser;
use crate::support::{House, Sent};
use crate::{ORDER, visit};
use serde_json::json;
use std::collections::BTreeSet;

/// What an attacker would run.
const DEED: &str = "window.broken=1";

/// Ways to run it, in markup, attributes, addresses, styles and templates.
const WAYS: [&str; 30] = [
    "<script>DEED</script>",
    "<img src=x onerror=DEED>",
    "<svg onload=DEED>",
    "<svg><script>DEED</script></svg>",
    "<iframe src='javascript:DEED'></iframe>",
    "<iframe srcdoc='<script>parent.DEED</script>'></iframe>",
    "<body onload=DEED>",
    "<details open ontoggle=DEED>",
    "<input autofocus onfocus=DEED>",
    "<video><source onerror=DEED></video>",
    "<audio src=x onerror=DEED>",
    "<object data='javascript:DEED'></object>",
    "<embed src='javascript:DEED'>",
    "<math><mi xlink:href='javascript:DEED'>x</mi></math>",
    "<a href='javascript:DEED'>press</a>",
    "<form action='javascript:DEED'><button>press</button></form>",
    "<base href='//elsewhere.invalid/'>",
    "<link rel=stylesheet href='//elsewhere.invalid/x.css'>",
    "<style>@import '//elsewhere.invalid/x.css';</style>",
    "<meta http-equiv=refresh content='0;url=javascript:DEED'>",
    "<template><script>DEED</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=DEED>'>",
    "<marquee onstart=DEED>",
    "<div style='background:url(javascript:DEED)'>",
    "<x onclick=DEED tabindex=1 autofocus onfocus=DEED>",
    "javascript:DEED//",
    "data:text/html,<script>DEED</script>",
    "{{constructor.constructor('DEED')()}}",
    "${DEED}",
    "<!--<img src='--><img src=x onerror=DEED>",
];

/// Ways to break out of the surrounding markup.
const BEFORE: [&str; 5] =
    ["", "\">", "'>", "</title></textarea></script>", "x\" autofocus onfocus=\"window.broken=1\" y=\""];

fn strings() -> Vec<String> {
    let all =
        WAYS.iter().flat_map(|way| BEFORE.iter().map(move |before| format!("{before}{}", way.replace("DEED", DEED))));
    all.collect()
}

/// Every text above is a field, a delivery id, part of the body, and output of the command.
const CONFIG: &str = r#"
[source.orders]
verify = { scheme = "github", secret = { env = "SECRET" } }
fields = { kind = "body.kind", customer = "body.customer" }
[[source.orders.route]]
name = "write"
run  = { steps = ["printf '%s\\n\\033[31m%s\\033[0m\\n' \"$HOOKONCE_FIELD_KIND\" \"$HOOKONCE_FIELD_KIND\"; exit 1"] }
"#;

/// Checks that no text has created an element, attribute or variable.
async fn is_untouched(page: &Browser, what: &str) {
    let strangers = "[...document.querySelectorAll('iframe,object,embed,img,video,audio,base,style,math,template,marquee,x,body script,body link,body meta,noscript')].map((e) => e.outerHTML)
        .concat([...document.querySelectorAll('*')].filter((e) => [...e.attributes].some((a) => a.name.startsWith('on'))).map((e) => e.outerHTML))
        .concat([...document.querySelectorAll('a[href]')].filter((e) => e.origin !== location.origin).map((e) => e.href))
        .concat(window.broken ? ['it ran'] : [])";
    assert_eq!(page.value(strangers).await, json!([]), "{what}");
    page.is_clean().await;
}

#[tokio::test]
async fn a_hundred_and_fifty_strings_stay_text_wherever_they_are_shown() {
    let strings = strings();
    assert_eq!(strings.iter().collect::<BTreeSet<_>>().len(), 150);
    let house = House::new(CONFIG);
    let page = visit(&house, "/").await;
    page.shows("#live", "Live").await;
    let mut events = Vec::new();
    for text in &strings {
        let body = json!({ "kind": text, "customer": text, text: { "inside": [text] } }).to_string();
        let answer = house.deliver(ORDER, &Sent::github("push", text, &body)).await;
        assert_eq!(answer.status, 202, "{text}");
        events.push(answer.event());
    }
    house.quiet().await;
    page.shows("#needs", "150 failed events").await;
    page.shows("#feed .what", "DEED".replace("DEED", DEED).as_str()).await;
    is_untouched(&page, "the overview").await;

    for (text, event) in strings.iter().zip(&events) {
        page.open(&house.admin_url(&format!("/events/{event}"))).await;
        page.shows(".output pre", text).await;
        page.shows(".json", "inside").await;
        page.shows(".timeline .t-accepted", text).await;
        is_untouched(&page, text).await;
    }
    page.open(&house.admin_url("/events")).await;
    page.until("document.querySelectorAll('tbody tr').length === 50").await;
    page.click(".more button").await;
    page.until("document.querySelectorAll('tbody tr').length === 100").await;
    page.click(".more button").await;
    page.until("document.querySelectorAll('tbody tr').length === 150").await;
    is_untouched(&page, "the list").await;
    page.open(&house.admin_url("/dead")).await;
    page.until("document.querySelectorAll('tbody tr').length === 50").await;
    is_untouched(&page, "the dead letters").await;

    // In the URL, and in refused deliveries.
    for text in strings.iter().step_by(7) {
        let sent = Sent::github("push", text, "{}").with("x-hub-signature-256", "sha256=00");
        assert_eq!(house.deliver(ORDER, &sent).await.status, 401);
        let query = text.bytes().fold(String::new(), |query, byte| query + &format!("%{byte:02x}"));
        page.open(&house.admin_url(&format!("/events?text={query}&source={query}&field.{query}={query}"))).await;
        page.until("document.querySelector('.notice, .empty')").await;
        is_untouched(&page, text).await;
        page.open(&house.admin_url(&format!("/events/{query}"))).await;
        page.until("document.querySelector('.notice, .event-head')").await;
        is_untouched(&page, text).await;
    }
    page.open(&house.admin_url("/turned-away")).await;
    page.shows("tbody .verdict-refused", "refused").await;
    is_untouched(&page, "what was turned away").await;
    page.open(&house.admin_url("/explain")).await;
    page.paste("textarea[name=headers]", &format!("X-GitHub-Delivery: {}", strings[6])).await;
    page.paste("textarea[name=body]", &json!({ "kind": strings[1], "customer": strings[2] }).to_string()).await;
    page.click("form button[type=submit]").await;
    page.shows(".walk", &strings[1]).await;
    is_untouched(&page, "the walk").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn a_bidirectional_control_character_is_shown_escaped() {
    let house = House::new(CONFIG);
    let turned = "amount \u{202e}001\u{2069} euro";
    let body = json!({ "kind": turned, "customer": turned }).to_string();
    let event = house.deliver(ORDER, &Sent::github("push", "turned", &body)).await.event();
    house.quiet().await;
    let page = visit(&house, &format!("/events/{event}")).await;
    let shown = r"amount \u202e001\u2069 euro";
    page.shows(".output pre", shown).await;
    page.shows(".json", shown).await;
    page.shows(".facts", shown).await;
    let turners = r"/[\u202a-\u202e\u2066-\u2069]/.test(document.documentElement.textContent)";
    assert_eq!(page.value(turners).await, json!(false));
    page.open(&house.admin_url("/events")).await;
    page.shows("tbody", shown).await;
    assert_eq!(page.value(turners).await, json!(false));
    page.is_clean().await;
    page.close(&house.admin_url("")).await;
}
