//! The connection: one for all callers, remade when it breaks, with short timeouts.
//!
//! A read is repeated once on a new connection. A write is not: its result is then unknown, and reported as such.

use super::key_names::RedisKeyNames;
use super::sentinel;
use super::server_check;
use super::server_check::{RedisReplyError, RedisServerCheck};
use super::url::RedisUrl;
use super::{RedisAccess, WRITE, WRITE_ON};
use crate::decide::error_message::ErrorMessage;
use crate::decide::time::Duration;
use crate::store::{StoreError, StoreOpenError};
use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisError, Value, cmd};
use std::time::Instant;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::warn;

/// Timeout for connecting, including the checks of the server.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Timeout of a reply.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long replicas may take to confirm a write, with `wait` in the URL.
const WAIT_TIME: Duration = Duration::from_secs(1);
/// After a failure no new connection is tried for this long.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The connection to the server.
pub(super) struct RedisClient {
    pub(super) address: RedisUrl,
    names: RedisKeyNames,
    access: RedisAccess,
    wire: Mutex<RedisConnState>,
}

#[derive(Default)]
struct RedisConnState {
    live: Option<RedisConn>,
    made: u64,
    failed: Option<(Instant, StoreOpenError)>,
    warned: Vec<String>,
}

impl RedisConnState {
    /// Logs new warnings, once.
    fn warn(&mut self, warnings: Vec<String>) {
        if warnings != self.warned {
            for why in &warnings {
                warn!(target: "hookonce", why, "store");
            }
            self.warned = warnings;
        }
    }
}

/// A connection, with its number.
#[derive(Clone)]
struct RedisConn {
    number: u64,
    to: MultiplexedConnection,
    at: RedisUrl,
}

/// Why a call failed.
enum RedisCallError {
    /// It was not sent.
    NotAsked(StoreOpenError),
    /// It may have been executed.
    Lost(ErrorMessage),
    /// It was not executed.
    Refused(RedisReplyError),
}

impl RedisClient {
    pub(super) fn new(address: RedisUrl, names: RedisKeyNames, access: RedisAccess) -> Self {
        Self { address, names, access, wire: Mutex::default() }
    }

    /// Connects now, if there is no connection.
    pub(super) async fn reach(&self) -> Result<(), StoreOpenError> {
        self.live().await.map(drop)
    }

    /// Checks the server again. If it no longer qualifies, the connection is dropped, and calls fail with the reason
    /// until it is fixed.
    pub(super) async fn look_again(&self) {
        let Some(mut live) = self.wire.lock().await.live.clone() else { return };
        // A primary that was cut off from its sentinels still answers.
        let is_this = |place: &str| self.address.at(place).is_some_and(|named| named.place() == live.at.place());
        if sentinel::votes(&self.address).await.prefer_another(is_this) {
            return self.disconnect(&live).await;
        }
        match server_check::check_server(&mut live.to, &live.at, &self.names, self.access).await {
            Ok(RedisServerCheck::Fits(warnings)) => self.wire.lock().await.warn(warnings),
            Ok(RedisServerCheck::Elsewhere(_)) | Err(_) => self.disconnect(&live).await,
        }
    }

    /// Runs a read.
    pub(super) async fn ask(&self, questions: &Pipeline) -> Result<Vec<Value>, StoreError> {
        let mut answers = self.ask_once(questions).await;
        if matches!(answers, Err(RedisCallError::Lost(_))) {
            answers = self.ask_once(questions).await;
        }
        answers.map_err(|none| match none {
            RedisCallError::NotAsked(why) => StoreError::Down(ErrorMessage::of(why)),
            RedisCallError::Lost(why) => StoreError::Down(why),
            RedisCallError::Refused(refusal) if refusal.code() == "WRONGTYPE" => {
                let why = format!("{}: another program has overwritten one of hookonce's keys", self.address);
                StoreError::Broken(why.into()).caused_by(refusal.into_cause())
            }
            RedisCallError::Refused(refusal) => StoreError::Down(self.refusal(refusal)),
        })
    }

    /// Runs the write script. With `wait`, also returns how many replicas have confirmed it.
    pub(super) async fn write(&self, script: &WriteScriptCall) -> Result<(Value, Option<i64>), StoreError> {
        let mut answer = self.write_once(script).await;
        if matches!(&answer, Err(RedisCallError::Refused(refusal)) if refusal.code() == "NOSCRIPT") {
            // The server's script cache was flushed. Nothing was written.
            self.load().await?;
            answer = self.write_once(script).await;
        }
        answer.map_err(|none| match none {
            RedisCallError::NotAsked(why) => StoreError::Down(ErrorMessage::of(why)),
            RedisCallError::Lost(why) => StoreError::Unsure(why),
            RedisCallError::Refused(refusal) if refusal.is_inside_a_script() => {
                let why = format!("{}: a write stopped half-way: {refusal}", self.address);
                StoreError::Broken(why.into()).caused_by(refusal.into_cause())
            }
            RedisCallError::Refused(refusal) if refusal.wrote_nothing() => StoreError::Down(self.refusal(refusal)),
            RedisCallError::Refused(refusal) => StoreError::Unsure(self.refusal(refusal)),
        })
    }

