//! A captured delivery sent again under other headers can do nothing. Only the signed bytes decide how they are read,
//! and a kind of event counts only if the body has its shape.

use crate::receiver::Receiver;
use crate::support::{House, SECRET, Sent, package};
use crate::{GHCR, IN, ghcr};

const RUN: &str = "run = { steps = [\"echo $HOOKONCE_FIELD_VERSION_ID >> runs\"] }";

/// The bytes of a genuine `issue_comment` whose text an attacker wrote: it contains a form with a whole package
/// payload.
fn comment_with_a_form_in_it(id: &str) -> Sent {
    let payload = package("latest", 666, 1).bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
    let comment = serde_json::json!({
        "action": "created",
        "issue": { "number": 1 },
        "comment": { "body": format!("looks good&payload={payload}&thanks") },
        "repository": { "name": "jamiec_ts" },
    });
    Sent::github("issue_comment", id, &comment.to_string())
}

#[tokio::test]
async fn a_comment_with_a_form_in_its_text_never_runs_as_the_form() {
    const FORM: &str = "application/x-www-form-urlencoded";
    let written_out = format!(
        r#"
[source.ghcr]
path   = "{GHCR}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
when   = 'kind == "registry_package"'
[source.ghcr.fields]
kind       = "header.x-github-event"
version_id = "body.registry_package.package_version.id"
[[source.ghcr.route]]
{RUN}
"#
    );
    for config in [ghcr(RUN), written_out.clone(), written_out.replace("when   = 'kind == \"registry_package\"'", "")] {
        let house = House::new(&config);
        let genuine = comment_with_a_form_in_it("a");
        let forged = genuine.clone().with("x-github-event", "registry_package");
        for (n, content) in
            [FORM, "Application/X-WWW-Form-Urlencoded; charset=utf-8", "multipart/form-data; boundary=&"]
                .iter()
                .enumerate()
        {
            let sent = forged.clone().with("content-type", content).with("x-github-delivery", &format!("f{n}"));
            let answer = house.deliver(GHCR, &sent).await;
            assert_eq!((answer.status, &answer.json()["reason"]), (415, &"content_type".into()), "{answer:?}");
        }
        let answer = house.deliver(GHCR, &forged).await;
        assert_eq!((answer.status, &answer.json()["reason"]), (422, &"kind_mismatch".into()), "{answer:?}");
        assert_eq!((house.lines("runs"), house.sql("select count(*) from events")), (vec![], vec!["0".to_owned()]));
        // A genuine package, as JSON and as the form that GitHub sends, still runs.
        let json = Sent::package("b", "latest", 1, 1);
        let body = json.body.iter().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let form = Sent::github("registry_package", "c", &format!("payload={}", body.replace("%31", "1")));
        for sent in [json, form.with("content-type", FORM)] {
            let answer = house.deliver(GHCR, &sent).await;
            assert!((200..300).contains(&answer.status), "{answer:?}");
            house.quiet().await;
        }
        assert!(house.lines("runs").iter().all(|line| line == "1") && !house.lines("runs").is_empty());
    }
}

