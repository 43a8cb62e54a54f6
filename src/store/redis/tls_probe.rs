//! Detection of a TLS mismatch, where only one of the two sides uses TLS: by a few harmless bytes, sent only after a
//! connection failed.

use super::url::{RedisTransport, RedisUrl};
use crate::decide::error_reason::ErrorReason;
use crate::decide::time::Duration;
use crate::store::StoreOpenError;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout of the response.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// The shortest start of a handshake: a TLS server refuses it with an alert, any other waits for more.
const HELLO: &[u8] = &[0x16, 3, 1, 0, 4, 1, 0, 0, 0];
/// The first byte of a TLS record: an alert, or a handshake.
const TLS_SAYS: [u8; 2] = [0x15, 0x16];
/// Any Redis replies to this with a line that begins with one of two characters.
const PING: &[u8] = b"PING\r\n";
const REDIS_SAYS: [u8; 2] = *b"+-";

/// Why the server does not respond: the given reason, unless there is a TLS mismatch.
pub(super) async fn explained(address: &RedisUrl, why: ErrorReason) -> StoreOpenError {
    let Some((host, port, speech)) = address.tcp() else { return StoreOpenError::Temporary(why) };
    let (says, first) = match speech {
        RedisTransport::Plain => (HELLO, TLS_SAYS),
        RedisTransport::Tls => (PING, REDIS_SAYS),
    };
    match timeout(ANSWER_TIME, answer(host, port, says)).await {
        Ok(Ok(byte)) if first.contains(&byte) => StoreOpenError::Permanent(why.reworded(match speech {
            RedisTransport::Plain => {
                format!("{address} wants TLS: write rediss:// instead of redis:// in the store's URL")
            }
            RedisTransport::Tls => {
                format!("{address} does not speak TLS: write redis:// instead of rediss:// in the store's URL")
            }
        })),
        _ => StoreOpenError::Temporary(why),
    }
}

/// The first byte of its response to these.
async fn answer(host: &str, port: u16, says: &[u8]) -> std::io::Result<u8> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.writable().await?;
    stream.try_write(says)?; // so few bytes always fit
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
