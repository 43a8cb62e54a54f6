//! Tokens and the keys of Apps: they reach the sender's API, and nothing else.

use crate::sender_api::{SenderApi, Style, TOKEN, now};
use crate::support::{House, until};
use crate::{GHCR, KIND, ended, id, push, runs, source, start};
use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value as Json;

/// The claims of a token that was signed with this key.
fn claims(authorization: &str, public: &[u8]) -> Option<Json> {
    let (signed, signature) = authorization.strip_prefix("Bearer ")?.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public).verify(signed.as_bytes(), &signature).ok()?;
    let (header, claims) = signed.split_once('.')?;
    let json = |text: &str| serde_json::from_slice::<Json>(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
    assert_eq!(json(header)["alg"], "RS256");
    Some(json(claims))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hook_of_an_app_is_caught_up_with_tokens_that_its_private_key_signs() {
    let api = SenderApi::start(Style::Github).await;
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()));
    let public = key.public_key().as_ref().to_vec();
    api.authorize(move |authorization| {
        let Some(claims) = claims(authorization, &public) else { return false };
        let (now, second) = (now().0 / 1_000_000, |name: &str| claims[name].as_i64().unwrap());
        claims["iss"] == "Iv1.app" && second("iat") <= now && second("exp") > now && second("exp") <= now + 600
    });
    api.missed(&id(1), KIND, now(), push(1));
    let config = source(&api, "")
        .replace("repository = \"octo/app\"\nhook       = 17\n", "app = \"Iv1.app\"\n")
        .replace("token      = { env = \"CATCH_UP_TOKEN\" }", "private_key = { file = \"app.pem\" }");
    let mut house = House::empty(&config);
    std::fs::write(house.path("app.pem"), &pem).unwrap();
    start(&mut house);
    api.send_to(&house.url(GHCR));
    until("the run", || runs(&house) == [1]).await;
    assert!(api.requests()[0].path.starts_with("/app/hook/deliveries?"), "{:?}", api.requests());
    assert!(
        api.requests()
            .iter()
            .any(|request| request.path.starts_with("/app/hook/deliveries/") && request.method == "POST")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_refused_is_logged_and_never_shown_nor_given_to_commands() {
    let api = SenderApi::start(Style::Github).await;
    api.authorize(|_| false);
    let step = "env >> environment; echo 1 >> runs";
    let config = source(&api, "").replace("echo $HOOKONCE_FIELD_VERSION_ID >> runs", step);
    let mut house = House::empty(&config);
    start(&mut house);
    until("a log line", || house.log().contains("it responded with 401")).await;
    assert_eq!(house.deliver(GHCR, &push(1)).await.status, 202);
    until("the run", || !house.lines("runs").is_empty()).await;
    let environment = house.lines("environment").join("\n");
    assert!(!environment.contains(TOKEN) && !environment.contains("CATCH_UP_TOKEN"), "{environment}");
    assert!(!house.log().contains(TOKEN) && ended(&house) == 0, "{}", house.log());
    // A redirect is not followed: the token reaches the configured host alone.
    let other = SenderApi::start(Style::Github).await;
    api.fail_next(302, &[("location", &other.address)]);
    assert!(house.stop().success());
    // Another hook, so that no earlier failure is waited for.
    house.configure(&config.replace("= 17", "= 18"));
    start(&mut house);
    until("a log line", || house.log().contains("a redirect")).await;
    assert!(other.requests().is_empty());
}
