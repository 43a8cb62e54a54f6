//! The kind of action that an attempt was begun as.

/// The kind of action that an attempt was started as. It is stored with the attempt's lease, because the route's config
/// may have changed by the time it is needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum ActionKind {
    /// A command, behind a guard.
    Run,
    /// A request to a receiver.
    Forward,
    /// A message to NATS.
    Publish,
    /// A statement in the store's own transaction.
    Sql,
    /// A service inside the process itself, behind the tower layer.
    Layer,
}

impl ActionKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Run, Self::Forward, Self::Publish, Self::Sql, Self::Layer];

    /// The name under which it is stored.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Forward => "forward",
            Self::Publish => "publish",
            Self::Sql => "sql",
            Self::Layer => "layer",
        }
    }

    /// The kind with this name. `None`: this version has no such kind.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Whether such an action ends together with its node's process. The guard kills a command, the database rolls a
    /// statement back, and a service in the process ends with it. A receiver continues with what it was sent.
    pub fn ends_with_its_node(self) -> bool {
        match self {
            Self::Run | Self::Sql | Self::Layer => true,
            Self::Forward | Self::Publish => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_back_from_its_word() {
        for kind in ActionKind::ALL {
            assert_eq!(ActionKind::parse(kind.word()), Some(kind));
        }
        assert_eq!(ActionKind::parse("walk"), None);
    }

    #[test]
    fn only_what_runs_inside_or_under_a_node_ends_with_it() {
        let ends: Vec<_> = ActionKind::ALL.into_iter().filter(|kind| kind.ends_with_its_node()).collect();
        assert_eq!(ends, [ActionKind::Run, ActionKind::Sql, ActionKind::Layer]);
    }
}
