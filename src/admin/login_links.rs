//! Links that log a browser in: each is valid once, for a minute, on the node that made it.

use crate::decide::id::Digest;
use crate::decide::limits;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The links that have not been used. Only digests are kept: neither a link nor a token can be read from them.
#[derive(Debug, Default)]
pub(super) struct LoginLinks(Mutex<VecDeque<LoginLink>>);

#[derive(Debug)]
struct LoginLink {
    code: Digest,
    /// The token that it stands for.
    token: Digest,
    until: Instant,
}

impl LoginLinks {
    fn links(&self) -> MutexGuard<'_, VecDeque<LoginLink>> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        links.retain(|link| link.until > now);
        links
    }

    /// The code of a new link for this token.
    pub(super) fn make(&self, token: &[u8]) -> String {
        let mut random = [0; 32];
        aws_lc_rs::rand::fill(&mut random).expect("the system has random bytes");
        let code = hex::encode(random);
        let (digest, token) = (Digest::of(code.as_bytes()), Digest::of(token));
        let mut links = self.links();
        if links.len() >= limits::LOGIN_LINKS_MAX {
            links.pop_front();
        }
        links.push_back(LoginLink { code: digest, token, until: Instant::now() + limits::LOGIN_LINK_TIME });
        code
    }

    /// The digest of the token that a code stands for. It is used up.
    pub(super) fn redeem(&self, code: &str) -> Option<Digest> {
        // By digests, so that no comparison says how much of a code is right.
        let code = Digest::of(code.as_bytes());
        let mut links = self.links();
        let place = links.iter().position(|link| link.code == code)?;
        links.remove(place).map(|link| link.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_link_is_valid_once_and_for_a_minute() {
        let links = LoginLinks::default();
        let (first, second) = (links.make(b"token"), links.make(b"other"));
        assert_eq!(links.redeem("0"), None);
        assert_eq!(links.redeem(&first), Some(Digest::of(b"token")));
        assert_eq!(links.redeem(&first), None);
        tokio::time::advance(limits::LOGIN_LINK_TIME).await;
        assert_eq!(links.redeem(&second), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_links_is_limited() {
        let links = LoginLinks::default();
        let all: Vec<_> = (0..=limits::LOGIN_LINKS_MAX).map(|_| links.make(b"token")).collect();
        assert_eq!(links.redeem(&all[0]), None);
        assert!(links.redeem(&all[1]).is_some());
    }
}