    fn refusal(&self, refusal: RedisReplyError) -> ErrorMessage {
        ErrorMessage::from(format!("{}: {refusal}", self.address)).caused_by(refusal.into_cause())
    }

    async fn load(&self) -> Result<(), StoreError> {
        let mut load = Pipeline::new();
        load.cmd("SCRIPT").arg("LOAD").arg(WRITE);
        load.cmd("SCRIPT").arg("LOAD").arg(WRITE_ON);
        self.ask(&load).await.map(drop)
    }

    async fn ask_once(&self, questions: &Pipeline) -> Result<Vec<Value>, RedisCallError> {
        let mut live = self.live().await.map_err(RedisCallError::NotAsked)?;
        let count = questions.len();
        let answers = live.to.send_packed_commands(questions, 0, count).await;
        let answers = self.heard(&live, answers).await?;
        for answer in &answers {
            self.refused(&live, answer).await?;
        }
        Ok(answers)
    }

    async fn write_once(&self, script: &WriteScriptCall) -> Result<(Value, Option<i64>), RedisCallError> {
        let mut live = self.live().await.map_err(RedisCallError::NotAsked)?;
        let Some(replicas) = self.address.wait else {
            let answer = live.to.send_packed_command(&script.0).await;
            let answer = self.heard(&live, answer).await?;
            self.refused(&live, &answer).await?;
            return Ok((answer, None));
        };
        let mut both = Pipeline::with_capacity(2);
        both.add_command(script.0.clone());
        both.cmd("WAIT").arg(replicas).arg(WAIT_TIME.as_millis().to_string());
        let answers = live.to.send_packed_commands(&both, 0, 2).await;
        let mut answers = self.heard(&live, answers).await?.into_iter();
        let (answer, confirmed) = (answers.next().unwrap_or(Value::Nil), answers.next());
        self.refused(&live, &answer).await?;
        match confirmed {
            Some(Value::Int(confirmed)) => Ok((answer, Some(confirmed))),
            // A server that refuses to wait has written anyway: which replicas have it is unknown. The server is
            // checked again.
            Some(Value::ServerError(error)) => {
                self.disconnect(&live).await;
                let refusal = RedisReplyError::of(error);
                let why = format!(
                    "{}: it does not wait for replicas (`wait={replicas}` in the URL): {refusal}",
                    self.address
                );
                Err(RedisCallError::Lost(ErrorMessage::from(why).caused_by(refusal.into_cause())))
            }
            _ => Ok((answer, Some(0))),
        }
    }

