//! Mistakes to be planted, all from outside: in what a node does, in what it writes, or between it and the store.
//! A simulation that finds nothing is only worth something if it finds these.

/// A mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    NoSwap,
    NoAlias,
    NoRegisterCheck,
    DoubtRearmed,
    RearmAfterIgnored,
    SweepByNodeClock,
    AcknowledgedBeforeCommit,
    FollowerAnsweredBeforeLeader,
    LeaseFromAnswer,
    NodeClockInLease,
    NoGuard,
    HalfRunHandedBack,
    DeliveryKeyWithoutBody,
    SupersededKeepsSlot,
    SlotFreedOnRetry,
    RepeatedClaimWritesAnew,
    ActsOnAnyClaim,
    RearmedByPredecessor,
    BodyOutOfPer,
    OvertakenTakesDigest,
    DoubtRetriedWithoutRoute,
    TimeoutCountedAsDoubt,
    PublishedAgainThoughReplaced,
    KeptFromLastMessage,
}

impl Bug {
    pub(crate) const ALL: [Self; 24] = [
        Self::NoSwap,
        Self::NoAlias,
        Self::NoRegisterCheck,
        Self::DoubtRearmed,
        Self::RearmAfterIgnored,
        Self::SweepByNodeClock,
        Self::AcknowledgedBeforeCommit,
        Self::FollowerAnsweredBeforeLeader,
        Self::LeaseFromAnswer,
        Self::NodeClockInLease,
        Self::NoGuard,
        Self::HalfRunHandedBack,
        Self::DeliveryKeyWithoutBody,
        Self::SupersededKeepsSlot,
        Self::SlotFreedOnRetry,
        Self::RepeatedClaimWritesAnew,
        Self::ActsOnAnyClaim,
        Self::RearmedByPredecessor,
        Self::BodyOutOfPer,
        Self::OvertakenTakesDigest,
        Self::DoubtRetriedWithoutRoute,
        Self::TimeoutCountedAsDoubt,
        Self::PublishedAgainThoughReplaced,
        Self::KeptFromLastMessage,
    ];

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::NoSwap => "a write does not ask for the revision it replaces",
            Self::NoAlias => "a delivery matched by its change leaves no alias",
            Self::NoRegisterCheck => "nobody asks whether an event was overtaken",
            Self::DoubtRearmed => "a repeat re-arms what is in doubt",
            Self::RearmAfterIgnored => "rearm_after is ignored",
            Self::SweepByNodeClock => "the sweep goes by a node's clock",
            Self::AcknowledgedBeforeCommit => "a delivery is acknowledged before its commit",
            Self::FollowerAnsweredBeforeLeader => "a follower is answered before its leader's commit",
            Self::LeaseFromAnswer => "a lease is counted from the answer",
            Self::NodeClockInLease => "a lease is written by the node's clock",
            Self::NoGuard => "a command outlives its lease and its node",
            Self::HalfRunHandedBack => "a half-run command is handed back",
            Self::DeliveryKeyWithoutBody => "an unsigned id is a key without the body's digest",
            Self::SupersededKeepsSlot => "a superseded event keeps its slot",
            Self::SlotFreedOnRetry => "a slot is freed between two attempts",
            Self::RepeatedClaimWritesAnew => "a claim repeated writes its event anew",
            Self::ActsOnAnyClaim => "a node acts on a repeated claim, however it stands",
            Self::RearmedByPredecessor => "a superseded event's repeat re-arms its successor",
            Self::BodyOutOfPer => "`change` does not imply `body`",
            Self::OvertakenTakesDigest => "a re-arm that is overtaken takes the digest, not the body",
            Self::PublishedAgainThoughReplaced => "what was replaced is published again",
            Self::KeptFromLastMessage => "publishing again makes an event kept for longer",
            Self::DoubtRetriedWithoutRoute => "a doubt is retried because its route, which holds, is gone",
            Self::TimeoutCountedAsDoubt => "an attempt that our own timeout ended is counted as a doubt",
        }
    }
}
