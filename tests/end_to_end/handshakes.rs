//! Handshakes: what senders ask before they send, and what they hear.

use crate::rejections::raw;
use crate::support::{House, Sent, until};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{DescribedSignature, SignedText, SourceSecrets, TimestampLocation, VerificationScheme};

const SECRET: &str = "a secret of twenty-four b";
const VERIFY_TOKEN: &str = "a verify token of ours";

/// A source as a user may write it, for a sender without a preset.
const DROPBOX: &str = r#"
[source.dropbox]
verify    = { scheme = "hmac", header = "x-dropbox-signature", secret = { file = "secret" } }
handshake = { method = "GET", when = { "query.challenge" = "*" }, text = "query.challenge" }
[[source.dropbox.route]]
run = { steps = ["echo run >> runs"] }
"#;

/// A node with a source for each of these presets.
fn house(presets: &[&str]) -> House {
    let source = |preset: &&str| {
        if *preset == "dropbox" {
            return DROPBOX.to_owned();
        }
        let more = match *preset {
            "meta" => "verify_token = { file = \"token\" }\n",
            "trello" => "url = \"https://hooks.example.com/in/trello\"\n",
            _ => "",
        };
        format!(
            "[source.{preset}]\npreset = \"{preset}\"\nsecret = {{ file = \"secret\" }}\n{more}\
             [[source.{preset}.route]]\nrun = {{ steps = [\"echo run >> runs\"] }}\n"
        )
    };
    let mut house = House::empty(&presets.iter().map(source).collect::<String>());
    std::fs::write(house.path("secret"), SECRET).unwrap();
    std::fs::write(house.path("token"), VERIFY_TOKEN).unwrap();
    house.start();
    house
}

fn now() -> Timestamp {
    Timestamp(i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap())
}

/// A body that is signed as Slack and Zoom do.
fn signed(sender: &str, time: &str, body: &str) -> Sent {
    let scheme = VerificationScheme::new(DescribedSignature {
        prefix: "v0=".into(),
        over: SignedText::parse("v0:{timestamp}:{body}", None).unwrap(),
        timestamp: Some(TimestampLocation::At(
            hookonce::decide::field::FieldLocation::parse(&format!("header.{time}")).unwrap(),
        )),
        ..DescribedSignature::hmac(sender, SourceSecrets::new(vec![SECRET.as_bytes().to_vec()]))
    });
    Sent { headers: scheme.sign("", now(), body.as_bytes()), body: body.into() }
}

