//! Sentinel: asks the sentinels of a URL which server is the primary now. A failover changes that, so they are asked
//! whenever a connection is made, and periodically while it lasts.

use super::url::RedisUrl;
use crate::decide::error_message::ErrorMessage;
use crate::decide::time::Duration;
use crate::store::StoreOpenError;
use ::redis::{AsyncConnectionConfig, Client, Value, cmd};
use futures_util::future::join_all;
use tokio::time::timeout;

/// Timeout of one sentinel.
const SENTINEL_TIME: Duration = Duration::from_secs(1);

/// The reply of one sentinel.
enum SentinelReply {
    Primary(String),
    UnknownName,
    Nothing(ErrorMessage),
}

/// The servers that the sentinels name as the primary. A sentinel that was cut off may still name the former one.
#[derive(Default)]
pub(super) struct SentinelVotes {
    /// How many sentinels the URL names.
    asked: usize,
    /// How many do not know the primary's name.
    unknown: usize,
    /// The error of one that named no server.
    why: Option<ErrorMessage>,
    /// Each server that was named, as `host:port`, and by how many; most first.
    named: Vec<(String, usize)>,
}

impl SentinelVotes {
    fn count(said: impl IntoIterator<Item = SentinelReply>) -> Self {
        let mut votes = Self::default();
        for said in said {
            votes.asked += 1;
            match said {
                SentinelReply::Primary(place) => match votes.named.iter_mut().find(|(other, _)| *other == place) {
                    Some((_, many)) => *many += 1,
                    None => votes.named.push((place, 1)),
                },
                SentinelReply::UnknownName => votes.unknown += 1,
                SentinelReply::Nothing(why) => votes.why = Some(why),
            }
        }
        votes.named.sort_by_key(|(_, many)| std::cmp::Reverse(*many));
        votes
    }

    /// The server that more than half of the URL's sentinels name, counting unreachable ones. Any other may be a
    /// primary that was replaced: what is written there is lost.
    pub(super) fn primary(&self, address: &RedisUrl) -> Result<&str, StoreOpenError> {
        let Self { asked, unknown, why, named } = self;
        if let Some((place, many)) = named.first()
            && *many > asked / 2
        {
            return Ok(place);
        }
        let name = address.sentinels.as_ref().map_or("", |sentinels| &sentinels.name);
        if unknown == asked {
            return Err(StoreOpenError::permanent(format!(
                "{address}: none of the sentinels knows a primary named `{name}`; `SENTINEL MASTERS` lists those \
                 they know"
            )));
        }
        if let (Some(why), true) = (why, named.is_empty()) {
            let text = format!("{address}: no sentinel can be reached: {why}");
            return Err(StoreOpenError::Temporary(why.clone().reworded(text)));
        }
        let named: Vec<_> = named.iter().map(|(place, many)| format!("{many} of {asked} name {place}")).collect();
        let others = why.as_ref().map_or(String::new(), |why| format!("; another one failed: {why}"));
        Err(StoreOpenError::temporary(format!(
            "{address}: the sentinels do not agree on the primary: {}; more than half must name it{others}",
            named.join(", ")
        )))
    }

    /// Whether more sentinels name another server than name this one.
    pub(super) fn prefer_another(&self, is_this: impl Fn(&str) -> bool) -> bool {
        let most = |this: bool| {
            self.named.iter().filter(|(place, _)| is_this(place) == this).map(|(_, many)| *many).max().unwrap_or(0)
        };
        most(false) > most(true)
    }
}

/// Asks all sentinels of the URL.
pub(super) async fn votes(address: &RedisUrl) -> SentinelVotes {
    let Some(sentinels) = &address.sentinels else { return SentinelVotes::default() };
    let said = join_all(sentinels.clients(address).into_iter().map(|client| async {
        let asked = async { ask(client?, &sentinels.name).await };
        let said =
            timeout(SENTINEL_TIME, asked).await.unwrap_or_else(|_| Ok(SentinelReply::Nothing("no response".into())));
        said.unwrap_or_else(|error| SentinelReply::Nothing(ErrorMessage::of(error)))
    }));
    SentinelVotes::count(said.await)
}

async fn ask(client: Client, name: &str) -> Result<SentinelReply, ::redis::RedisError> {
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
            SentinelReply::Primary(if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            })
        }
        Value::Nil => SentinelReply::UnknownName,
        Value::ServerError(error) => SentinelReply::Nothing(error.details().unwrap_or(error.code()).into()),
        _ => SentinelReply::Nothing("it is not a sentinel".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes(said: &[&str]) -> SentinelVotes {
        SentinelVotes::count(said.iter().map(|said| match *said {
            "unknown" => SentinelReply::UnknownName,
            "down" => SentinelReply::Nothing("no response".into()),
            place => SentinelReply::Primary(place.into()),
        }))
    }

    #[test]
    fn only_a_server_named_by_more_than_half_of_all_sentinels_is_the_primary() {
        let address = RedisUrl::parse("redis+sentinel://one,two,three/main").expect("a url");
        let check = |said: &[&str], expected: Result<&str, &str>| match (votes(said).primary(&address), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{said:?}"),
            (Err(why), Err(words)) => assert!(why.to_string().contains(words), "{said:?}: {why}"),
            (found, expected) => panic!("{said:?}: {found:?} is not {expected:?}"),
        };
        check(&["n:1"], Ok("n:1"));
        check(&["n:1", "n:1"], Ok("n:1"));
        check(&["o:1", "n:1", "n:1"], Ok("n:1"));
        check(&["down", "n:1", "n:1"], Ok("n:1"));
        check(&["unknown", "n:1", "n:1"], Ok("n:1"));
        check(&["o:1", "n:1"], Err("1 of 2 name o:1, 1 of 2 name n:1; more than half must name it"));
        check(&["o:1", "down"], Err("1 of 2 name o:1; more than half must name it; another one failed: no response"));
        check(&["o:1", "down", "down"], Err("1 of 3 name o:1"));
        check(&["o:1", "o:1", "n:1", "down"], Err("2 of 4 name o:1, 1 of 4 name n:1"));
        check(&["down", "unknown"], Err("no sentinel can be reached"));
        check(&["unknown", "unknown"], Err("none of the sentinels knows"));
    }

    #[test]
    fn the_connection_is_dropped_when_more_sentinels_name_another_server() {
        let check = |said: &[&str], expected: bool| {
            assert_eq!(votes(said).prefer_another(|place| place == "ours:1"), expected, "{said:?}");
        };
        check(&["ours:1", "ours:1", "n:1"], false);
        check(&["ours:1", "n:1", "n:1"], true);
        check(&["ours:1", "n:1", "down"], false);
        check(&["n:1", "down", "down"], true);
        check(&["down", "unknown"], false);
        assert!(!SentinelVotes::default().prefer_another(|_| false), "no sentinels");
    }
}
