//! `hookonce demo`: one image push as GitHub delivers it, sent twice to a real node in this process, printed as it
//! happens. Needs no config and no network, and leaves nothing behind.

use crate::action::GuardProgram;
use crate::config;
use crate::config::diagnostic::ColorChoice;
use crate::decide::claim::MatchedBy;
use crate::decide::event::{Event, EventState};
use crate::decide::time::{Duration, Timestamp};
use crate::decide::verify::{SourceSecrets, VerificationScheme};
use crate::engine::dispatcher::Dispatcher;
use crate::node::NodeHandle;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Timeout of one delivery.
const PATIENCE: Duration = Duration::from_secs(20);
/// The demo's own secret; it never leaves the process.
const SECRET: &[u8] = b"hookonce demo";

const CONFIG: &str = r#"
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[source.ghcr]
preset = "github-package"
secret = { env = "DEMO_SECRET" }
[[source.ghcr.route]]
name = "deploy"
run  = { steps = ['echo "deploying $HOOKONCE_FIELD_PACKAGE:$HOOKONCE_FIELD_TAG, version $HOOKONCE_FIELD_VERSION_ID"'] }
"#;

/// Runs the demo; exits with 0 if there was exactly one run.
pub(crate) fn demo(ink: ColorChoice, out: &mut impl Write) -> io::Result<u8> {
    let folder = DemoFolder::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let played = runtime.block_on(play(&folder.0, ink, out));
    runtime.shutdown_timeout(Duration::from_secs(2));
    played
}

/// A folder of the demo's own, removed with it.
struct DemoFolder(PathBuf);

