//! Counters over all histories.

use std::ops::AddAssign;

macro_rules! tally {
    ($($name:ident),*) => {
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub(crate) struct Tally { $(pub(crate) $name: u64),* }

        impl AddAssign for Tally {
            fn add_assign(&mut self, other: Self) { $(self.$name += other.$name;)* }
        }

        impl std::fmt::Display for Tally {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(write!(f, "{:>12} {}\n", self.$name, stringify!($name).replace('_', " "))?;)*
                Ok(())
            }
        }
    };
}

tally!(
    seeds,
    steps,
    seconds,
    deliveries,
    events,
    attempts,
    commands,
    effects,
    duplicates,
    stale,
    rearms,
    resumed,
    accepted,
    published_again,
    replays,
    died,
    superseded,
    set_aside,
    forgotten,
    crashes,
    orphans,
    pauses,
    lost_answers,
    late_writes
);
