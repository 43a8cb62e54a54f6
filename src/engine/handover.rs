//! Values that senders bring by their handshakes, on their way to an operator. They are in memory alone, for ten minutes
//! at most, one for each source, and are given out once; a secret goes to its file, and only while an operator waits.

use crate::decide::handshake::{BroughtValue, HandoverKind};
use crate::decide::limits::HANDSHAKE_WAIT_MAX;
use crate::decide::source::Source;
use crate::decide::time::{Duration, Timestamp};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

/// How much longer an operator waits while a secret is being written.
const WRITING_TIME: Duration = Duration::from_secs(1);

/// The places of all sources whose senders bring something.
#[derive(Debug, Default)]
pub(crate) struct Handovers(HashMap<Arc<str>, Arc<HandoverPlace>>);

/// Where a sender and an operator meet.
#[derive(Debug)]
struct HandoverPlace {
    kind: HandoverKind,
    /// The file of the secret, where there is one.
    file: Option<PathBuf>,
    state: Mutex<HandoverState>,
    news: Notify,
}

#[derive(Debug, Default)]
struct HandoverState {
    /// A value that nobody has seen.
    kept: Option<KeptValue>,
    waiting: OperatorWait,
    /// What became of the secret that the operator waits for.
    taken: Option<Result<(), String>>,
}

/// Whether an operator waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum OperatorWait {
    /// Nobody does.
    #[default]
    Nobody,
    /// One does.
    Waiting,
    /// One does, and what was brought is being written.
    Writing,
}

/// A value that waits for an operator.
#[derive(Debug)]
struct KeptValue {
    value: BroughtValue,
    at: Timestamp,
    since: Instant,
    replaced: u64,
}

/// What became of a value that a sender brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HandoverResult {
    /// It is kept for an operator.
    Kept,
    /// It is in this file.
    Written(PathBuf),
    /// Nobody waits for it.
    Unawaited,
    /// There is a secret already.
    SecretExists(PathBuf),
    /// It could not be written, and why.
    Failed(String),
}

/// What an operator gets.
#[derive(Debug)]
pub(crate) enum HandedOver {
    /// A value, when it arrived, and how many others it replaced that nobody had seen.
    Shown {
        /// The value.
        value: BroughtValue,
        /// When it arrived.
        at: Timestamp,
        /// How many it replaced.
        replaced: u64,
    },
    /// The secret is in this file.
    Taken(PathBuf),
    /// The secret could not be written, and why.
    Failed(String),
}

/// Why an operator cannot wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WaitRefusal {
    /// The handshakes of the source bring nothing.
    BringsNothing,
    /// The source's secret is not a file.
    NoFile,
    /// The file of the secret exists.
    SecretExists(PathBuf),
    /// Another operator waits.
    Awaited,
}

/// What waits for an operator, or for a sender.
#[derive(Clone, Debug)]
pub(crate) struct HandoverStatus {
    /// The source.
    pub source: Arc<str>,
    /// What becomes of what its sender brings.
    pub kind: HandoverKind,
    /// When the value arrived that nobody has seen.
    pub arrived_at: Option<Timestamp>,
    /// Whether an operator waits.
    pub awaited: bool,
}

impl Handovers {
    /// The places of these sources, with the files of their secrets.
    pub(crate) fn new(sources: &[Arc<Source>], files: &HashMap<Arc<str>, PathBuf>) -> Self {
        let place = |source: &Arc<Source>| {
            let file = files.get(&source.name).cloned();
            let (state, news) = (Mutex::default(), Notify::new());
            Some((source.name.clone(), Arc::new(HandoverPlace { kind: source.handover()?, file, state, news })))
        };
        Self(sources.iter().filter_map(place).collect())
    }

    /// The same places as before where nothing has changed about them: what waits there goes on waiting.
    #[must_use]
    pub(crate) fn following(mut self, former: &Self) -> Self {
        for (source, place) in &mut self.0 {
            let same = |known: &&Arc<HandoverPlace>| known.kind == place.kind && known.file == place.file;
            if let Some(known) = former.0.get(source).filter(same) {
                *place = known.clone();
            }
        }
        self
    }