impl DemoFolder {
    fn new() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("hookonce-demo-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // On failure the system cleans it up: it is in the folder for temporary files.
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// What was counted.
#[derive(Default)]
struct DemoTally {
    deliveries: usize,
    ignored: usize,
    duplicates: usize,
    runs: usize,
}

async fn play(folder: &Path, ink: ColorChoice, out: &mut impl Write) -> io::Result<u8> {
    let secret = |_: &str| Some(String::from_utf8_lossy(SECRET).into_owned());
    let config =
        config::parse(CONFIG, "demo", folder, &secret).map_err(|problems| io::Error::other(problems.to_string()))?;
    let node = NodeHandle::start(&config, GuardProgram::default()).await.map_err(io::Error::other)?;
    let stage = DemoSession {
        dispatcher: node.dispatcher.clone(),
        // Plain HTTP to this process, also on a machine without CA certificates.
        client: reqwest::Client::builder().no_proxy().tls_certs_only([]).build().map_err(io::Error::other)?,
        url: format!("http://{}/in/ghcr", node.ingest.expect("a whole node receives")),
        ink,
    };
    let mut tally = DemoTally::default();
    writeln!(out, "{}", stage.bold("One image push: GitHub sends five deliveries, each with its own id."))?;
    stage.storm(&mut tally, out).await?;
    writeln!(out, "\n{}", stage.bold("The same five again, as after a timeout or a click on Redeliver:"))?;
    stage.storm(&mut tally, out).await?;
    node.stop(std::future::pending()).await;
    let DemoTally { deliveries, ignored, duplicates, runs } = tally;
    let sum = format!("{deliveries} deliveries: {ignored} ignored, {duplicates} duplicates, {runs} run.");
    writeln!(out, "\n{}\n\n{NEXT}", stage.bold(&sum))?;
    Ok(u8::from(runs != 1))
}

const NEXT: &str = "\
Next:
  hookonce init      writes a config for your own server, and a secret
  hookonce check     says what it means
  hookonce serve     takes webhooks";

/// The node under demonstration, and its client.
struct DemoSession {
    dispatcher: Dispatcher,
    client: reqwest::Client,
    url: String,
    ink: ColorChoice,
}

impl DemoSession {
    fn paint(&self, code: &str, text: &str) -> String {
        match self.ink {
            ColorChoice::Plain => text.to_owned(),
            ColorChoice::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    async fn storm(&self, tally: &mut DemoTally, out: &mut impl Write) -> io::Result<()> {
        for push in STORM {
            self.deliver(push, tally, out).await?;
            out.flush()?;
        }
        Ok(())
    }

    async fn deliver(&self, push: &DemoDelivery, tally: &mut DemoTally, out: &mut impl Write) -> io::Result<()> {
        let mut news = self.dispatcher.state_changes();
        let mut output = self.dispatcher.output();
        let answer = self.send(push).await.map_err(io::Error::other)?;
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        let (word, event) = (text("status"), text("event"));
        let short = event.get(event.len().saturating_sub(8)..).unwrap_or_default();
        tally.deliveries += 1;
        let (code, says) = match word.as_str() {
            "ignored" => {
                tally.ignored += 1;
                ("2", text("reason"))
            }
            "duplicate" => {
                tally.duplicates += 1;
                ("33", format!("of {short}: {}", same(&text("same"))))
            }
            _ => ("32", format!("event {short}")),
        };
        let tag = format!("{:?}", push.tag);
        writeln!(out, "  {}  tag {tag:<10} {} {says}", push.short(), self.paint(code, &format!("{word:<9}")))?;
        if word == "accepted" {
            while let Ok(Ok(event)) = tokio::time::timeout(PATIENCE, news.recv()).await {
                while let Ok(chunk) = output.try_recv() {
                    for line in String::from_utf8_lossy(&chunk.bytes).lines() {
                        writeln!(out, "            {} {line}", self.paint("36", "output"))?;
                    }
                }
                if let Some(line) = self.change(&event, tally) {
                    writeln!(out, "            {line}")?;
                }
                if event.state.ended().is_some() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn change(&self, event: &Event, tally: &mut DemoTally) -> Option<String> {
        match &event.state {
            EventState::Waiting { .. } => None,
            EventState::Running { .. } => {
                tally.runs += 1;
                Some(format!("{} attempt {}", self.paint("34", "running"), event.attempt))
            }
            EventState::Done { at, .. } => {
                let took = at.since(event.received_at).as_millis();
                Some(format!("{} after {took} ms", self.paint("32", "done")))
            }
            EventState::Dead { cause, .. } => Some(format!("{} {}", self.paint("31", "dead"), cause.word())),
        }
    }

    async fn send(&self, push: &DemoDelivery) -> Result<serde_json::Value, Box<dyn std::error::Error + Send + Sync>> {
        let body = push.body();
        let scheme = VerificationScheme::github(SourceSecrets::new(vec![SECRET.to_vec()]));
        let mut request = self.client.post(&self.url).header("x-github-event", "registry_package");
        for (name, value) in scheme.sign(push.id, Timestamp::default(), body.as_bytes()) {
            request = request.header(name, value);
        }
        let answer = request.body(body).timeout(PATIENCE).send().await?.bytes().await?;
        Ok(serde_json::from_slice(&answer)?)
    }
}

/// The matched identity in words.
fn same(word: &str) -> &'static str {
    match MatchedBy::parse(word) {
        MatchedBy::Delivery => "the same delivery id",
        MatchedBy::Message => "the same message",
        MatchedBy::Body => "the same bytes",
        MatchedBy::Signed => "the same bytes, signed at the same time",
        MatchedBy::SignedText => "the same signed content",
        MatchedBy::Change => "the same change of package and tag, under another id",
        MatchedBy::Fields(_) => "the same fields",
    }
}

/// One delivery of the push.
pub(super) struct DemoDelivery {
    /// The sender's id.
    pub(super) id: &'static str,
    /// The tag it names.
    pub(super) tag: &'static str,
    version: u64,
    sha: &'static str,
    second: u32,
}

const INDEX: &str = "sha256:b97c4e077049470ac32d6b8c418eb536fb9856011ac1d6928b80f74926383aab";

/// The whole push, in the order of its arrival.
pub(super) const STORM: &[DemoDelivery] = &[
    DemoDelivery {
        id: "f168a0a0-0440-11f1-9b3f-a185afe7eea8",
        tag: "",
        version: 675_688_871,
        sha: "sha256:12077d6a2bfbc91fc7246e994d550a9f0c6a72e21db29805667b7e1822e89684",
        second: 40,
    },
    DemoDelivery {
        id: "f1a53470-0440-11f1-87e2-7761621fcece",
        tag: "",
        version: 675_688_873,
        sha: "sha256:3ab167c9d19c55d820a390846db7c730cc858cb95ffe6d2f610050c04aad8787",
        second: 40,
    },
    DemoDelivery {
        id: "f1e8cd20-0440-11f1-8e82-27c317883355",
        tag: "latest",
        version: 675_688_875,
        sha: INDEX,
        second: 40,
    },
    DemoDelivery {
        id: "f27359e0-0440-11f1-99be-4d02550d037a",
        tag: "latest",
        version: 675_688_875,
        sha: INDEX,
        second: 41,
    },
    DemoDelivery {
        id: "f2dc06c0-0440-11f1-92e1-2b19086f97a8",
        tag: "latest",
        version: 675_688_875,
        sha: INDEX,
        second: 42,
    },
];

impl DemoDelivery {
    /// The beginning of its id, as people see it.
    pub(super) fn short(&self) -> &str {
        &self.id[..8]
    }

    /// A body with only the members that the preset reads.
    pub(super) fn body(&self) -> String {
        let Self { tag, version, sha, second, .. } = self;
        serde_json::json!({
            "action": "published",
            "registry_package": {
                "name": "jamiec_ts",
                "updated_at": format!("2026-02-07T16:20:{second}Z"),
                "package_version": { "id": version, "version": sha, "container_metadata": { "tag": { "name": tag } } },
            },
        })
        .to_string()
    }
}
