//! `hookonce explain`: why did it not run? A delivery is walked step by step, by the same code that judges and claims,
//! without a server and without secrets. Nothing is believed and nothing is written.

mod json;
mod rebuilt;
mod saved;
mod stands;
mod text;
mod told;

use super::check::Form;
use crate::config::problem::Problems;
use crate::config::{self, Config, Env, Secrets, StoreAddress};
use crate::decide::nearest::nearest;
use crate::decide::source::Source;
use crate::decide::time::Timestamp;
use crate::store::Stored;
use crate::store::clock::Clock;
use crate::store::open::{Use, open_for};
use saved::Saved;
use stands::{Known, Would};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use told::Told;

/// What is to be explained, as asked on the command line.
#[derive(clap::Args, Debug)]
pub struct Ask {
    /// A saved delivery: a file, or - for standard input; or an event or a delivery id of the store
    #[arg(value_name = "FILE|EVENT")]
    what: String,
    /// The source it is for; else the one that listens on its path, or the only one
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// A header it came with, in place of one in the file
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The database to look for repeats in, instead of the one in the config
    #[arg(long, value_name = "PATH")]
    store: Option<String>,
    /// For programs: one object for each delivery
    #[arg(long)]
    json: bool,
}

impl Ask {
    /// For programs, or for people?
    pub fn is_for_programs(&self) -> bool {
        self.json
    }
}

/// What was found out; its number is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Answer {
    /// It would act.
    Acts = 0,
    /// It would not.
    ActsNot = 1,
    /// Nobody can say.
    Unknown = 2,
}

/// Why nothing can be told, in a sentence, and what that means for the exit code.
struct Cannot(String, Answer);

impl From<String> for Cannot {
    fn from(why: String) -> Self {
        Self(why, Answer::Unknown)
    }
}

/// Explains what is asked. What is wrong goes to standard error.
pub fn explain(
    ask: &Ask,
    explicit: Option<&Path>,
    form: Form,
    env: Env<'_>,
    out: &mut impl Write,
) -> io::Result<Answer> {
    let all = match all(ask, explicit, env) {
        Ok(all) => all,
        Err(Cannot(why, answer)) => {
            eprintln!("error: {}", why.trim_start_matches("error: "));
            return Ok(answer);
        }
    };
    for (i, (told, would)) in all.iter().enumerate() {
        match form {
            Form::Json => writeln!(out, "{:#}", json::explained(told, would))?,
            Form::Text(_) => {
                if i > 0 {
                    writeln!(out)?;
                }
                text::explained(told, would, out)?;
            }
        }
    }
    Ok(all.iter().map(|(_, would)| stands::answer(would)).min().unwrap_or(Answer::Unknown))
}

/// Each delivery, walked, and what would come of it.
fn all(ask: &Ask, explicit: Option<&Path>, env: Env<'_>) -> Result<Vec<(Told, Would)>, Cannot> {
    let path = config::find(explicit, env).map_err(|problem| problem.to_string())?;
    let config = config::load_with(&path, Secrets::Optional, env).map_err(|problems| unread(&problems))?;
    let given = ask.headers.iter().map(|header| saved::header(header)).collect::<Result<Vec<_>, _>>()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let store = runtime.block_on(open(ask, &config))?;
    let is_file = ask.what == "-" || Path::new(&ask.what).exists();
    let mut deliveries =
        if is_file { saved::read(&ask.what)? } else { vec![runtime.block_on(stored(&ask.what, &store, &config))?] };
    let now = store.now();
    let mut all = Vec::new();
    for delivery in &mut deliveries {
        delivery.replace(&given);
        let (source, chosen) = choose(&config, ask.source.as_deref(), delivery)?;
        let told = Told::walk(&source, chosen, delivery, &config, now);
        let would = runtime.block_on(stands::would(&told, &store)).map_err(|error| error.to_string())?;
        all.push((told, would));
    }
    Ok(all)
}

