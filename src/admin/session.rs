//! Sessions without server state. A cookie contains the time when its session ends, an id, and an HMAC of both under a key
//! that is derived from the token it was given for:
//!
//! ```text
//! token ─▶ key ─┐
//! ends + id ────┴─▶ ends | id | HMAC-SHA256     8, 16 and 32 bytes, as hexadecimal
//! ```
//!
//! So every node that has the token accepts the session, including one that starts later. A session has the permission
//! that its token has on the node that is asked, and ends when the token is removed. A node keeps a list only of the
//! sessions that logged out.

use crate::config::AdminPermission;
use crate::decide::id::Digest;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use aws_lc_rs::{hmac, pbkdf2};
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The salt that separates these keys from any other use of a token.
const PURPOSE: &[u8] = b"hookonce: sessions of the admin port, 1";
/// PBKDF2 rounds, so that a short token cannot be guessed quickly from a stolen cookie.
const ROUNDS: NonZeroU32 = NonZeroU32::new(100_000).expect("100,000 is not 0");

const SIGNED: usize = 24;
const WHOLE: usize = SIGNED + 32;

type SessionId = [u8; 16];

/// The keys of the tokens, and the sessions that logged out on this node.
#[derive(Debug)]
pub(super) struct AdminSessions {
    keys: Vec<SessionKey>,
    revoked: Arc<Mutex<RevokedSessions>>,
}

/// The key of a token's sessions, and their permission.
#[derive(Clone)]
struct SessionKey {
    /// Of the token.
    digest: Digest,
    key: hmac::Key,
    may: AdminPermission,
}

#[derive(Debug, Default)]
struct RevokedSessions {
    /// In the order in which they end: the first is dropped first.
    logged_out: BTreeSet<(Timestamp, SessionId)>,
}

/// A session whose cookie was verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AdminSession {
    pub(super) may: AdminPermission,
    pub(super) ends_at: Timestamp,
    id: SessionId,
}

/// What is made of a token is not printed, either.
impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({:?})", self.may)
    }
}