    /// Takes what a sender brings, if it may be taken.
    pub(super) async fn bring(&self, source: &str, value: BroughtValue, at: Timestamp) -> HandoverResult {
        let Some(place) = self.0.get(source) else { return HandoverResult::Unawaited };
        match value.kind {
            HandoverKind::Shown => {
                place.keep(value, at);
                HandoverResult::Kept
            }
            HandoverKind::Taken => place.clone().take_secret(source, value).await,
        }
    }

    /// Waits until a sender brings something, at most this long; `None`: nothing came.
    pub(crate) async fn wait(&self, source: &str, time: Duration) -> Result<Option<HandedOver>, WaitRefusal> {
        let place = self.0.get(source).ok_or(WaitRefusal::BringsNothing)?;
        let _awaiting = place.await_one()?;
        let mut deadline = Instant::now() + time.min(HANDSHAKE_WAIT_MAX);
        loop {
            let mut news = pin!(place.news.notified());
            news.as_mut().enable();
            if let Some(handed) = place.hand_over() {
                return Ok(Some(handed));
            }
            if timeout_at(deadline, news).await.is_err() {
                let waiting = place.state().waiting;
                match waiting {
                    // What came at the last moment is still told.
                    OperatorWait::Writing => deadline += WRITING_TIME,
                    OperatorWait::Waiting | OperatorWait::Nobody => return Ok(place.hand_over()),
                }
            }
        }
    }

    /// What waits, by the names of sources.
    pub(crate) fn statuses(&self) -> Vec<HandoverStatus> {
        let mut all: Vec<_> = self.0.iter().map(|(source, place)| place.status(source)).collect();
        all.sort_by(|a, b| a.source.cmp(&b.source));
        all
    }
}