/// A config that cannot be read says why itself; nothing was to be started.
fn unread(problems: &Problems) -> String {
    problems.to_string().replace("; nothing was started", "; nothing can be explained")
}

/// What is known of the past.
async fn open(ask: &Ask, config: &Config) -> Result<Known, Cannot> {
    let wall = || Clock::wall(Timestamp::default()).now();
    let address = match (&ask.store, &config.store) {
        (Some(store), _) => StoreAddress::parse(store, Path::new("")).unwrap_or(StoreAddress::Sqlite(store.into())),
        (None, StoreAddress::Sqlite(path)) if !path.exists() => {
            return Ok(Known::Nothing(format!("there is no store yet at {}", path.display()), wall()));
        }
        (None, StoreAddress::Memory) => {
            return Ok(Known::Nothing("what a node keeps in memory cannot be seen from here".into(), wall()));
        }
        (None, address) => address.clone(),
    };
    let shown = match &address {
        StoreAddress::Sqlite(path) => path.display().to_string(),
        other => other.to_string(),
    };
    let store = open_for(&address, Use::Look).await.map_err(|error| Cannot::from(error.to_string()))?;
    Ok(Known::Store(store, shown))
}

/// The delivery that made an event, put together again from what is kept of it.
async fn stored(name: &str, known: &Known, config: &Config) -> Result<Saved, Cannot> {
    let (store, path) = match known {
        Known::Store(store, path) => (store, path),
        Known::Nothing(why, _) => {
            return Err(format!("there is no file {name}, and no event can be looked up: {why}").into());
        }
    };
    let events = store.named(name.to_owned(), 2).await.map_err(|error| error.to_string())?;
    let event = match events.as_slice() {
        [event] => event,
        [] => return Err(format!("there is no file {name}, and no event of that name in {path}").into()),
        [one, other, ..] => {
            let several =
                format!("{name} names more than one event, such as {} and {}; write one of them", one.id, other.id);
            return Err(several.into());
        }
    };
    let Some(source) = config.sources.iter().find(|source| source.name == event.source) else {
        return Err(
            format!("event {} came through the source `{}`, which is not configured", event.id, event.source).into()
        );
    };
    match store.payload(event.id).await.map_err(|error| error.to_string())? {
        Stored::Whole(payload) => Ok(rebuilt::delivery(source, event, payload)),
        Stored::Forgotten => Err(format!(
            "the body of event {} is no longer kept, so its walk cannot be shown; the event is {}",
            event.id,
            stands::words(event)
        )
        .into()),
        Stored::Damaged => Err(format!("the body of event {} is not what was received", event.id).into()),
    }
}

/// Which source a delivery is for, and how that is known.
fn choose(config: &Config, named: Option<&str>, delivery: &Saved) -> Result<(Arc<Source>, String), Cannot> {
    let of = |source: &Arc<Source>| format!("{} ({})", source.name, source.path);
    let all: Vec<_> = config.sources.iter().map(of).collect();
    if let Some(name) = named.or(delivery.source.as_deref()) {
        if let Some(source) = config.sources.iter().find(|source| &*source.name == name) {
            return Ok((source.clone(), "named".into()));
        }
        let meant = nearest(name, config.sources.iter().map(|source| &*source.name));
        let hint = meant.map_or_else(|| ".".into(), |meant| format!("; did you mean `{meant}`?"));
        return Err(format!("there is no source `{name}`{hint} Sources: {}", all.join(", ")).into());
    }
    if let Some(path) = &delivery.path {
        return match config.sources.iter().find(|source| *source.path == **path) {
            Some(source) => Ok((source.clone(), format!("listens on {path}"))),
            None => Err(Cannot(
                format!("no source listens on {path}, so a node answers 404. Sources: {}", all.join(", ")),
                Answer::ActsNot,
            )),
        };
    }
    match config.sources.as_slice() {
        [only] => Ok((only.clone(), "the only one".into())),
        _ => Err(format!("which source is it for? Say --source NAME: {}", all.join(", ")).into()),
    }
}
