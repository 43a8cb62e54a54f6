//! A registry with a password: credentials of the config and of docker's config file, and where they never are.

use crate::docker_registry::{Access, PASSWORD, Registry, USER};
use crate::support::{House, Sent, until};
use crate::{GHCR, IMAGE, deploy, last_why};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

const KEYS: &str = ", user = \"bob\", password = { env = \"REGISTRY_PASSWORD\" }";
/// A password that is not the user's.
const WRONG: &str = "canary-registry-password-7b1c";

/// Starts a node with this password in its environment.
fn start(house: &mut House, password: &str) {
    let mut command = house.command(&["serve"]);
    command.env("REGISTRY_PASSWORD", password);
    house.try_start_by(command).unwrap();
}

/// What `docker login` writes for this registry.
fn docker_config(authority: &str, password: &str) -> String {
    let auth = STANDARD.encode(format!("{USER}:{password}"));
    serde_json::json!({ "auths": { authority: { "auth": auth } } }).to_string()
}

/// Every file in this folder that contains one of these texts.
fn files_with(folder: &Path, texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, texts));
            continue;
        }
        let content = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
        if texts.iter().any(|text| content.contains(text)) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test]
async fn a_registry_is_asked_with_the_user_and_the_password_of_the_config() {
    let registry = Registry::start(&Access::Password);
    let digest = registry.push_with_password(IMAGE, "latest", "x").await;
    let mut house = House::empty(&deploy(&registry.address(), KEYS));
    start(&mut house, PASSWORD);
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    house.quiet().await;
    assert_eq!(house.lines("runs"), [digest]);
    let environment = std::fs::read_to_string(house.path("environment")).unwrap();
    assert!(environment.contains("HOOKONCE_DIGEST=sha256:"), "{environment}");
    assert!(!environment.contains("REGISTRY_PASSWORD") && !environment.contains(PASSWORD), "{environment}");
}

#[tokio::test]
async fn a_wrong_password_ends_the_event_with_what_to_do_and_is_nowhere_to_be_read() {
    let registry = Registry::start(&Access::Password);
    registry.push_with_password(IMAGE, "latest", "x").await;
    let mut house = House::empty(&deploy(&registry.address(), KEYS));
    start(&mut house, WRONG);
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    house.quiet().await;
    assert_eq!((house.count("dead"), house.lines("runs").len()), (1, 0));
    assert_eq!(house.sql("select count(*) from attempts"), ["1"], "a retry would not help");
    let why = last_why(&house);
    for words in [&*registry.address(), IMAGE, "401", "as user bob", "is the password right"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    until("the death in the log", || house.log().contains(" dead ")).await;
    let event = house.sql("select id from events").pop().unwrap();
    let mut shown = house.log();
    for path in ["/api/events", &format!("/api/events/{event}"), "/api/sources", "/metrics", "/api/deliveries"] {
        shown += &String::from_utf8_lossy(&house.ask("GET", path).await.body);
    }
    for args in [vec!["check"], vec!["check", "--json"], vec!["check", "--live"], vec!["show", &event]] {
        let output = house.command(&args).env("REGISTRY_PASSWORD", WRONG).output().unwrap();
        shown += &String::from_utf8_lossy(&[output.stdout, output.stderr].concat());
    }
    assert!(shown.contains(&registry.address()) && shown.contains("as user bob"));
    let encoded = STANDARD.encode(format!("{USER}:{WRONG}"));
    assert!(!shown.contains(WRONG) && !shown.contains(&encoded), "{shown}");
    house.stop();
    assert_eq!(files_with(house.dir.path(), &[WRONG, &encoded]), [""; 0]);
}

#[tokio::test]
async fn a_registry_that_wants_credentials_and_gets_none_says_what_to_write() {
    let registry = Registry::start(&Access::Password);
    let house = House::new(&deploy(&registry.address(), ""));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    house.quiet().await;
    let why = last_why(&house);
    assert!(why.contains("it was asked without credentials") && why.contains("set `user` and `password`"), "{why}");
}

#[tokio::test]
async fn a_new_docker_login_counts_without_a_restart() {
    let registry = Registry::start(&Access::Password);
    let digest = registry.push_with_password(IMAGE, "latest", "x").await;
    let mut house = House::empty(&deploy(&registry.address(), ", credentials = \"docker\""));
    let folder = house.path("docker");
    std::fs::create_dir(&folder).unwrap();
    let login = |password: &str| {
        std::fs::write(folder.join("config.json"), docker_config(&registry.authority(), password)).unwrap();
    };
    login(WRONG);
    let mut command = house.command(&["serve"]);
    command.env("DOCKER_CONFIG", &folder);
    house.try_start_by(command).unwrap();
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    house.quiet().await;
    let why = last_why(&house);
    assert!(house.count("dead") == 1 && why.contains("renews it") && !why.contains(WRONG), "{why}");
    login(PASSWORD);
    let event = house.sql("select id from events").pop().unwrap();
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    house.quiet().await;
    assert_eq!(house.lines("runs"), [digest]);
}

#[tokio::test]
async fn a_live_check_tries_the_credentials_of_each_registry() {
    let registry = Registry::start(&Access::Password);
    let address = registry.address();
    let digest = registry.push_with_password(IMAGE, "latest", "x").await;
    let house = House::empty(&deploy(&address, KEYS));
    let check = |password: Option<&str>| {
        let mut command = house.command(&["check", "--live"]);
        match password {
            Some(password) => command.env("REGISTRY_PASSWORD", password),
            None => command.env_remove("REGISTRY_PASSWORD"),
        };
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = check(Some(PASSWORD));
    let line = format!("ok     registry  {address}: responds, and accepts the credentials");
    assert!(code == Some(0) && said.contains(&line), "{said}");
    let (code, said) = check(Some(WRONG));
    assert!(code == Some(1) && said.contains(&format!("wrong  registry  {address}: it responded with 401")), "{said}");
    assert!(said.contains("as user bob") && !said.contains(WRONG), "{said}");
    let (code, said) = check(None);
    assert!(code == Some(1) && said.contains("wrong  value     $REGISTRY_PASSWORD"), "{said}");
    assert!(!said.contains(" registry  "), "nothing is asked without the credentials: {said}");

    house.configure(&deploy(&address, ""));
    let (code, said) = check(None);
    assert!(code == Some(0) && said.contains("only public images can be asked for"), "{said}");

    let fixed = format!("\"{IMAGE}\", tag = \"latest\"");
    house.configure(&deploy(&address, KEYS).replace("\"{namespace}/{package}\", tag = \"{tag}\"", &fixed));
    let (code, said) = check(Some(PASSWORD));
    let line = format!("ok     registry  {address}/{IMAGE}:latest: {IMAGE}:latest is {digest}");
    assert!(code == Some(0) && said.contains(&line), "{said}");
    drop(registry);
    let (code, said) = check(Some(PASSWORD));
    assert!(code == Some(1) && said.contains("it cannot be connected to"), "{said}");
}
