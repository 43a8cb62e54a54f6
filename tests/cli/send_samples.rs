//! `send --preset NAME --sample` for every preset, to one node that has what `presets NAME` prints for each.

use crate::support::{House, SECRET, free_port};
use crate::{Said, end};
use hookonce::internals::config;
use hookonce::internals::config::presets::{PRESETS, Preset};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Secrets in the forms that senders give them.
const SECRETS: [&str; 5] = [
    "a secret that is long enough",
    "user:a password that is long enough",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "YSBzZWNyZXQgdGhhdCBpcyBsb25nIGVub3VnaA==",
    "6120736563726574207468617420697320",
];

/// A preset, the source that is printed for it, and how a sender is told of it.
struct TriedPreset {
    preset: &'static Preset,
    source: String,
    env: Vec<(String, String)>,
    args: Vec<String>,
}

fn upper(preset: &Preset) -> String {
    preset.name.to_ascii_uppercase().replace('-', "_")
}

/// The port on which the sender's key is served, if it publishes one, and the key of the source that says so.
fn published(preset: &Preset) -> Option<&'static str> {
    match preset.name {
        "sns" | "paypal" => Some("certificates"),
        "github-actions" | "gitlab-ci" | "pubsub" | "artifact-registry" | "event-grid-jwt" => Some("keys"),
        _ => None,
    }
}

/// A new key pair in a file, made before there is a node; its public half, as it is told.
fn new_pair(house: &House, preset: &Preset, file: &str) -> String {
    let mut command = house.command(&["send", "--preset", preset.name, "--sample", "--key", file]);
    command.args(["--url", "http://127.0.0.1:1"]).stdin(Stdio::null());
    let said = end(command);
    said.check(2, "could not send to");
    let told = said.err.split("public_key = \"").nth(1).and_then(|rest| rest.split('"').next());
    told.unwrap_or_else(|| panic!("{}: {said:?}", preset.name)).to_owned()
}

impl TriedPreset {
    fn new(house: &House, preset: &'static Preset) -> Self {
        let printed = end(house.command(&["presets", preset.name])).fine();
        let (name, needs) = (upper(preset), preset.sender().needs);
        let needs = |key: &str| needs.iter().any(|needed| needed == key);
        let (mut env, mut args) = (vec![("VERIFY_TOKEN".to_owned(), "theirs".to_owned())], Vec::new());
        let mut source = printed;
        if let Some(key) = published(preset) {
            let port = free_port();
            let path = if key == "keys" { "/keys" } else { "" };
            let added = format!("preset = \"{}\"\n{key} = \"http://127.0.0.1:{port}{path}\"\n", preset.name);
            source = source.replacen(&format!("preset = \"{}\"\n", preset.name), &added, 1);
            args.extend(["--keys-port".to_owned(), port.to_string()]);
        }
        if needs("public_key") {
            let file = format!("{}.pem", preset.name);
            env.push((format!("{name}_PUBLIC_KEY"), new_pair(house, preset, &file)));
            args.extend(["--key".to_owned(), file]);
        }
        if needs("path") {
            env.push((format!("{name}_PATH"), format!("/in/5ec4e7c05ec4e7c0-{}", preset.name)));
        }
        if needs("url") {
            args.extend(["--signed-url".to_owned(), format!("https://hooks.example.com/in/{}", preset.name)]);
        }
        let mut tried = Self { preset, source, env, args };
        if needs("secret") {
            // A secret that signs answers of handshakes is for one source.
            let secrets =
                SECRETS.map(|secret| secret.replace("long enough", &format!("long enough for {}", preset.name)));
            let secret = secrets.into_iter().find(|secret| tried.accepts(house, secret));
            let secret = secret.unwrap_or_else(|| panic!("no form of a secret fits {}", preset.name));
            tried.env.push((format!("{name}_SECRET"), secret));
        }
        tried
    }

    /// Whether the printed source can be used with this secret, which is left in its file if it is read from one.
    fn accepts(&self, house: &House, secret: &str) -> bool {
        let variable = format!("{}_SECRET", upper(self.preset));
        if self.source.contains(&format!("{{ file = \"{}.secret\" }}", self.preset.name)) {
            std::fs::write(house.path(&format!("{}.secret", self.preset.name)), secret).unwrap();
        }
        let env = |name: &str| {
            let known = self.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            known.or_else(|| (name == variable).then(|| secret.to_owned()))
        };
        let folder: &Path = house.dir.path();
        config::parse(&self.source, "hookonce.toml", folder, &env).is_ok()
    }

