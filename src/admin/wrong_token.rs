//! Wrong tokens: each is counted, logged and held back for a while before it is refused, whichever way it came. How long
//! is decided in [`throttle`](crate::decide::auth_throttle).

use super::AdminState;
use crate::decide::auth_throttle::AuthThrottle;
use axum::body::Body;
use axum::response::Response;
use futures_util::stream;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tracing::warn;

/// How a token was shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenLocation {
    /// In the `Authorization` header.
    Header,
    /// At the login.
    Login,
}

/// The refusals of late.
#[derive(Debug)]
pub(super) struct TokenThrottle {
    throttle: Mutex<AuthThrottle<IpAddr>>,
    since: Instant,
}

impl Default for TokenThrottle {
    fn default() -> Self {
        Self { throttle: Mutex::default(), since: Instant::now() }
    }
}

impl TokenThrottle {
    fn throttle(&self) -> MutexGuard<'_, AuthThrottle<IpAddr>> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A refusal that waits; nobody may be left to hear it.
struct DelayedRefusal<'d>(&'d AdminState, IpAddr);

impl Drop for DelayedRefusal<'_> {
    fn drop(&mut self) {
        self.0.refusals.throttle().release(&self.1);
    }
}

/// Refuses a wrong token, later.
pub(super) async fn reject_token(
    desk: &AdminState,
    peer: Option<IpAddr>,
    way: TokenLocation,
    refusal: Response,
) -> Response {
    let from = network(peer.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
    let word = match way {
        TokenLocation::Header => "header",
        TokenLocation::Login => "login",
    };
    desk.dispatcher.meter().admin_refused(way == TokenLocation::Login);
    let told = desk.refusals.throttle().record_failure(&from, desk.refusals.since.elapsed());
    if let Some(times) = told.say {
        warn!(target: "hookonce", reason = "bad_token", from = %from, way = word, times, "admin");
    }
    match told.delay {
        Some(delay) => {
            let _waiting = DelayedRefusal(desk, from);
            tokio::time::sleep(delay).await;
            refusal
        }
        None => drop_connection(),
    }
}

/// The addresses that one sender has at will count as one: of IPv6 the network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

/// Closes the connection without an answer: a body that breaks off before its first byte.
fn drop_connection() -> Response {
    let broken = stream::iter([Err::<&[u8], _>(io::Error::other("too many wrong tokens"))]);
    Response::new(Body::from_stream(broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_and_a_mapped_address_count_as_one() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(network(address).to_string(), expected);
        }
    }
}
