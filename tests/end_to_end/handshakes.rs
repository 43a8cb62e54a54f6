//! Handshakes: what senders ask before they send, and what they hear.

use crate::rejections::raw;
use crate::support::{House, Sent, until};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{DescribedSignature, SignedText, SourceSecrets, TimestampLocation, VerificationScheme};

const SECRET: &str = "a secret of twenty-four b";
const VERIFY_TOKEN: &str = "a verify token of ours";

/// A node with a source for each of these presets.
fn house(presets: &[&str]) -> House {
    let source = |preset: &&str| {
        let more = match *preset {
            "meta" => "verify_token = { file = \"token\" }\n",
            "monday" => "audience = \"https://hooks.example.com\"\n",
            "trello" => "url = \"https://hooks.example.com/in/trello\"\n",
            _ => "",
        };
        // A secret that signs answers is for one source.
        let secret = if *preset == "x" { "secret of x" } else { "secret" };
        format!(
            "[source.{preset}]\npreset = \"{preset}\"\nsecret = {{ file = \"{secret}\" }}\n{more}\
             [[source.{preset}.route]]\nrun = {{ steps = [\"echo run >> runs\"] }}\n"
        )
    };
    let mut house = House::empty(&presets.iter().map(source).collect::<String>());
    std::fs::write(house.path("secret"), SECRET).unwrap();
    std::fs::write(house.path("secret of x"), "another secret of ours alone").unwrap();
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
    // What could itself be a signed delivery is not signed, and what is too long is not sent back: no event either.
    for unfit in ["v0:1:{}", "", &"a".repeat(5_000)] {
        let other = house.deliver("/in/zoom", &ask(unfit)).await;
        assert_eq!((other.status, &*other.word()), (400, "refused"), "{unfit} {other:?}");
        assert_eq!(other.json()["reason"], "malformed");
    }
    check_nothing_is_written(&house);
    let file = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"v0:1:{}"}}"#;
    std::fs::write(house.path("asked.json"), file).unwrap();
    let explained = house.command(&["explain", "asked.json"]).output().unwrap();
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("body.payload.plainToken is nothing that is sent back"), "{explained}");
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
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        assert!(!refused.contains("1158201444"), "{refused}");
    }
    check_nothing_is_written(&house);
    assert!(!house.log().contains(VERIFY_TOKEN));
}