impl AdminSessions {
    /// Sessions for these tokens with their permissions.
    pub(super) fn new<'a>(tokens: impl Iterator<Item = (&'a [u8], AdminPermission)>) -> Self {
        Self { keys: Vec::new(), revoked: Arc::default() }.with_tokens(tokens)
    }

    /// The same sessions, as far as they are of these tokens.
    pub(super) fn with_tokens<'a>(&self, tokens: impl Iterator<Item = (&'a [u8], AdminPermission)>) -> Self {
        let key = |(token, may)| {
            let digest = Digest::of(token);
            if let Some(known) = self.keys.iter().find(|known| known.digest == digest) {
                return SessionKey { may, ..known.clone() };
            }
            let mut key = [0; 32];
            pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, PURPOSE, token, &mut key);
            SessionKey { digest, key: hmac::Key::new(hmac::HMAC_SHA256, &key), may }
        };
        Self { keys: tokens.map(key).collect(), revoked: self.revoked.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, RevokedSessions> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session for the token of this index, and the value of its cookie.
    pub(super) fn open(&self, token: usize, now: Timestamp) -> (String, AdminSession) {
        let SessionKey { key, may, .. } = &self.keys[token];
        let mut id = SessionId::default();
        aws_lc_rs::rand::fill(&mut id).expect("the system has random bytes");
        let session = AdminSession { may: *may, ends_at: now + limits::SESSION_TIME, id };
        let signed = [&session.ends_at.0.to_be_bytes()[..], &id].concat();
        let proof = hmac::sign(key, &signed);
        (hex::encode([&signed, proof.as_ref()].concat()), session)
    }

    /// The session of this cookie, if it is valid and not over.
    pub(super) fn find(&self, cookie: &str, now: Timestamp) -> Option<AdminSession> {
        let mut whole = [0; WHOLE];
        hex::decode_to_slice(cookie, &mut whole).ok()?;
        let (signed, proof) = whole.split_at(SIGNED);
        let SessionKey { may, .. } = self.keys.iter().find(|one| hmac::verify(&one.key, signed, proof).is_ok())?;
        let (ends_at, id) = signed.split_first_chunk()?;
        let session =
            AdminSession { may: *may, ends_at: Timestamp(i64::from_be_bytes(*ends_at)), id: id.try_into().ok()? };
        let over = session.ends_at <= now || self.lock().logged_out.contains(&(session.ends_at, session.id));
        (!over).then_some(session)
    }

    /// Ends a session on this node.
    pub(super) fn close(&self, cookie: &str, now: Timestamp) {
        let Some(session) = self.find(cookie, now) else { return };
        let mut revoked = self.lock();
        revoked.logged_out.retain(|(ends_at, _)| *ends_at > now);
        revoked.logged_out.insert((session.ends_at, session.id));
        if revoked.logged_out.len() > limits::LOGGED_OUT_MAX {
            revoked.logged_out.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn sessions(tokens: &[(&str, AdminPermission)]) -> AdminSessions {
        AdminSessions::new(tokens.iter().map(|(token, may)| (token.as_bytes(), *may)))
    }

    #[test]
    fn a_session_has_the_permission_of_its_token_on_that_node_and_ends_on_time() {
        let here = sessions(&[("one", AdminPermission::All), ("two", AdminPermission::Read)]);
        let (cookie, session) = here.open(1, NOW);
        assert_eq!((here.find(&cookie, NOW), session.may), (Some(session), AdminPermission::Read));
        let ends = NOW + limits::SESSION_TIME;
        assert_eq!(session.ends_at, ends);
        assert!(here.find(&cookie, Timestamp(ends.0 - 1)).is_some() && here.find(&cookie, ends).is_none());
        let there = sessions(&[("two", AdminPermission::Forget)]);
        assert_eq!(there.find(&cookie, NOW).map(|session| session.may), Some(AdminPermission::Forget));
        assert_eq!(sessions(&[("one", AdminPermission::All), ("2", AdminPermission::Read)]).find(&cookie, NOW), None);
        assert_eq!(sessions(&[]).find(&cookie, NOW), None);
    }

    #[test]
    fn a_session_lives_on_with_its_token_when_others_change_and_stays_logged_out() {
        let before = sessions(&[("one", AdminPermission::All), ("two", AdminPermission::Read)]);
        let [(kept, _), (left, _), (removed, _)] = [before.open(1, NOW), before.open(1, NOW), before.open(0, NOW)];
        before.close(&left, NOW);
        let tokens = [(&b"three"[..], AdminPermission::All), (b"two", AdminPermission::Forget)];
        let after = before.with_tokens(tokens.into_iter());
        assert_eq!(after.find(&kept, NOW).map(|session| session.may), Some(AdminPermission::Forget));
        assert!(after.find(&left, NOW).is_none() && after.find(&removed, NOW).is_none());
    }

    #[test]
    fn nothing_in_a_cookie_can_be_changed() {
        let sessions = sessions(&[("one", AdminPermission::All)]);
        let (cookie, _) = sessions.open(0, NOW);
        for at in 0..cookie.len() {
            let other = if &cookie[at..=at] == "0" { "1" } else { "0" };
            let forged = format!("{}{other}{}", &cookie[..at], &cookie[at + 1..]);
            assert_eq!(sessions.find(&forged, NOW), None, "{forged}");
        }
        for odd in ["", "00", "é", &cookie[2..], &format!("{cookie}00"), &"0".repeat(2 * WHOLE)] {
            assert_eq!(sessions.find(odd, NOW), None, "{odd}");
        }
    }

    #[test]
    fn a_logged_out_session_stays_so_and_a_foreign_cookie_is_not_remembered() {
        let (sessions, strange) =
            (sessions(&[("one", AdminPermission::All)]), sessions(&[("two", AdminPermission::All)]));
        let (first, _) = sessions.open(0, NOW);
        let (other, _) = sessions.open(0, NOW);
        sessions.close(&first, NOW);
        sessions.close(&first, NOW);
        assert!(sessions.find(&first, NOW).is_none() && sessions.find(&other, NOW).is_some());
        sessions.close(&strange.open(0, NOW).0, NOW);
        assert_eq!(sessions.lock().logged_out.len(), 1);
        let later = Timestamp(NOW.0 + 1);
        for _ in 0..limits::LOGGED_OUT_MAX {
            sessions.close(&sessions.open(0, later).0, later);
        }
        assert_eq!(sessions.lock().logged_out.len(), limits::LOGGED_OUT_MAX);
        let over = NOW + limits::SESSION_TIME + limits::SESSION_TIME;
        sessions.close(&sessions.open(0, over).0, over);
        assert_eq!(sessions.lock().logged_out.len(), 1);
    }
}
