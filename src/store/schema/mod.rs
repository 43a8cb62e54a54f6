//! The schema of a database store: numbered migrations, each with its way back.
//!
//! The plan is made here, for every database alike; a module per database carries it out. An applied migration is never
//! edited: its checksum is stored, and a store whose history differs from ours is refused.

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use crate::decide::id::Digest;
use crate::decide::time::Timestamp;
use std::fmt;

/// One migration of the schema, and its reverse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migration {
    /// Its number: 1, 2, 3, …
    pub version: u32,
    /// Its name.
    pub name: &'static str,
    /// SQL from the version before to this one.
    pub up: &'static str,
    /// SQL back to the version before.
    pub down: &'static str,
    /// The oldest schema version whose binaries may run beside it: what they assume of the store still holds.
    pub oldest: u32,
}

/// The schema version of the first release. It compares numbers alone: it starts on a store that is one version ahead,
/// whatever that version did, and on none that is two ahead.
pub const FIRST_RELEASE: u32 = 7;

/// Does the first release start on a store of this version?
pub fn first_release_starts(version: u32) -> bool {
    version <= FIRST_RELEASE + 1
}

impl Migration {
    /// The checksum that reveals a later edit.
    pub fn checksum(&self) -> String {
        hex::encode(Digest::of(self.up.as_bytes()).0)
    }
}

/// A migration that was applied to a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppliedMigration {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// The checksum of the SQL that was run.
    pub checksum: String,
    /// When.
    pub applied_at: Timestamp,
    /// The oldest version that may run beside it, as written by the binary that applied it; the first release wrote
    /// none.
    pub oldest: Option<u32>,
}

impl AppliedMigration {
    /// The oldest version that may run beside it; by default the one before.
    fn works_from(&self) -> u32 {
        self.oldest.unwrap_or(self.version.saturating_sub(1))
    }
}

/// The status of one migration in one store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationStatus {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// When it was applied; `None` if it was not.
    pub applied_at: Option<Timestamp>,
}

/// Why a schema is not migrated or used.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MigrationRejection {
    /// The store is ahead of this binary, and one of its versions excludes this binary.
    Newer {
        /// The store's version.
        store: u32,
        /// The oldest version that may work with it.
        oldest: u32,
        /// The binary's.
        ours: u32,
    },
    /// The store is ahead of this binary, which knows no way back from there.
    Ahead {
        /// The store's version.
        store: u32,
        /// The binary's.
        ours: u32,
    },
    /// The store lacks versions that this binary needs.
    Older {
        /// The store's version.
        store: u32,
        /// The binary's.
        ours: u32,
    },
    /// A version was applied in another form than this binary knows.
    Drift {
        /// That version.
        version: u32,
        /// Its name in the store.
        name: String,
    },
    /// There is no such version.
    Unknown {
        /// The requested version.
        version: u32,
        /// The newest version.
        latest: u32,
    },
}

impl fmt::Display for MigrationRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { store, oldest, ours } => write!(
                f,
                "its schema is version {store}, which needs a hookonce that knows version {oldest}, and this hookonce \
                 knows version {ours}; use a newer hookonce, or go back with the newer one's `hookonce migrate down`"
            ),
            Self::Ahead { store, ours } => write!(
                f,
                "its schema is version {store}, but this hookonce knows only version {ours}; go back with the newer hookonce"
            ),
            Self::Older { store, ours } => write!(
                f,
                "its schema is version {store}, but this hookonce needs version {ours}; run `hookonce migrate up`"
            ),
            Self::Drift { version, name } => write!(
                f,
                "its schema version {version} ({name}) was applied in another form than this hookonce knows; \
                 use the hookonce that applied it"
            ),
            Self::Unknown { version, latest } => {
                write!(f, "there is no schema version {version}; the newest is {latest}")
            }
        }
    }
}

impl std::error::Error for MigrationRejection {}

/// The newest version in this list.
pub fn latest(known: &[Migration]) -> u32 {
    known.last().map_or(0, |migration| migration.version)
}