#[tokio::test]
async fn meta_is_told_what_is_wrong_with_its_question() {
    let house = house(&["meta"]);
    let token = VERIFY_TOKEN.replace(' ', "+");
    let ours = format!("hub.mode=subscribe&hub.verify_token={token}");
    let not_sent_back = "hub.challenge cannot be sent back";
    let not_ours = "hub.verify_token is missing or not the source's verify_token";
    let asked = [
        (401, not_ours, "hub.mode=subscribe&hub.challenge=777&hub.verify_token=bad".to_owned()),
        (401, not_ours, "hub.mode=subscribe&hub.challenge=777".to_owned()),
        (401, "hub.mode is missing or not what `when` says", format!("hub.challenge=777&hub.verify_token={token}")),
        (400, not_sent_back, ours.clone()),
        (400, not_sent_back, format!("{ours}&hub.challenge=777&hub.challenge=778")),
        (400, not_sent_back, format!("{ours}&hub.challenge={}", "7".repeat(4097))),
        (400, not_sent_back, format!("{ours}&hub.challenge=777%ff")),
    ];
    for (nth, (status, why, query)) in asked.iter().enumerate() {
        let refused = get(&house, &format!("/in/meta?{query}")).await;
        assert!(refused.starts_with(&format!("HTTP/1.1 {status} ")), "{query}: {refused}");
        assert!(refused.ends_with(r#"{"status":"refused","reason":"handshake"}"#), "{query}: {refused}");
        let told = format!("WARN refused   source=meta status={status} reason=handshake why=\"query.{why}");
        let as_before = asked[..nth].iter().filter(|before| (before.0, before.1) == (*status, *why)).count();
        until("the log tells what is wrong", || house.log().matches(&told).count() == as_before + 1).await;
    }
    for plain in ["/in/meta", "/in/meta?utm=1"] {
        let refused = get(&house, plain).await;
        assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("allow: POST, GET\r\n"), "{refused}");
    }
    let log = house.log();
    assert!(!log.contains(VERIFY_TOKEN) && !log.contains(&token) && !log.contains("777"), "{log}");
    check_nothing_is_written(&house);
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
        let status = if wrong.is_empty() { 405 } else { 400 };
        assert!(refused.starts_with(&format!("HTTP/1.1 {status} ")), "{wrong}: {refused}");
    }
    let answer = get(&house, "/in/x?crc_token=MWJhNmFlZTQ").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#"{"response_token":"sha256="#), "{answer}");
    // Nobody gets a delivery signed by asking for it.
    for body in ["%7B%22for_user_id%22%3A%221%22%7D", "%5B1%5D", "a.b", "v0:1"] {
        let refused = get(&house, &format!("/in/x?crc_token={body}")).await;
        assert!(refused.starts_with("HTTP/1.1 400 "), "{body}: {refused}");
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

/// A node with a source for Discord, whose key is this pair's.
fn discord_house(preset: &str, pair: &Ed25519KeyPair) -> House {
    let key = hex::encode(pair.public_key());
    House::new(&format!(
        "[source.discord]\npreset = \"{preset}\"\npublic_key = \"{key}\"\n[[source.discord.route]]\n\
         run = {{ steps = [\"echo run >> runs\"] }}\n"
    ))
}

/// A body that is signed as Discord does, at this time.
fn discord_signed(pair: &Ed25519KeyPair, seconds: i64, body: &str) -> Sent {
    let signature = hex::encode(pair.sign(format!("{seconds}{body}").as_bytes()));
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("x-signature-ed25519", signature),
        ("x-signature-timestamp", seconds.to_string()),
    ];
    Sent { headers: headers.map(|(name, value)| (name.to_owned(), value)).into(), body: body.into() }
}

fn seconds_now() -> i64 {
    now().0 / 1_000_000
}

#[tokio::test]
async fn discord_gets_a_pong_for_a_signed_ping_and_a_401_for_the_bad_signatures_that_it_tries() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let house = discord_house("discord", &pair);
    let ping = r#"{"application_id":"1","id":"2","token":"t","type":1,"version":1}"#;
    let sent = discord_signed(&pair, seconds_now(), ping);
    let answer = house.deliver("/in/discord", &sent).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    assert_eq!(answer.body, br#"{"type":1}"#);
    let other = Ed25519KeyPair::generate().unwrap();
    let unsigned = Sent { headers: vec![("content-type".into(), "application/json".into())], body: ping.into() };
    for forged in [
        discord_signed(&other, seconds_now(), ping),
        discord_signed(&pair, seconds_now() - 3_600, ping),
        Sent { body: ping.replace("\"2\"", "\"3\"").into(), ..sent.clone() },
        unsigned,
    ] {
        let refused = house.deliver("/in/discord", &forged).await;
        assert_eq!(refused.status, 401, "{refused:?}");
    }
    check_nothing_is_written(&house);
    // A command of a user is an event, and the same one again is not.
    let command = ping.replace("\"type\":1", "\"type\":2");
    let first = house.deliver("/in/discord", &discord_signed(&pair, seconds_now(), &command)).await;
    assert_eq!(first.status, 200, "{first:?}");
    let again = house.deliver("/in/discord", &discord_signed(&pair, seconds_now() + 1, &command)).await;
    assert_eq!(again.status, 200, "{again:?}");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["run"]);
}

#[tokio::test]
async fn discords_webhook_events_get_an_empty_204_for_a_ping_and_for_an_event() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let house = discord_house("discord-events", &pair);
    let ping = r#"{"version":1,"application_id":"1","type":0}"#;
    let answer = house.deliver("/in/discord", &discord_signed(&pair, seconds_now(), ping)).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "Discord wants one: {answer:?}");
    let forged = Sent { body: ping.replace(":0", ":1").into(), ..discord_signed(&pair, seconds_now(), ping) };
    assert_eq!(house.deliver("/in/discord", &forged).await.status, 401);
    check_nothing_is_written(&house);
    let event = r#"{"version":1,"application_id":"1","type":1,"event":{"type":"APPLICATION_AUTHORIZED","timestamp":"2026-02-07T16:20:40.442","data":{}}}"#;
    for at in [seconds_now(), seconds_now() + 1] {
        let answer = house.deliver("/in/discord", &discord_signed(&pair, at, event)).await;
        assert_eq!((answer.status, answer.body.len()), (204, 0), "{answer:?}");
    }
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["run"], "an event that is signed again is the same");
}

