//! `hookonce explain`: its output for saved deliveries, without a server and without secrets.

use super::support::{House, Sent};
use super::{Said, ghcr, payload, run, said};

const RUN: &str = "run = { steps = ['true'] }";

/// Runs it without a secret.
fn bare(house: &House, args: &[&str]) -> Said {
    let mut command = house.command(args);
    command.env_remove("SECRET");
    said(command, b"")
}

/// A delivery as it goes over the wire.
fn raw(path: &str, sent: &Sent) -> Vec<u8> {
    let mut bytes = format!("POST {path} HTTP/1.1\r\nHost: example.com\r\n").into_bytes();
    for (name, value) in &sent.headers {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    bytes.extend(format!("Content-Length: {}\r\n\r\n", sent.body.len()).bytes());
    bytes.extend(&sent.body);
    bytes
}

#[test]
fn one_push_is_explained_delivery_by_delivery_without_a_secret() {
    let house = House::empty(&ghcr(RUN));
    bare(&house, &["explain", &payload("storm_tags.jsonl")]).has(
        0,
        &[
            "delivery 5 of 5",
            "source     ghcr (the only one)",
            "not checked, no x-hub-signature-256 was saved",
            "tag         \"\"  at body.registry_package",
            "it would   be ignored: tag was \"main\", wanted tag == \"latest\"",
            "once per   the delivery id (header.x-github-delivery) with the body's digest",
            "register   a change of package + tag to version_id + sha, ordered by updated_at",
            "group      one at a time per package + tag",
            "not searched: there is no store yet",
            "it would   be a new event, and act on route deploy",
        ],
    );
    assert!(!house.path("hookonce.db").exists(), "explaining writes nothing");
}

#[test]
fn a_filter_is_shown_term_by_term_and_the_first_route_that_matches_wins() {
    let config = "[source.s]\nverify = 'none'\npath = '/s'\nrequire = 'exists(n)'\n\
                  fields = { n = 'body.n', who = { at = 'body.who', default = 'nobody' }, gone = 'body.gone' }\n\
                  once = { per = ['body'] }\n\
                  [[source.s.route]]\nname = 'many'\nwhen = 'n > 5 && who == \"me\"'\nrun = { steps = ['true'] }\n\
                  [[source.s.route]]\nname = 'few'\nwhen = 'n < 5'\nrun = { steps = ['true'] }\n\
                  [[source.s.route]]\nname = 'rest'\n";
    let house = House::empty(config);
    let explain = |body: &str| said(house.command(&["explain", "-"]), body.as_bytes());
    explain(r#"{"n":3}"#).has(
        0,
        &[
            "requires   exists(n): yes",
            "who   \"nobody\" (the default: the field is missing)  at body.who",
            "gone  missing  at body.gone",
            "many when n > 5 && who == \"me\": no",
            "  n > 5: false, n was 3",
            "  who == \"me\": false, who was \"nobody\"",
            "few when n < 5: yes",
            "few matches; not evaluated: rest",
        ],
    );
    explain(r#"{"n":5}"#).has(1, &["be a new event that is only recorded: route rest has no action"]);
    explain("{}").has(1, &["exists(n): no", "be refused with 403, forbidden"]);
    explain("{").has(1, &["be refused with 400, malformed"]);
    let json = said(house.command(&["explain", "-", "--json"]), br#"{"n":9007199254740993}"#).json();
    assert_eq!(json["fields"][0]["value"], "9007199254740993");
    assert_eq!(json["fields"][1]["is"], "default");
    assert_eq!((&json["route"], &json["acts"]), (&"rest".into(), &false.into()));
}

#[test]
fn a_raw_request_finds_its_source_and_its_signature_is_checked() {
    let two = format!("{}\n[source.other]\nverify = 'none'\n[[source.other.route]]\n", ghcr(RUN));
    let house = House::empty(&two);
    let sent = Sent::package("1", "latest", 7, 1);
    let explain = |path: &str, sent: &Sent| said(house.command(&["explain", "-"]), &raw(path, sent));
    explain("/version/1", &sent).has(0, &["ghcr (listens on /version/1)", "(SHA-256): right"]);
    let forged = sent.clone().with("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)));
    explain("/version/1", &forged).has(
        1,
        &[
            "found: a signature of other bytes, or with another secret; the rest assumes",
            "refused with 401, bad_signature",
        ],
    );
    let old = sent.clone().with("x-hub-signature-256", "sha1=00");
    let expected =
        "wrong: expected header x-hub-signature-256 with sha256= and 64 hex digits over {body}; found: no sha256= at";
    explain("/version/1", &old).has(1, &[expected]);
    explain("/version/2", &sent).has(1, &["no source listens on /version/2, so a node responds with 404"]);
    explain("/version/1", &sent.clone().with("x-github-event", "push")).has(
        1,
        &[
            "x-github-event is \"push\", wanted \"registry_package\" or \"package\": no",
            "be ignored: x-github-event was",
        ],
    );
    std::fs::write(house.path("saved"), raw("/version/1", &sent)).unwrap();
    bare(&house, &["explain", "saved"]).has(0, &["not checked, the environment variable `SECRET` is not set"]);
    run(&house, &["explain", "saved", "--source", "other"]).has(1, &["source     other (named)"]);
    run(&house, &["explain", "saved", "--source", "gchr"]).has(2, &["did you mean `ghcr`?"]);
    run(&house, &["explain", &payload("ghcr_latest.json")])
        .has(2, &["which source is it for? One of: ", "hint: name it with --source NAME"]);
}

#[test]
fn a_bare_upload_is_assumed_to_be_by_the_repository_it_names() {
    let config = "[source.ci]\npreset = 'ci-ingestion'\nsecret = { dir = 'callers' }\n[[source.ci.route]]\nname = 'ingest'\n\
                  run = { steps = ['true'] }\n";
    let house = House::empty(config);
    std::fs::create_dir(house.path("callers")).unwrap();
    std::fs::write(house.path("callers/acme"), "secret\n").unwrap();
    let upload = br#"{"commit_sha":"c","framework":"jest","repo_id":"acme"}"#;
    let taken = "no authorization was saved: assumed that of \"acme\", which the body names";
    said_of(&house, upload).has(0, &[taken, "it would   be a new event, and act on route ingest"]);
    let unnamed = said_of(&house, br#"{"commit_sha":"c","framework":"jest"}"#);
    unnamed.has(1, &["no authorization was saved, so the field repo_auth is missing; add it with --header"]);
}

fn said_of(house: &House, input: &[u8]) -> Said {
    said(house.command(&["explain", "-"]), input)
}

#[test]
fn a_bare_body_is_explained_with_assumed_headers_unless_they_are_given() {
    let house = House::empty(&ghcr(RUN));
    let file = payload("ghcr_latest.json");
    let kind = ["--header", "X-GitHub-Event: registry_package"];
    let (no_kind, no_id) =
        ("no x-github-event was saved: assumed \"registry_package\"", "no x-github-delivery was saved: assumed");
    let said = run(&house, &["explain", &file]);
    said.has(0, &["a bare body without headers", no_kind, no_id, "it would   be a new event, and act on route deploy"]);
    assert!(!run(&house, &["explain", &file, kind[0], kind[1]]).has(0, &[no_id]).out.contains(no_kind));
    run(&house, &["explain", &file, kind[0], kind[1], "--header", "x-github-delivery: 1"]).has(0, &["id         1"]);
    run(&house, &["explain", &file, "--header", "x-github-event: push"]).has(1, &["be ignored: x-github-event was"]);
    said_of(&house, b"{bad").has(1, &["be refused with 400, malformed"]);
    let other = std::fs::read_to_string(&file).unwrap().replace("\"latest\"", "\"main\"");
    said_of(&house, other.as_bytes()).has(1, &["be ignored: tag was \"main\""]);
    // A delivery saved with its headers is used as it is.
    let sent = Sent::package("1", "latest", 7, 1);
    let headers = sent.headers.iter().filter(|(name, _)| name != "x-github-delivery").cloned().collect();
    let whole = raw("/version/1", &Sent { headers, ..sent });
    said_of(&house, &whole).has(1, &["refused with 422, missing_field: `delivery`"]);
    run(&house, &["explain", &file, "--header", "nonsense"]).has(2, &["\"nonsense\" is not a header"]);
}

#[test]
fn an_old_signature_is_reported_as_old_and_not_as_wrong() {
    let config = "[source.s]\nverify = { scheme = 'hmac', secret = { env = 'SECRET' }, header = 'x-sig', \
                  over = '{timestamp}.{body}', timestamp = 'header.x-time' }\n[[source.s.route]]\nrun = { steps = ['true'] }\n";
    let house = House::empty(config);
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, super::support::SECRET.as_bytes());
    let signature = hex::encode(aws_lc_rs::hmac::sign(&key, b"1700000000.{}"));
    let request = format!("POST /in/s HTTP/1.1\nX-Time: 1700000000\nX-Sig: {signature}\n\n{{}}");
    said(house.command(&["explain", "-"]), request.as_bytes()).has(
        1,
        &[
            "right, but too old to be accepted now: a time that is ",
            " ago, at most 5m",
            "it would   be refused now with 401: its time is ",
            " old, at most 5m count; when it was new: be a new event, and act on route 1",
        ],
    );
    let json = said(house.command(&["explain", "-", "--json"]), request.as_bytes());
    json.has(1, &["\"is\": \"old\"", "\"be\": \"refused\"", "\"status\": 401", "\"in_time\"", "\"be\": \"new\""]);
    said(house.command(&["explain", "-"]), request.replace("1700000000", "1700000001").as_bytes())
        .has(1, &["refused with 401, bad_signature"]);
}

#[test]
fn a_signature_of_the_future_is_not_called_old() {
    let config =
        "[source.s]\npreset = 'stripe'\nsecret = { env = 'SECRET' }\n[[source.s.route]]\nrun = { steps = ['true'] }\n";
    let house = House::empty(config);
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, super::support::SECRET.as_bytes());
    let body = r#"{"id":"evt_1","type":"charge.succeeded"}"#;
    let signature = hex::encode(aws_lc_rs::hmac::sign(&key, format!("4000000000.{body}").as_bytes()));
    let request = format!(
        "POST /in/s HTTP/1.1\nContent-Type: application/json\nStripe-Signature: t=4000000000,v1={signature}\n\n{body}"
    );
    let out = said(house.command(&["explain", "-"]), request.as_bytes());
    out.has(
        1,
        &[
            "right, but too far in the future to be accepted now: a time that is ",
            "it would   be refused now with 401: its time is too far in the future: is a clock wrong? It is ",
            " ahead, at most 5m count; with a right time: be a new event, and act on route 1",
        ],
    );
}

#[test]
fn a_missing_secret_of_another_source_is_not_reported() {
    let config =
        format!("[source.first]\nverify = {{ scheme = 'github', secret = {{ env = 'FIRST' }} }}\n{}", ghcr(RUN));
    let house = House::empty(&config);
    let sent = Sent::package("1", "latest", 7, 1);
    said(house.command(&["explain", "-"]), &raw("/version/1", &sent)).has(0, &["(SHA-256): right"]);
    let mut command = house.command(&["explain", "-"]);
    command.env_remove("SECRET").env_remove("FIRST");
    said(command, &raw("/version/1", &sent)).has(0, &["`SECRET` is not set"]);
}

#[test]
fn input_that_cannot_be_explained_is_reported_in_a_sentence() {
    let house = House::empty(&ghcr(RUN));
    run(&house, &["explain", "nothing-here"]).has(2, &["there is no file nothing-here, and no event can be looked up"]);
    run(&house, &["explain", "."]).has(2, &[". is a folder"]);
    run(&house, &["explain", "-"]).has(2, &["standard input is empty"]);
    run(&house, &["explain", "hookonce.toml", "--store", "none.db"]).has(2, &["there is no database at none.db"]);
    run(&house, &["explain", "hookonce.toml", "--store", "hookonce.toml"]).has(2, &["hookonce.toml"]);
    std::fs::write(house.path("binary"), [0, 159, 146, 150, 0, 10, 10]).unwrap();
    let named = ["explain", "binary", "--header", "x-github-event: registry_package"];
    run(&house, &named).has(1, &["be refused with 400, malformed"]);
    std::fs::write(house.path("hookonce.toml"), "nonsense").unwrap();
    run(&house, &["explain", "binary"]).has(2, &["hookonce.toml; nothing can be explained"]);
    run(&house, &["explain", "binary", "--config", "none.toml"]).has(2, &["there is no config at none.toml"]);
    run(&house, &["explain"]).has(2, &["FILE|EVENT"]);
}

/// A request without its signature is refused by a node, so that is predicted; other saved deliveries may lack what is
/// secret.
#[test]
fn a_whole_request_without_its_signature_is_predicted_to_be_refused() {
    let secret = "secret = { env = 'SECRET' }";
    let config = format!(
        "[source.a]\npreset = 'stripe'\n{secret}\n[[source.a.route]]\nrun = {{ steps = ['true'] }}\n\
         [source.b]\npreset = 'event-grid'\n{secret}\n[[source.b.route]]\nrun = {{ steps = ['true'] }}\n"
    );
    let house = House::empty(&config);
    let explain = |text: &str| said(house.command(&["explain", "-"]), text.as_bytes());
    explain("POST /in/a HTTP/1.1\nHost: h\nContent-Type: application/json\n\n{\"id\":\"evt_1\"}").has(
        1,
        &[
            "wrong: expected header stripe-signature with the entries t and v1 (hex, 64 digits) over {timestamp}.{body}",
            "found: no such header",
            "be refused with 401, bad_signature",
        ],
    );
    explain("POST /in/b HTTP/1.1\nHost: h\n\n[{\"id\":\"1\"}]").has(
        1,
        &["wrong: expected the token in query.secret; found: nothing there", "be refused with 401, bad_signature"],
    );
    let saved = "{\"headers\":{\"content-type\":\"application/json\"},\"body\":\"{\\\"id\\\":\\\"evt_1\\\"}\",\"path\":\"/in/a\"}";
    explain(saved).has(0, &["not checked, no stripe-signature was saved", "be a new event"]);
}

#[test]
fn handshakes_of_every_method_are_predicted_and_so_is_a_method_that_is_none() {
    let source =
        |name: &str, more: &str| format!("[source.{name}]\npreset = '{name}'\nsecret = {{ env = 'SECRET' }}\n{more}\n");
    let config = [
        source("meta", "verify_token = { env = 'TOKEN' }"),
        source("dropbox", ""),
        // A secret that signs answers is for one source.
        source("x", "").replace("SECRET", "TOKEN"),
        source("trello", "url = 'https://hooks.example.com/in/trello'"),
        source("cloudevents", ""),
        source("graph", ""),
        source("stripe", ""),
    ];
    let house = House::empty(&config.concat());
    let explain = |text: &str| {
        let mut command = house.command(&["explain", "-"]);
        command.env("TOKEN", "ours");
        said(command, text.as_bytes())
    };
    let answered = "be ignored: it is a handshake of the sender, which is answered without an event, with 200";
    for request in [
        "GET /in/meta?hub.mode=subscribe&hub.verify_token=ours&hub.challenge=1158201444 HTTP/1.1\nHost: h\n\n",
        "GET /in/dropbox?challenge=abc HTTP/1.1\nHost: h\n",
        "GET /in/x?crc_token=abc HTTP/1.1\nHost: h\n\n",
        "HEAD /in/trello HTTP/1.1\nHost: h\n\n",
        "OPTIONS /in/cloudevents HTTP/1.1\nWebHook-Request-Origin: eventemitter.example.com\n\n",
        "POST /in/graph?validationToken=abc HTTP/1.1\nContent-Type: text/plain\n\n",
    ] {
        explain(request).has(1, &[answered, "not needed, the sender does not sign this handshake"]);
    }
    let refused = |request: &str, why: &str| {
        explain(request).has(1, &["be refused with 405, method: ", why]);
    };
    refused("GET /in/stripe HTTP/1.1\nHost: h\n\n", "a delivery is a POST, this is a GET; allowed: POST");
    refused(
        "GET /in/meta HTTP/1.1\nHost: h\n\n",
        "this is a GET with nothing of a handshake in it; allowed: POST, GET",
    );
    let asked = "GET /in/meta?hub.mode=subscribe&hub.verify_token=theirs&hub.challenge=1 HTTP/1.1\nHost: h\n\n";
    let why = "handshake: query.hub.verify_token is missing or not the source's verify_token";
    explain(asked).has(1, &[&format!("be refused with 401, {why}")]);
    refused("PUT /in/dropbox HTTP/1.1\nHost: h\n\n{}", "this is a PUT; allowed: POST, GET");
}