/// May this binary work with a store that has these migrations? A store may be ahead if each of its newer versions
/// permits it: nodes are upgraded one by one.
pub fn fits(known: &[Migration], applied: &[AppliedMigration]) -> Result<(), MigrationRejection> {
    fits_from(latest(known), known, applied)
}

/// The same for a binary that also works without the versions after `needed`.
pub fn fits_from(needed: u32, known: &[Migration], applied: &[AppliedMigration]) -> Result<(), MigrationRejection> {
    unchanged(known, applied)?;
    let store = version(applied);
    if store < needed { Err(MigrationRejection::Older { store, ours: needed }) } else { Ok(()) }
}

/// The migrations from the current version up to `to`, or to the newest.
pub fn way_up<'m>(
    known: &'m [Migration],
    applied: &[AppliedMigration],
    to: Option<u32>,
) -> Result<Vec<&'m Migration>, MigrationRejection> {
    unchanged(known, applied)?;
    let to = reachable(known, to.unwrap_or(latest(known)))?;
    Ok(known.iter().filter(|m| m.version > version(applied) && m.version <= to).collect())
}

/// The migrations from the current version back to `to`, newest first.
pub fn way_down<'m>(
    known: &'m [Migration],
    applied: &[AppliedMigration],
    to: u32,
) -> Result<Vec<&'m Migration>, MigrationRejection> {
    unchanged(known, applied)?;
    let (store, ours) = (version(applied), latest(known));
    if store > ours {
        return Err(MigrationRejection::Ahead { store, ours });
    }
    let to = reachable(known, to)?;
    Ok(known.iter().rev().filter(|m| m.version <= store && m.version > to).collect())
}

/// The status of every version: those we know, and those only the store knows.
pub fn standings(known: &[Migration], applied: &[AppliedMigration]) -> Vec<MigrationStatus> {
    let at = |version| applied.iter().find(|a| a.version == version).map(|a| a.applied_at);
    let ours =
        known.iter().map(|m| MigrationStatus { version: m.version, name: m.name.into(), applied_at: at(m.version) });
    let theirs = applied.iter().filter(|a| a.version > latest(known));
    let theirs =
        theirs.map(|a| MigrationStatus { version: a.version, name: a.name.clone(), applied_at: Some(a.applied_at) });
    ours.chain(theirs).collect()
}

fn version(applied: &[AppliedMigration]) -> u32 {
    applied.iter().map(|a| a.version).max().unwrap_or(0)
}

fn reachable(known: &[Migration], version: u32) -> Result<u32, MigrationRejection> {
    let latest = latest(known);
    if version <= latest { Ok(version) } else { Err(MigrationRejection::Unknown { version, latest }) }
}

