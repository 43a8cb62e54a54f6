//! Secrets that a sender brings by its first request, which nothing can sign yet: Notion's is shown to an operator, Asana's
//! is taken while one waits.

use crate::support::{House, Sent, until};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{DescribedSignature, SourceSecrets, VerificationScheme};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Output, Stdio};

const TOKEN: &str = "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl";
const HOOK_SECRET: &str = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";

/// A node with a source of this preset, whose secret is not there yet.
fn house(preset: &str) -> House {
    House::new(&format!(
        "[source.{preset}]\npreset = \"{preset}\"\nsecret = {{ file = \"{preset}.secret\" }}\n\
         [[source.{preset}.route]]\nrun = {{ steps = [\"echo run >> runs\"] }}\n"
    ))
}

/// An operator that waits for the handshake of this source.
fn operator(house: &House, source: &str) -> Child {
    let mut command = house.command(&["handshake", source, "--admin", &house.admin_url("")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(operator: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = operator.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

async fn handshakes(house: &House) -> serde_json::Value {
    house.ask("GET", "/api/handshakes").await.json()["handshakes"][0].clone()
}

async fn is_awaited(house: &House) {
    while handshakes(house).await["awaited"] != true {
        tokio::task::yield_now().await;
    }
}

fn signed(header: &str, prefix: &str, secret: &str, body: &str) -> Sent {
    let scheme = VerificationScheme::new(DescribedSignature {
        prefix: prefix.into(),
        ..DescribedSignature::hmac(header, SourceSecrets::new(vec![secret.as_bytes().to_vec()]))
    });
    Sent { headers: scheme.sign("", Timestamp(0), body.as_bytes()), body: body.into() }
}

fn json_sent(headers: &[(&str, &str)], body: &str) -> Sent {
    let typed = [("content-type", "application/json")];
    let all = typed.iter().chain(headers).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Sent { headers: all.collect(), body: body.into() }
}

/// The secret is in no log, no file but its own, and no answer about deliveries.
async fn check_unknown(house: &House, secret: &str) {
    assert!(!house.log().contains(secret), "{}", house.log());
    for path in ["/api/deliveries", "/api/handshakes", "/api/sources", "/api/overview", "/metrics"] {
        let answer = house.ask("GET", path).await;
        assert!(!String::from_utf8_lossy(&answer.body).contains(secret), "{path}");
    }
    for file in ["hookonce.db", "hookonce.db-wal"] {
        let bytes = std::fs::read(house.path(file)).unwrap_or_default();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{file}");
    }
}

#[tokio::test]
async fn notions_token_is_shown_once_to_an_operator_and_configures_nothing() {
    let house = house("notion");
    let event =
        r#"{"id":"1","timestamp":"2026-02-07T16:20:40Z","type":"page.created","entity":{"id":"p","type":"page"}}"#;
    let event = signed("x-notion-signature", "sha256=", TOKEN, event);
    let early = house.deliver("/in/notion", &event).await;
    assert_eq!((early.status, early.header("retry-after")), (503, Some("5")), "{early:?}");
    let why = "WARN unavailable source=notion status=503 reason=secret_missing why=\"there is no secret in ";
    until("the log says why", || house.log().contains(why)).await;

    let token = json_sent(&[], &format!(r#"{{"verification_token":"{TOKEN}"}}"#));
    let answer = house.deliver("/in/notion", &token).await;
    assert_eq!((answer.status, answer.body.len()), (200, 0), "{answer:?}");
    let told = "INFO handshake source=notion status=200 why=\"a handshake of the sender brought a value; \
                `hookonce handshake notion` shows it once\"";
    until("the log tells of it", || house.log().contains(told)).await;
    let waits = handshakes(&house).await;
    assert!(waits["brings"] == "shown" && waits["arrived_at"].is_string(), "{waits}");
    let listed = house.ask("GET", "/api/deliveries?verdict=ignored").await.json();
    assert_eq!(listed["deliveries"][0]["reason"], "handshake", "{listed}");

    let (code, out, said) = ended(operator(&house, "notion"));
    assert_eq!((code, out.as_str()), (Some(0), &*format!("{TOKEN}\n")), "{said}");
    assert!(said.contains("is not kept: give it back to the sender"), "{said}");
    let again = house.ask("POST", "/api/handshakes/notion?wait=0").await.json();
    assert_eq!((&again["came"], &again["value"]), (&false.into(), &serde_json::Value::Null), "{again}");
    assert_eq!(house.deliver("/in/notion", &event).await.status, 503, "nothing was configured by it");

    // An operator writes it: no restart is needed.
    std::fs::write(house.path("notion.secret"), format!("{TOKEN}\n")).unwrap();
    assert_eq!(house.deliver("/in/notion", &event).await.status, 202);
    let forged = signed("x-notion-signature", "sha256=", "another secret of theirs", "{\"id\":\"2\"}");
    assert_eq!(house.deliver("/in/notion", &forged).await.status, 401);
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["run"]);
    check_unknown(&house, TOKEN).await;
}

#[tokio::test]
async fn asanas_secret_is_taken_once_and_only_while_an_operator_waits() {
    let mut house = house("asana");
    let hook = |secret: &str| json_sent(&[("x-hook-secret", secret)], "{}");
    let early = house.deliver("/in/asana", &hook("a secret of somebody else")).await;
    assert_eq!((early.status, early.header("x-hook-secret")), (503, None), "blanks are in no secret: {early:?}");
    let early = house.deliver("/in/asana", &hook("somebody-elses")).await;
    assert_eq!((early.status, early.header("x-hook-secret")), (401, None), "{early:?}");
    let told = "WARN refused   source=asana status=401 reason=handshake why=\"a handshake of the sender brought a secret \
                that nobody waited for; `hookonce handshake asana` waits\"";
    until("the log tells of it", || house.log().contains(told)).await;
    assert!(!house.path("asana.secret").exists());

    // Who stops to wait takes nothing.
    let mut gone = operator(&house, "asana");
    is_awaited(&house).await;
    gone.kill().unwrap();
    gone.wait().unwrap();
    while handshakes(&house).await["awaited"] == true {
        tokio::task::yield_now().await;
    }
    assert_eq!(house.deliver("/in/asana", &hook("somebody-elses")).await.status, 401);

    let waiting = operator(&house, "asana");
    is_awaited(&house).await;
    let second = ended(operator(&house, "asana"));
    assert_eq!((second.0, second.1.as_str()), (Some(1), ""), "{second:?}");
    assert!(second.2.contains("somebody else waits for it already"), "{second:?}");
    let answer = house.deliver("/in/asana", &hook(HOOK_SECRET)).await;
    assert_eq!((answer.status, answer.header("x-hook-secret")), (200, Some(HOOK_SECRET)), "{answer:?}");
    let (code, out, said) = ended(waiting);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("asana.secret; its deliveries are accepted now") && !out.contains(HOOK_SECRET), "{out}");
    let file = house.path("asana.secret");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{HOOK_SECRET}\n"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // A second secret is not taken.
    let refused = ended(operator(&house, "asana"));
    assert!(refused.0 == Some(1) && refused.2.contains("remove it to take another"), "{refused:?}");
    assert_eq!(house.deliver("/in/asana", &hook("a-second-one")).await.status, 401);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{HOOK_SECRET}\n"));

    let event = r#"{"events":[{"action":"changed","created_at":"2026-02-07T16:20:40Z","resource":{"gid":"1"}}]}"#;
    let event = signed("x-hook-signature", "", HOOK_SECRET, event);
    assert_eq!(house.deliver("/in/asana", &event).await.status, 202);
    let heartbeat = house.deliver("/in/asana", &signed("x-hook-signature", "", HOOK_SECRET, r#"{"events":[]}"#)).await;
    assert_eq!((heartbeat.status, heartbeat.word()), (200, "ignored".to_owned()), "{heartbeat:?}");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["run"]);
    check_unknown(&house, HOOK_SECRET).await;

    // With the file there, the next start is like any other.
    house.stop();
    house.start();
    assert_eq!(house.deliver("/in/asana", &event).await.word(), "duplicate");
    assert!(!house.log().contains("has no secret yet"), "{}", house.log());
}

#[tokio::test]
async fn a_command_for_a_source_that_brings_nothing_says_so() {
    let house = House::new(
        "[source.s]\nverify = { scheme = \"github\", secret = { env = \"SECRET\" } }\n[source.asana]\n\
         preset = \"asana\"\nsecret = { env = \"SECRET\" }\n",
    );
    for (source, expected) in [
        ("s", "no handshake of this source brings a value"),
        ("nowhere", "the node has no source `nowhere`"),
        ("asana", "the source's secret is not one file"),
    ] {
        let (code, out, said) = ended(operator(&house, source));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{said}");
        assert!(said.contains(expected) && !said.contains("waiting"), "{said}");
    }
    let mut away = house.command(&["handshake", "asana", "--store", "hookonce.db"]);
    assert_eq!(away.output().unwrap().status.code(), Some(2));
    for wrong in ["wait=601", "wait=x", "wait=", "wait=-1", "await=1", "wait=1&wait=2"] {
        assert_eq!(house.ask("POST", &format!("/api/handshakes/asana?{wrong}")).await.status, 400, "{wrong}");
    }
}