impl HandoverPlace {
    /// The state, without a value that is too old.
    fn state(&self) -> MutexGuard<'_, HandoverState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.kept = state.kept.take().filter(|kept| kept.since.elapsed() < HANDSHAKE_WAIT_MAX);
        state
    }

    fn status(&self, source: &Arc<str>) -> HandoverStatus {
        let state = self.state();
        let arrived_at = state.kept.as_ref().map(|kept| kept.at);
        HandoverStatus {
            source: source.clone(),
            kind: self.kind,
            arrived_at,
            awaited: state.waiting != OperatorWait::Nobody,
        }
    }

    fn keep(&self, value: BroughtValue, at: Timestamp) {
        let mut state = self.state();
        let replaced = state.kept.as_ref().map_or(0, |kept| kept.replaced.saturating_add(1));
        state.kept = Some(KeptValue { value, at, since: Instant::now(), replaced });
        drop(state);
        self.news.notify_waiters();
    }

    /// Writes the secret to its file, if an operator waits for it. The first one ends the waiting.
    ///
    /// A client that disconnects ends nothing: the operator hears of what was written, and the log has a line about it.
    async fn take_secret(self: Arc<Self>, source: &str, value: BroughtValue) -> HandoverResult {
        let Some(file) = self.file.clone() else { return HandoverResult::Unawaited };
        if !self.begin_writing() {
            return if file.exists() { HandoverResult::SecretExists(file) } else { HandoverResult::Unawaited };
        }
        let (result, client) = oneshot::channel();
        let source = source.to_owned();
        tokio::spawn(async move {
            let unheard = result.send(self.write_secret(file, value).await);
            if let Err(HandoverResult::Written(file)) = unheard {
                let why = format!("the secret is in {} now; its sender did not wait for the answer", file.display());
                warn!(target: "hookonce", source, why, "handshake");
            }
        });
        client.await.unwrap_or_else(|_| HandoverResult::Failed("the node is stopping".to_owned()))
    }

    async fn write_secret(&self, file: PathBuf, value: BroughtValue) -> HandoverResult {
        let path = file.clone();
        let written = tokio::task::spawn_blocking(move || create(&path, value.expose())).await;
        let result = match written {
            Ok(Ok(())) => HandoverResult::Written(file),
            Ok(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => HandoverResult::SecretExists(file),
            Ok(Err(error)) => HandoverResult::Failed(format!("{} cannot be written: {error}", file.display())),
            Err(error) => HandoverResult::Failed(format!("{} was not written: {error}", file.display())),
        };
        self.state().taken = Some(match &result {
            HandoverResult::Written(_) => Ok(()),
            HandoverResult::Failed(why) => Err(why.clone()),
            _ => Err("the file of the secret was made in the meantime".to_owned()),
        });
        self.news.notify_waiters();
        result
    }

    /// Whether an operator waits for the secret that is to be written now.
    fn begin_writing(&self) -> bool {
        let mut state = self.state();
        let awaited = state.waiting == OperatorWait::Waiting;
        if awaited {
            state.waiting = OperatorWait::Writing;
        }
        awaited
    }

    /// Begins to wait.
    fn await_one(&self) -> Result<AwaitedHandover<'_>, WaitRefusal> {
        if self.kind == HandoverKind::Taken {
            let file = self.file.as_ref().ok_or(WaitRefusal::NoFile)?;
            if fs::symlink_metadata(file).is_ok() {
                return Err(WaitRefusal::SecretExists(file.clone()));
            }
        }
        let mut state = self.state();
        if state.waiting != OperatorWait::Nobody {
            return Err(WaitRefusal::Awaited);
        }
        state.waiting = OperatorWait::Waiting;
        state.taken = None;
        Ok(AwaitedHandover(self))
    }

    fn hand_over(&self) -> Option<HandedOver> {
        let mut state = self.state();
        if let Some(KeptValue { value, at, replaced, .. }) = state.kept.take() {
            return Some(HandedOver::Shown { value, at, replaced });
        }
        let taken = state.taken.take()?;
        Some(match (taken, &self.file) {
            (Ok(()), Some(file)) => HandedOver::Taken(file.clone()),
            (Ok(()), None) => HandedOver::Failed("there is no file for the secret".to_owned()),
            (Err(why), _) => HandedOver::Failed(why),
        })
    }
}

/// An operator waits; it ends on drop, since the operator may have gone.
struct AwaitedHandover<'p>(&'p HandoverPlace);

impl Drop for AwaitedHandover<'_> {
    fn drop(&mut self) {
        self.0.state().waiting = OperatorWait::Nobody;
    }
}