    fn send(&self, house: &House, url: &str) -> Command {
        let path = self.env.iter().find(|(name, _)| name.ends_with("_PATH")).map_or("", |(_, path)| path);
        let mut command = house.command(&["send", "--preset", self.preset.name, "--sample"]);
        command.args(&self.args).args(["--url", &format!("{url}{path}")]).stdin(Stdio::null());
        command.envs(self.env.iter().cloned());
        command
    }

    fn check(&self, said: &Said) {
        let accepted = said.code == Some(0) && said.out.starts_with("20");
        let is_event = ["ignored", "duplicate", "handshake"].iter().all(|word| !said.out.contains(word));
        assert!(accepted && is_event, "{}: {said:?}", self.preset.name);
    }
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[tokio::test]
async fn a_sample_of_every_preset_is_an_event_of_the_source_that_is_printed_for_it() {
    let mut house = House::empty("");
    let tried: Vec<_> = PRESETS.iter().map(|preset| TriedPreset::new(&house, preset)).collect();
    let sources = tried.iter().map(|tried| tried.source.as_str()).collect::<Vec<_>>().join("\n");
    house.configure(&format!("listen = \"127.0.0.1:0\"\n\n{sources}"));
    let mut serve = house.command(&["serve"]);
    serve.envs(tried.iter().flat_map(|tried| tried.env.iter().cloned()));
    house.try_start_by(serve).unwrap_or_else(|said| panic!("the node did not start: {said}"));
    let url = house.url("");
    // Those whose keys the node fetches wait for that at the same time.
    let (fetched, others): (Vec<_>, Vec<_>) = tried.iter().partition(|tried| published(tried.preset).is_some());
    let waiting: Vec<_> = fetched.iter().map(|tried| spawn(tried.send(&house, &url))).collect();
    for tried in others {
        tried.check(&end(tried.send(&house, &url)));
    }
    for (tried, child) in fetched.iter().zip(waiting) {
        tried.check(&Said::of(child.wait_with_output().unwrap()));
    }
    assert_eq!(fetched.len(), 7);
    assert_eq!(house.sql("SELECT count(*) FROM events"), [tried.len().to_string()]);
}

/// A source whose keys are those of the real sender is not signed for; one of this machine is.
#[tokio::test]
async fn a_config_says_where_the_key_of_its_sender_is_served() {
    let port = free_port();
    let source = |name: &str, more: &str| {
        format!(
            "[source.{name}]\npreset = \"github-actions\"\naudience = \"me\"\nclaims = {{ repository = \"a/b\" }}\n{more}\n"
        )
    };
    let keys = format!("keys = \"http://127.0.0.1:{port}/keys\"");
    let house = House::new(&format!("{}{}", source("real", ""), source("tried", &keys)));
    let send = |source: &str, more: &[&str]| {
        let mut command = house.command(&["send", "--sample", "--source", source, "--url", &house.url("")]);
        command.args(more).stdin(Stdio::null());
        end(command)
    };
    send("real", &[]).check(2, "only the sender can sign; let it send a test delivery, or set `keys`");
    let said = send("tried", &["--key", "ci.pem", "--set", "ref=refs/heads/main", "--id", "job-1"]);
    assert!(said.code == Some(0) && said.out.starts_with("202"), "{said:?}");
    assert_eq!(house.sql("SELECT repository || ' ' || ref FROM events"), ["a/b refs/heads/main"]);
    // The key is the one in the file, which the node knows; the token's id is the event's.
    let again = send("tried", &["--key", "ci.pem", "--id", "job-1"]);
    assert!(again.code == Some(0) && again.out.starts_with("200 duplicate"), "{again:?}");
    assert!(!again.err.contains(SECRET) && !again.err.contains("PRIVATE"), "{again:?}");
    // Where something else listens there is a sentence, and nothing is sent.
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    send("tried", &["--key", "ci.pem"]).check(2, &format!("cannot be served at http://127.0.0.1:{port}: "));
}