#[tokio::test]
async fn a_kind_chooses_a_route_only_where_the_body_has_its_shape() {
    let config = format!(
        r#"
[source.github]
path   = "{IN}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ kind = "header.x-github-event" }}
kinds  = {{ novelty = "body.novelty" }}
[[source.github.route]]
when = 'kind in ["pull_request", "issues", "push", "novelty"]'
run  = {{ steps = ["echo $HOOKONCE_FIELD_KIND >> runs"] }}
[[source.github.route]]
name = "others"
"#
    );
    let house = House::new(&config);
    let review = r#"{"action":"submitted","pull_request":{},"review":{},"repository":{}}"#;
    let comment = r#"{"action":"created","issue":{},"comment":{},"repository":{}}"#;
    let (pull, novelty) = (r#"{"number":1,"pull_request":{}}"#, r#"{"novelty":1}"#);
    for (n, (kind, body, status)) in [
        ("pull_request_review", review, 200..203),
        ("pull_request", review, 422..423),
        ("issues", comment, 422..423),
        ("push", comment, 422..423),
        ("pull_request", pull, 200..203),
        ("novelty", pull, 422..423),
        ("novelty", novelty, 200..203),
        ("unheard_of", pull, 422..423),
        ("", pull, 422..423),
    ]
    .into_iter()
    .enumerate()
    {
        let mut sent = Sent::github(kind, &n.to_string(), body);
        if kind.is_empty() {
            sent.headers.retain(|(name, _)| name != "x-github-event");
        }
        let answer = house.deliver(IN, &sent).await;
        assert!(status.contains(&answer.status), "{kind} {body}: {answer:?}");
        if answer.status == 422 {
            assert_eq!(answer.json()["reason"], "kind_mismatch");
        }
    }
    let unknown = house.deliver(IN, &Sent::github("unheard_of", "x", "{}")).await;
    let detail = unknown.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("kinds = { unheard_of ="), "{detail}");
    house.quiet().await;
    let mut runs = house.lines("runs");
    runs.sort();
    assert_eq!(runs, ["novelty", "pull_request"]);
}

#[tokio::test]
async fn a_compressed_body_is_refused_with_words_that_say_so() {
    let config = format!(
        r#"
[source.hook]
path   = "{IN}"
verify = {{ scheme = "hmac", secret = {{ env = "SECRET" }}, header = "x-hub-signature-256", prefix = "sha256=" }}
fields = {{ n = "body.n" }}
[[source.hook.route]]
run = {{ steps = ["echo run >> runs"] }}
[source.github]
preset = "github"
path   = "/in/github"
secret = {{ env = "SECRET" }}
[[source.github.route]]
run = {{ steps = ["echo run >> runs"] }}
"#
    );
    let house = House::new(&config);
    // {"n":1}, as gzip -n packs it.
    let packed = hex::decode("1f8b0800000000000203ab56ca53b232ac05007e3b4bd407000000").unwrap();
    for path in [IN, "/in/github"] {
        let mut sent = Sent::github("push", "x", "{}");
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SECRET.as_bytes());
        let signature = format!("sha256={}", hex::encode(aws_lc_rs::hmac::sign(&key, &packed)));
        sent.body = packed.clone();
        let sent = sent.with("x-hub-signature-256", &signature).with("content-encoding", "gzip");
        let answer = house.deliver(path, &sent).await;
        assert_eq!((answer.status, &*answer.word()), (400, "refused"), "{path}: {answer:?}");
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains("compressed bodies are not read: turn compression off"), "{path}: {detail}");
    }
    assert_eq!(house.lines("runs"), Vec::<String>::new());
}

#[tokio::test]
async fn a_receiver_never_gets_signed_json_under_a_header_that_calls_it_something_else() {
    let receiver = Receiver::open(&[(200, "ok")]).await;
    let config = format!(
        r#"
[source.hook]
path     = "{IN}"
verify   = {{ scheme = "hmac", secret = {{ env = "SECRET" }}, header = "x-hub-signature-256", prefix = "sha256=" }}
delivery = "header.x-github-delivery"
[[source.hook.route]]
forward = {{ url = "{}" }}
"#,
        receiver.url
    );
    let house = House::new(&config);
    let sent = |id: &str| Sent::github("any", id, r#"{"text":"x&admin=true&y"}"#);
    for (id, content) in [("a", "application/x-www-form-urlencoded"), ("b", "application/json; charset=utf-7")] {
        assert_eq!(house.deliver(IN, &sent(id).with("content-type", content)).await.status, 415, "{content}");
    }
    assert_eq!(house.deliver(IN, &sent("c").with("content-encoding", "br")).await.status, 400);
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
    assert_eq!(house.deliver(IN, &sent("d")).await.status, 202);
    house.quiet().await;
    assert_eq!(receiver.calls().len(), 1);
}
