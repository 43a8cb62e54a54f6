//! Sentinel: asks the sentinels that a URL names which server is the primary now. A failover changes the answer, so they
//! are asked whenever a connection is made, and now and then while it lasts.

use super::address::Address;
use crate::decide::time::Duration;
use crate::store::CannotOpen;
use ::redis::{AsyncConnectionConfig, Client, Value, cmd};
use futures_util::future::join_all;
use tokio::time::timeout;

/// How long one sentinel may take to answer.
const SENTINEL_TIME: Duration = Duration::from_secs(1);

/// What one sentinel said.
enum Said {
    Primary(String),
    UnknownName,
    Nothing(String),
}

/// Where the primary is, as `host:port`: what most sentinels say first, then what others say. A sentinel that was cut off
/// may still name the one before.
pub(super) async fn primaries(address: &Address) -> Result<Vec<String>, CannotOpen> {
    let Some(sentinels) = &address.sentinels else { return Ok(Vec::new()) };
    let said = join_all(sentinels.clients(address).into_iter().map(|client| async {
        let asked = async { ask(client?, &sentinels.name).await };
        timeout(SENTINEL_TIME, asked).await.unwrap_or_else(|_| Ok(Said::Nothing("no answer".into())))
    }))
    .await;
    let mut votes: Vec<(String, usize)> = Vec::new();
    let (mut unknown, mut why) = (0, String::new());
    let many = said.len();
    for said in said {
        match said.unwrap_or_else(|error| Said::Nothing(error.to_string())) {
            Said::Primary(place) => match votes.iter_mut().find(|(other, _)| *other == place) {
                Some((_, votes)) => *votes += 1,
                None => votes.push((place, 1)),
            },
            Said::UnknownName => unknown += 1,
            Said::Nothing(because) => why = because,
        }
    }
    votes.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
    if !votes.is_empty() {
        return Ok(votes.into_iter().map(|(place, _)| place).collect());
    }
    if unknown == many {
        return Err(CannotOpen::Ever(format!(
            "{address}: none of the sentinels knows a primary of the name `{}`; `SENTINEL MASTERS` lists those they know",
            sentinels.name
        )));
    }
    Err(CannotOpen::Yet(format!("{address}: no sentinel can be asked for the primary: {why}")))
}

async fn ask(client: Client, name: &str) -> Result<Said, ::redis::RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SENTINEL_TIME))
        .set_response_timeout(Some(SENTINEL_TIME));
    let mut link = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut question = cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(name);
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    };
    Ok(match link.send_packed_command(&question).await? {
        Value::Array(place) if place.len() == 2 => {
            let (host, port) = (text(&place[0]), text(&place[1]));
            Said::Primary(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
        }
        Value::Nil => Said::UnknownName,
        Value::ServerError(error) => Said::Nothing(error.details().unwrap_or(error.code()).to_owned()),
        _ => Said::Nothing("it is no sentinel".into()),
    })
}
