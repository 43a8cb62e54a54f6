//! Why a server that is there does not answer: one side speaks TLS and the other does not. Told by a few bytes that carry
//! nothing, and sent only when no connection came about.

use super::url::{RedisTransport, RedisUrl};
use crate::decide::time::Duration;
use crate::store::StoreOpenError;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the answer may take.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// The shortest beginning of a handshake: who speaks TLS refuses it with an alert, anybody else waits for more.
const HELLO: &[u8] = &[0x16, 3, 1, 0, 4, 1, 0, 0, 0];
/// The first bytes of what TLS says: an alert, or a handshake.
const TLS_SAYS: [u8; 2] = [0x15, 0x16];
/// What any Redis answers to, with a line that begins with one of two signs.
const PING: &[u8] = b"PING\r\n";
const REDIS_SAYS: [u8; 2] = *b"+-";

/// Why it does not answer: as it was said, unless the two speak differently.
pub(super) async fn explained(address: &RedisUrl, why: String) -> StoreOpenError {
    let Some((host, port, speech)) = address.tcp() else { return StoreOpenError::Temporary(why) };
    let (says, first) = match speech {
        RedisTransport::Plain => (HELLO, TLS_SAYS),
        RedisTransport::Tls => (PING, REDIS_SAYS),
    };
    match timeout(ANSWER_TIME, answer(host, port, says)).await {
        Ok(Ok(byte)) if first.contains(&byte) => StoreOpenError::Permanent(match speech {
            RedisTransport::Plain => {
                format!("{address} wants TLS: write rediss:// in place of redis:// in the store's URL")
            }
            RedisTransport::Tls => {
                format!("{address} does not speak TLS: write redis:// in place of rediss:// in the store's URL")
            }
        }),
        _ => StoreOpenError::Temporary(why),
    }
}

/// The first byte that it answers to these.
async fn answer(host: &str, port: u16, says: &[u8]) -> std::io::Result<u8> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.writable().await?;
    stream.try_write(says)?; // so few fit always
    let mut first = [0];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut first) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(first[0]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