fn unchanged(known: &[Migration], applied: &[AppliedMigration]) -> Result<(), MigrationRejection> {
    let (store, ours) = (version(applied), latest(known));
    let oldest = applied.iter().map(AppliedMigration::works_from).max().unwrap_or(0);
    if ours < oldest {
        return Err(MigrationRejection::Newer { store, oldest, ours });
    }
    for one in applied {
        let ours = known.iter().find(|m| m.version == one.version);
        if ours.is_some_and(|m| m.checksum() != one.checksum) {
            return Err(MigrationRejection::Drift { version: one.version, name: one.name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Migration] = &[
        Migration { version: 1, name: "a", up: "A", down: "", oldest: 1 },
        Migration { version: 2, name: "b", up: "B", down: "", oldest: 1 },
    ];

    fn applied(ups: &[&str]) -> Vec<AppliedMigration> {
        let one = |(version, up): (u32, &&str)| AppliedMigration {
            version,
            name: up.to_string(),
            checksum: hex::encode(Digest::of(up.as_bytes()).0),
            applied_at: Timestamp(1),
            oldest: None,
        };
        (1..).zip(ups).map(one).collect()
    }

    fn check(ups: &[&str], expected: &Result<(), MigrationRejection>) {
        assert_eq!(&fits(KNOWN, &applied(ups)), expected);
    }

    #[test]
    fn without_an_oldest_version_a_store_may_be_one_ahead_but_not_two() {
        check(&["A", "B"], &Ok(()));
        check(&["A", "B", "C"], &Ok(()));
        check(&["A", "B", "C", "D"], &Err(MigrationRejection::Newer { store: 4, oldest: 3, ours: 2 }));
        check(&["A"], &Err(MigrationRejection::Older { store: 1, ours: 2 }));
    }

    #[test]
    fn a_binary_that_works_without_its_newest_version_accepts_a_store_that_lacks_it() {
        assert_eq!(fits_from(1, KNOWN, &applied(&["A"])), Ok(()));
        assert_eq!(fits_from(1, KNOWN, &applied(&["A", "B"])), Ok(()));
        assert_eq!(fits_from(1, KNOWN, &[]), Err(MigrationRejection::Older { store: 0, ours: 1 }));
    }

    #[test]
    fn a_binary_works_exactly_with_stores_whose_every_version_permits_it() {
        let check = |later: &[u32], expected: Result<(), MigrationRejection>| {
            let mut all = applied(&["A", "B"]);
            all.extend((3..).zip(later).map(|(version, oldest)| AppliedMigration {
                version,
                name: "later".into(),
                checksum: "x".into(),
                applied_at: Timestamp(1),
                oldest: Some(*oldest),
            }));
            assert_eq!(fits(KNOWN, &all), expected, "{later:?}");
            assert_eq!(way_up(KNOWN, &all, None).map(|way| way.len()), expected.map(|()| 0), "{later:?}");
        };
        check(&[2], Ok(()));
        check(&[1, 2, 2, 1], Ok(()));
        check(&[3], Err(MigrationRejection::Newer { store: 3, oldest: 3, ours: 2 }));
        check(&[1, 4, 2], Err(MigrationRejection::Newer { store: 5, oldest: 4, ours: 2 }));
    }

    #[test]
    fn a_version_that_the_first_release_may_not_work_beside_has_a_number_that_it_refuses() {
        #[cfg(feature = "sqlite")]
        let sqlite = sqlite::MIGRATIONS;
        #[cfg(not(feature = "sqlite"))]
        let sqlite: &[Migration] = &[];
        #[cfg(feature = "postgres")]
        let postgres = postgres::MIGRATIONS;
        #[cfg(not(feature = "postgres"))]
        let postgres: &[Migration] = &[];
        for Migration { version, name, oldest, .. } in sqlite.iter().chain(postgres) {
            assert!(oldest <= version, "{name} permits itself");
            let numbered = *oldest <= FIRST_RELEASE || !first_release_starts(*version);
            assert!(numbered, "{name}: give it number {}, so that the first release refuses it", FIRST_RELEASE + 2);
        }
        assert!(first_release_starts(8) && !first_release_starts(9));
    }

    #[test]
    fn an_edited_migration_is_refused() {
        check(&["A", "b"], &Err(MigrationRejection::Drift { version: 2, name: "b".into() }));
        assert!(way_up(KNOWN, &applied(&["x"]), None).is_err());
        assert!(way_down(KNOWN, &applied(&["x"]), 0).is_err());
    }

    #[test]
    fn the_way_up_and_the_way_down_are_each_others_reverse() {
        let versions = |way: Vec<&Migration>| way.iter().map(|m| m.version).collect::<Vec<_>>();
        assert_eq!(way_up(KNOWN, &[], None).map(versions), Ok(vec![1, 2]));
        assert_eq!(way_down(KNOWN, &applied(&["A", "B"]), 0).map(versions), Ok(vec![2, 1]));
        assert_eq!(way_up(KNOWN, &applied(&["A"]), Some(1)).map(versions), Ok(vec![]));
        assert_eq!(
            way_up(KNOWN, &[], Some(9)).map(versions),
            Err(MigrationRejection::Unknown { version: 9, latest: 2 })
        );
        assert_eq!(
            way_down(KNOWN, &applied(&["A", "B", "C"]), 1).map(versions),
            Err(MigrationRejection::Ahead { store: 3, ours: 2 })
        );
    }
}