/// Creates this file with a secret, readable by its owner alone: completely and durably, or not at all.
fn create(path: &Path, secret: &str) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("it is not the path of a file"));
    };
    let beside = folder.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let _ = fs::remove_file(&beside); // of a process that had our id
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(secret.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::hard_link(&beside, path) // unlike a rename, it replaces nothing
    };
    let written = write();
    let removed = fs::remove_file(&beside);
    written?;
    removed?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn place(kind: HandoverKind, file: Option<PathBuf>) -> Arc<Handovers> {
        let place = HandoverPlace { kind, file, state: Mutex::default(), news: Notify::new() };
        Arc::new(Handovers(HashMap::from([("a".into(), Arc::new(place))])))
    }

    fn shown(text: &str) -> BroughtValue {
        BroughtValue::new(HandoverKind::Shown, text.into())
    }

    fn secret(text: &str) -> BroughtValue {
        BroughtValue::new(HandoverKind::Taken, text.into())
    }

    const NOW: Timestamp = Timestamp(5);
    const ONE_LOOK: Duration = Duration::ZERO;

    #[tokio::test(start_paused = true)]
    async fn a_value_is_shown_once_and_only_the_last_one_for_ten_minutes() {
        let all = place(HandoverKind::Shown, None);
        assert!(all.wait("a", ONE_LOOK).await.unwrap().is_none());
        for text in ["first", "second"] {
            assert_eq!(all.bring("a", shown(text), NOW).await, HandoverResult::Kept);
        }
        assert_eq!(all.statuses()[0].arrived_at, Some(NOW));
        assert!(!format!("{all:?}").contains("second"));
        let Some(HandedOver::Shown { value, replaced, .. }) = all.wait("a", ONE_LOOK).await.unwrap() else { panic!() };
        assert_eq!((value.expose(), replaced), ("second", 1));
        assert!(all.wait("a", ONE_LOOK).await.unwrap().is_none());
        all.bring("a", shown("third"), NOW).await;
        tokio::time::advance(HANDSHAKE_WAIT_MAX).await;
        assert_eq!(all.statuses()[0].arrived_at, None);
        assert!(all.wait("a", ONE_LOOK).await.unwrap().is_none());
        assert_eq!(all.wait("b", ONE_LOOK).await.unwrap_err(), WaitRefusal::BringsNothing);
    }

    #[tokio::test(start_paused = true)]
    async fn after_ten_minutes_an_operator_waits_no_more_and_a_secret_is_taken_by_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("asana.secret");
        let all = place(HandoverKind::Taken, Some(file.clone()));
        let begun = Instant::now();
        assert!(all.wait("a", Duration::from_hours(1)).await.unwrap().is_none());
        assert!((HANDSHAKE_WAIT_MAX..HANDSHAKE_WAIT_MAX + WRITING_TIME).contains(&begun.elapsed()));
        assert!(!all.statuses()[0].awaited);
        assert_eq!(all.bring("a", secret("late"), NOW).await, HandoverResult::Unawaited);
        assert!(!file.exists());
    }

    #[tokio::test]
    async fn a_secret_is_written_once_and_only_while_somebody_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let all = place(HandoverKind::Taken, Some(file.clone()));
        assert_eq!(all.bring("a", secret("early"), NOW).await, HandoverResult::Unawaited);
        // Who no longer waits gets nothing, and nothing is written.
        let gone = tokio::time::timeout(Duration::from_millis(10), all.wait("a", HANDSHAKE_WAIT_MAX)).await;
        assert!(gone.is_err());
        assert_eq!(all.bring("a", secret("late"), NOW).await, HandoverResult::Unawaited);
        let waiting = tokio::spawn({
            let all = all.clone();
            async move { all.wait("a", HANDSHAKE_WAIT_MAX).await }
        });
        while !all.statuses()[0].awaited {
            tokio::task::yield_now().await;
        }
        assert_eq!(all.wait("a", ONE_LOOK).await.unwrap_err(), WaitRefusal::Awaited);
        let (one, other) = tokio::join!(all.bring("a", secret("one"), NOW), all.bring("a", secret("other"), NOW));
        assert_eq!(one, HandoverResult::Written(file.clone()));
        assert_ne!(other, HandoverResult::Written(file.clone()));
        assert!(matches!(waiting.await.unwrap(), Ok(Some(HandedOver::Taken(path))) if path == file));
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert_eq!(all.wait("a", ONE_LOOK).await.unwrap_err(), WaitRefusal::SecretExists(file.clone()));
        assert_eq!(all.bring("a", secret("third"), NOW).await, HandoverResult::SecretExists(file.clone()));
        assert_eq!(create(&file, "fourth").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
    }

    #[tokio::test]
    async fn a_secret_that_cannot_be_written_is_reported_to_who_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let all = place(HandoverKind::Taken, Some(folder.path().join("nowhere/secret")));
        let (waited, brought) = tokio::join!(all.wait("a", HANDSHAKE_WAIT_MAX), all.bring("a", secret("x"), NOW));
        assert!(matches!(&brought, HandoverResult::Failed(why) if why.contains("cannot be written")), "{brought:?}");
        assert!(matches!(waited, Ok(Some(HandedOver::Failed(_)))), "{waited:?}");
    }
}
