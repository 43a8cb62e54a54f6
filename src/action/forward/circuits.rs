//! The circuit breakers of a node. They outlive the actions that use them: a receiver that did not respond is left alone
//! after the config was loaded again, too.

use crate::decide::circuit_breaker::CircuitBreaker;
use crate::decide::id::Key;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What has receivers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum CircuitOwner {
    /// The action of a route, by the names of source and route.
    Route(Arc<str>, Arc<str>),
    /// A target of notifications.
    Target(Key),
}

/// A receiver: its owner, and its URL.
type Receiver = (Option<CircuitOwner>, String);

/// The circuit breakers of all receivers. Cheap to clone.
#[derive(Clone, Default)]
pub struct CircuitBreakers {
    all: Arc<Mutex<HashMap<Receiver, Weak<Mutex<CircuitBreaker>>>>>,
    owner: Option<CircuitOwner>,
}

impl CircuitBreakers {
    /// The circuit breakers of this owner.
    #[must_use]
    pub(crate) fn of(&self, owner: CircuitOwner) -> Self {
        Self { all: self.all.clone(), owner: Some(owner) }
    }

    /// The circuit breaker of the receiver with this URL: the one in use, if there is one. Without an owner, a new one.
    pub(super) fn breaker(&self, url: &str) -> Arc<Mutex<CircuitBreaker>> {
        if self.owner.is_none() {
            return Arc::default();
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, breaker| breaker.strong_count() > 0);
        let receiver = (self.owner.clone(), url.to_owned());
        if let Some(known) = all.get(&receiver).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::default();
        all.insert(receiver, Arc::downgrade(&new));
        new
    }
}

/// URLs may have secrets in them.
impl fmt::Debug for CircuitBreakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CircuitBreakers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breaker_lives_as_long_as_an_action_of_its_owner_uses_it() {
        let all = CircuitBreakers::default();
        let of = |route: &str| all.of(CircuitOwner::Route("source".into(), route.into()));
        let first = of("a").breaker("http://one/");
        assert!(Arc::ptr_eq(&first, &of("a").breaker("http://one/")));
        assert!(!Arc::ptr_eq(&first, &of("a").breaker("http://two/")));
        assert!(!Arc::ptr_eq(&first, &of("b").breaker("http://one/")));
        assert!(!Arc::ptr_eq(&all.breaker("http://one/"), &all.breaker("http://one/")));
        drop(first);
        drop(of("a").breaker("http://three/"));
        assert_eq!(all.all.lock().unwrap().len(), 1);
    }
}