async fn get(house: &House, target: &str) -> String {
    raw(house, format!("GET {target} HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes()).await
}

fn check_nothing_is_written(house: &House) {
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
    assert_eq!(house.lines("runs"), Vec::<String>::new());
}

#[tokio::test]
async fn slacks_url_verification_is_echoed_if_it_is_signed() {
    let house = house(&["slack"]);
    let body =
        r#"{"type":"url_verification","token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}"#;
    let sent = signed("x-slack-signature", "x-slack-request-timestamp", body);
    let answer = house.deliver("/in/slack", &sent).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(String::from_utf8_lossy(&answer.body), "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P");
    let forged = Sent { body: body.replace("3eZ", "<b>").into(), ..sent };
    let refused = house.deliver("/in/slack", &forged).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    assert!(!String::from_utf8_lossy(&refused.body).contains("<b>"));
    check_nothing_is_written(&house);
    std::fs::write(house.path("body.json"), body).unwrap();
    let told = house.command(&["explain", "body.json", "--source", "slack"]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("it is a handshake of the sender, which is answered without an event"), "{told}");
    let told = "INFO handshake source=slack status=200 why=\"a handshake of the sender (POST) was answered\"";
    until("the log tells of the handshake", || house.log().contains(told)).await;
    let listed = house.ask("GET", "/api/deliveries?verdict=ignored").await.json();
    assert_eq!(listed["deliveries"][0]["reason"], "handshake", "{listed}");
}

#[tokio::test]
async fn zoom_gets_its_token_back_with_our_signature_of_it() {
    let house = house(&["zoom"]);
    let ask = |token: &str| {
        let body =
            format!(r#"{{"event":"endpoint.url_validation","payload":{{"plainToken":"{token}"}},"event_ts":1}}"#);
        signed("x-zm-signature", "x-zm-request-timestamp", &body)
    };
    let answer = house.deliver("/in/zoom", &ask("qgg8vlvZRS6UYooatFL8Aw")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    let hmac = DescribedSignature::hmac("x", SourceSecrets::new(vec![SECRET.as_bytes().to_vec()]));
    let made = VerificationScheme::new(hmac).proof("", now(), b"qgg8vlvZRS6UYooatFL8Aw");
    assert_eq!(answer.json()["plainToken"], "qgg8vlvZRS6UYooatFL8Aw");
    assert_eq!(answer.json()["encryptedToken"], made[0].1.as_str());
    // What could itself be a signed delivery is not signed; it is then an event like any other.
    let other = house.deliver("/in/zoom", &ask("v0:1:{}")).await;
    assert_eq!(other.status, 202, "{other:?}");
}

#[tokio::test]
async fn meta_hears_its_challenge_only_with_the_verify_token() {
    let house = house(&["meta"]);
    let target = |token: &str| {
        format!("/in/meta?hub.mode=subscribe&hub.verify_token={}&hub.challenge=1158201444", token.replace(' ', "+"))
    };
    let answer = get(&house, &target(VERIFY_TOKEN)).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n1158201444"), "{answer}");
    for wrong in ["", "another", &format!("{VERIFY_TOKEN}&hub.verify_token=x")] {
        let refused = get(&house, &target(wrong)).await;
        assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("allow: POST, GET\r\n"), "{refused}");
        assert!(!refused.contains("1158201444"), "{refused}");
    }
    check_nothing_is_written(&house);
    assert!(!house.log().contains(VERIFY_TOKEN));
}

#[tokio::test]
async fn a_challenge_in_the_query_is_echoed_as_plain_text_and_within_limits() {
    let house = house(&["dropbox", "x", "trello"]);
    let answer = get(&house, "/in/dropbox?challenge=%3Cscript%3E1").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n<script>1"), "{answer}");
    assert!(answer.contains("content-type: text/plain; charset=utf-8\r\n"), "{answer}");
    assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{answer}");
    let split = "a%0d%0aset-cookie:%20a";
    for wrong in [
        "",
        "?challenge=",
        "?challenge=1&challenge=2",
        &format!("?challenge={split}"),
        &format!("?challenge={}", "x".repeat(4097)),
    ] {
        let refused = get(&house, &format!("/in/dropbox{wrong}")).await;
        assert!(refused.starts_with("HTTP/1.1 405 "), "{wrong}: {refused}");
    }
    let answer = get(&house, "/in/x?crc_token=MWJhNmFlZTQ").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#"{"response_token":"sha256="#), "{answer}");
    // Nobody gets a delivery signed by asking for it.
    for body in ["%7B%22for_user_id%22%3A%221%22%7D", "%5B1%5D", "a.b", "v0:1"] {
        let refused = get(&house, &format!("/in/x?crc_token={body}")).await;
        assert!(refused.starts_with("HTTP/1.1 405 "), "{body}: {refused}");
    }
    // What was signed for whoever asked is not a delivery, even where a body is all that X signs.
    for body in ["1234", "true", "a=b"] {
        let answer = get(&house, &format!("/in/x?crc_token={}", body.replace('=', "%3D"))).await;
        let token: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let signature = token["response_token"].as_str().unwrap().to_owned();
        let headers = vec![("x-twitter-webhooks-signature".to_owned(), signature)];
        let forged = house.deliver("/in/x", &Sent { headers, body: body.into() }).await;
        assert_eq!(forged.status, 401, "{body}: {forged:?}");
    }
    let answer = raw(&house, b"HEAD /in/trello HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = raw(&house, b"HEAD /in/dropbox HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    check_nothing_is_written(&house);
}