    /// Tells an error reply from a broken connection, which is dropped.
    async fn heard<T>(&self, live: &RedisConn, answer: Result<T, RedisError>) -> Result<T, RedisCallError> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if let ErrorKind::Server(_) | ErrorKind::Extension = error.kind() {
            let refusal = RedisReplyError::from(error);
            self.leave_if_wrong(live, &refusal).await;
            return Err(RedisCallError::Refused(refusal));
        }
        self.disconnect(live).await;
        let why = if error.is_timeout() { format!("no response within {ANSWER_TIME:?}") } else { error.to_string() };
        Err(RedisCallError::Lost(ErrorMessage::from(format!("{}: {why}", self.address)).caused_by(error)))
    }

    async fn refused(&self, live: &RedisConn, answer: &Value) -> Result<(), RedisCallError> {
        let Value::ServerError(error) = answer else { return Ok(()) };
        let refusal = RedisReplyError::of(error.clone());
        self.leave_if_wrong(live, &refusal).await;
        Err(RedisCallError::Refused(refusal))
    }

    /// Drops the connection to a server that has changed its role, so that it is checked again.
    async fn leave_if_wrong(&self, live: &RedisConn, refusal: &RedisReplyError) {
        if ["READONLY", "MOVED", "MASTERDOWN", "NOAUTH", "CLUSTERDOWN"].contains(&refusal.code()) {
            self.disconnect(live).await;
        }
    }

    async fn disconnect(&self, live: &RedisConn) {
        let mut wire = self.wire.lock().await;
        if wire.live.as_ref().is_some_and(|now| now.number == live.number) {
            wire.live = None;
        }
    }

    /// The connection. The first caller makes it; the others wait.
    async fn live(&self) -> Result<RedisConn, StoreOpenError> {
        let mut wire = self.wire.lock().await;
        if let Some(live) = &wire.live {
            return Ok(live.clone());
        }
        if let Some((at, why)) = &wire.failed
            && at.elapsed() < CONNECT_PAUSE
        {
            return Err(why.clone());
        }
        let made = if let Ok(made) = timeout(CONNECT_TIME, self.connect()).await {
            made
        } else {
            let why = format!("{} does not respond within {CONNECT_TIME:?}", self.address);
            Err(server_check::explained(&self.address, why.into()).await)
        };
        match made {
            Ok((to, at, warnings)) => {
                wire.warn(warnings);
                wire.made += 1;
                wire.failed = None;
                let live = RedisConn { number: wire.made, to, at };
                wire.live = Some(live.clone());
                Ok(live)
            }
            Err(why) => {
                wire.failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// The address of the current server.
    pub(super) async fn server(&self) -> Result<RedisUrl, StoreOpenError> {
        self.live().await.map(|live| live.at)
    }

    /// Connects to the server, or to the one that most sentinels name.
    async fn connect(&self) -> Result<NewRedisConn, StoreOpenError> {
        if self.address.sentinels.is_none() {
            return self.connect_to(&self.address).await;
        }
        let votes = sentinel::votes(&self.address).await;
        let place = votes.primary(&self.address)?;
        // No other server is tried, even if this one is down for now: what is written to an old primary is lost.
        match self.address.at(place) {
            Some(there) => self.connect_to(&there).await,
            None => Err(StoreOpenError::temporary(format!(
                "{}: the sentinels name `{place}`, which is not an address",
                self.address
            ))),
        }
    }

    /// Connects, checks the server, and follows it once to another node of its cluster.
    async fn connect_to(&self, address: &RedisUrl) -> Result<NewRedisConn, StoreOpenError> {
        let mut to = dial(address).await?;
        let place = match server_check::check_server(&mut to, address, &self.names, self.access).await? {
            RedisServerCheck::Fits(warnings) => return Ok((to, address.clone(), warnings)),
            RedisServerCheck::Elsewhere(place) => place,
        };
        let lives = |place: &str| {
            StoreOpenError::permanent(format!(
                "{address}: the store's keys are on another node of its cluster; use the address {place}"
            ))
        };
        let there = address.at(&place).ok_or_else(|| lives(&place))?;
        let mut to = dial(&there).await?;
        match server_check::check_server(&mut to, &there, &self.names, self.access).await? {
            RedisServerCheck::Fits(warnings) => Ok((to, there, warnings)),
            RedisServerCheck::Elsewhere(place) => Err(lives(&place)),
        }
    }
}

/// A connection, its server, and the warnings about it.
type NewRedisConn = (MultiplexedConnection, RedisUrl, Vec<String>);

/// One call of the write script.
pub(super) struct WriteScriptCall(Cmd);

impl WriteScriptCall {
    /// With these keys and arguments.
    pub(super) fn new(hash: &str, keys: &[Vec<u8>], words: &[Vec<u8>]) -> Self {
        let mut call = cmd("EVALSHA");
        call.arg(hash).arg(keys.len());
        for word in keys.iter().chain(words) {
            call.arg(word.as_slice());
        }
        Self(call)
    }
}

async fn dial(address: &RedisUrl) -> Result<MultiplexedConnection, StoreOpenError> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIME)).set_response_timeout(Some(ANSWER_TIME));
    let client = address.client().map_err(|error| cannot_connect(address, error))?;
    match client.get_multiplexed_async_connection_with_config(&config).await {
        Ok(to) => Ok(to),
        Err(error) => Err(match cannot_connect(address, error) {
            StoreOpenError::Temporary(why) => server_check::explained(address, why).await,
            ever @ StoreOpenError::Permanent(_) => ever,
        }),
    }
}

fn cannot_connect(address: &RedisUrl, error: RedisError) -> StoreOpenError {
    advice(address, &error).caused_by(error)
}

fn advice(address: &RedisUrl, error: &RedisError) -> StoreOpenError {
    let why = error.to_string();
    let refused = ["WRONGPASS", "NOAUTH"].iter().any(|code| why.contains(code));
    if refused || error.kind() == ErrorKind::AuthenticationFailed {
        return server_check::wrong_password(address);
    }
    if error.kind() == ErrorKind::InvalidClientConfig {
        return StoreOpenError::permanent(format!("{address}: {why}"));
    }
    if why.contains("ertificate") {
        return StoreOpenError::permanent(format!(
            "{address}: its certificate is not trusted ({why}); `roots=/path/ca.pem` in the store's URL names the certificates to trust"
        ));
    }
    if why.contains("DB index") || why.contains("SELECT is not allowed") {
        return StoreOpenError::permanent(format!(
            "{address}: the server has no database of that number ({why}); use a lower one, or none, in the store's URL"
        ));
    }
    StoreOpenError::temporary(format!("{address} cannot be reached: {why}"))
}