#[tokio::test]
async fn cloudevents_are_allowed_for_the_origin_that_asks_and_identified_by_source_and_id() {
    let house = house(&["cloudevents", "cloudevents-binary"]);
    let options = async |headers: &str| {
        raw(&house, format!("OPTIONS /in/cloudevents HTTP/1.1\r\nhost: h\r\n{headers}\r\n").as_bytes()).await
    };
    let answer = options("WebHook-Request-Origin: eventemitter.example.com\r\nWebHook-Request-Rate: 120\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for header in [
        "webhook-allowed-origin: eventemitter.example.com\r\n",
        "webhook-allowed-rate: *\r\n",
        "allow: POST, OPTIONS\r\n",
        "x-content-type-options: nosniff\r\n",
    ] {
        assert!(answer.contains(header), "{header} is not in {answer}");
    }
    let (long, twice) = ("x".repeat(4097), "WebHook-Request-Origin: a\r\nWebHook-Request-Origin: b\r\n");
    for wrong in [
        "",
        "WebHook-Request-Origin: \r\n",
        "WebHook-Request-Origin: a b\r\n",
        "WebHook-Request-Origin: \u{e9}\r\n",
        &format!("WebHook-Request-Origin: {long}\r\n"),
        twice,
    ] {
        let refused = options(wrong).await;
        let status = if wrong.is_empty() { 405 } else { 400 };
        let is_refused = refused.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(is_refused && !refused.contains("allowed-origin"), "{wrong}: {refused}");
    }
    check_nothing_is_written(&house);
    let event = |id: &str, source: &str| {
        format!(r#"{{"specversion":"1.0","type":"t","source":"{source}","id":"{id}","data":{{"id":"other"}}}}"#)
    };
    let bearer = ("authorization".to_owned(), format!("Bearer {SECRET}"));
    let typed = ("content-type".to_owned(), "application/cloudevents+json".to_owned());
    let query = format!("/in/cloudevents?access_token={}", SECRET.replace(' ', "+"));
    for (path, headers, body, status, word) in [
        ("/in/cloudevents", vec![typed.clone(), bearer.clone()], event("1", "/a"), 202, "accepted"),
        (&query, vec![typed.clone()], event("1", "/a"), 202, "duplicate"),
        (&query, vec![typed.clone()], event("1", "/b"), 202, "accepted"),
        ("/in/cloudevents", vec![typed.clone()], event("2", "/a"), 401, "refused"),
        ("/in/cloudevents?access_token=wrong", vec![typed.clone()], event("2", "/a"), 401, "refused"),
        ("/in/cloudevents?access_token=", vec![typed.clone()], event("2", "/a"), 401, "refused"),
        // Where there is a header, it alone counts.
        (&query, vec![typed, ("authorization".into(), "Bearer wrong".into())], event("2", "/a"), 401, "refused"),
    ] {
        let answer = house.deliver(path, &Sent { headers, body: body.clone().into() }).await;
        assert!(answer.status == status || word == "duplicate" && answer.status == 200, "{path} {body}: {answer:?}");
        assert_eq!(answer.word(), word, "{path} {body}: {answer:?}");
    }
    let binary = |id: &str, body: &str| Sent {
        headers: [("ce-id", id), ("ce-source", "/a"), ("ce-type", "t"), ("content-type", "application/octet-stream")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into_iter()
            .chain([bearer.clone()])
            .collect(),
        body: body.into(),
    };
    for (id, body, word) in [("1", "\u{1}\u{2}", "accepted"), ("1", "other", "duplicate"), ("2", "other", "accepted")] {
        let answer = house.deliver("/in/cloudevents-binary", &binary(id, body)).await;
        assert_eq!(answer.word(), word, "{answer:?}");
    }
    assert!(!house.log().contains(SECRET) && !house.log().contains(&SECRET.replace(' ', "+")));
}

#[tokio::test]
async fn each_delivery_of_dropbox_acts_since_two_changes_have_equal_bodies() {
    let house = house(&["dropbox"]);
    let hmac = DescribedSignature::hmac("x-dropbox-signature", SourceSecrets::new(vec![SECRET.as_bytes().to_vec()]));
    let body = r#"{"list_folder":{"accounts":["dbid:A"]},"delta":{"users":[1]}}"#;
    let sent = Sent { headers: VerificationScheme::new(hmac).sign("", now(), body.as_bytes()), body: body.into() };
    for _ in 0..3 {
        let answer = house.deliver("/in/dropbox", &sent).await;
        assert_eq!((answer.status, answer.word()), (202, "accepted".to_owned()), "{answer:?}");
    }
    let forged = Sent { body: body.replace("dbid:A", "dbid:B").into(), ..sent };
    assert_eq!(house.deliver("/in/dropbox", &forged).await.status, 401);
    house.quiet().await;
    assert_eq!(house.lines("runs").len(), 3);
    assert_eq!(house.sql("select count(*) from events"), ["3"]);
    let shown = house.command(&["check"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("once per   nothing: each delivery is an event of its own"), "{shown}");
}

/// Before there is anything to sign, it asks for its challenge.
#[tokio::test]
async fn monday_hears_its_challenge_unsigned_and_its_events_need_its_token() {
    let house = house(&["monday"]);
    let json =
        |body: &str| Sent { headers: vec![("content-type".into(), "application/json".into())], body: body.into() };
    let answer = house.deliver("/in/monday", &json(r#"{"challenge":"3eZbrw1a","subscription":1}"#)).await;
    assert_eq!((answer.status, &*String::from_utf8_lossy(&answer.body)), (200, r#"{"challenge":"3eZbrw1a"}"#));
    check_nothing_is_written(&house);
    let source = "[source.m]\nverify = { scheme = \"jwt\", secret = { env = \"S\" }, audience = \"https://hooks.example.com\", \
                  header = \"authorization\", prefix = \"\" }\n";
    let env = |_: &str| Some(SECRET.to_owned());
    let config = hookonce::internals::config::parse(source, "m.toml", std::path::Path::new("/"), &env).unwrap();
    let body = r#"{"event":{"type":"update_column_value","triggerUuid":"u1","boardId":1,"pulseId":2,"userId":3}}"#;
    let headers = config.sources[0].verify.sign("j", now(), body.as_bytes());
    let sent = Sent { headers, body: body.into() };
    assert_eq!(house.deliver("/in/monday", &json(body)).await.status, 401);
    assert_eq!(house.deliver("/in/monday", &sent).await.word(), "accepted");
    house.quiet().await;
    assert_eq!(house.deliver("/in/monday", &sent).await.word(), "duplicate");
    assert_eq!(house.lines("runs"), ["run"]);
}

/// An operator sees that a sender asked, whatever the method was.
#[tokio::test]
async fn handshakes_without_a_body_are_in_the_log_and_on_the_dashboard() {
    let house = house(&["dropbox", "trello", "cloudevents"]);
    get(&house, "/in/dropbox?challenge=a-challenge").await;
    raw(&house, b"HEAD /in/trello HTTP/1.1\r\nhost: h\r\n\r\n").await;
    raw(&house, b"OPTIONS /in/cloudevents HTTP/1.1\r\nhost: h\r\nwebhook-request-origin: o.example\r\n\r\n").await;
    let asked = [("dropbox", "GET"), ("trello", "HEAD"), ("cloudevents", "OPTIONS")];
    for (source, method) in asked {
        let told = format!(
            "INFO handshake source={source} status=200 why=\"a handshake of the sender ({method}) was answered\""
        );
        until("the log tells of the handshake", || house.log().contains(&told)).await;
    }
    let listed = house.ask("GET", "/api/deliveries?verdict=ignored").await.json();
    let listed: Vec<_> = listed["deliveries"].as_array().unwrap().clone();
    for (source, _) in asked {
        let of_source = |one: &&serde_json::Value| one["source"] == source && one["reason"] == "handshake";
        assert_eq!(listed.iter().filter(of_source).count(), 1, "{source}: {listed:?}");
    }
    assert!(!house.log().contains("a-challenge"), "{}", house.log());
    check_nothing_is_written(&house);
}
