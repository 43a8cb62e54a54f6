//! A store by its address, for programs that choose it at run time.

use super::clock::Clock;
use super::memory::Memory;
use super::{CannotOpen, Store};
use crate::decide::time::Timestamp;
use std::path::Path;
use std::sync::Arc;

/// Opens the store at this address: `memory:`, or `sqlite:PATH` where the feature `sqlite` is on.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let store = hookonce::store::open("memory:").await?;
/// # drop(store); Ok::<_, hookonce::store::CannotOpen>(()) }).unwrap();
/// ```
pub async fn open(address: &str) -> Result<Arc<dyn Store>, CannotOpen> {
    // One line for each kind of store.
    match address.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(Memory::new(Clock::wall(Timestamp::default())))),
        Some(("sqlite", path)) if is_path(path) => sqlite(path).await,
        _ => Err(CannotOpen::Ever(unknown(address))),
    }
}

fn is_path(path: &str) -> bool {
    !path.is_empty() && !path.starts_with("//") && !path.contains('\0')
}

/// The kind alone is said: what follows it may hold a password.
fn unknown(address: &str) -> String {
    let kind = address.split_once(':').map_or("", |(kind, _)| kind);
    format!("no store is known by an address of kind `{kind}:`; expected memory: or sqlite:PATH")
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &str) -> Result<Arc<dyn Store>, CannotOpen> {
    use super::sqlite::{Access, Sqlite};
    let path = Path::new(path).to_owned();
    let opened = tokio::task::spawn_blocking(move || Sqlite::open(&path, Access::Node)).await;
    match opened {
        Ok(Ok(store)) => Ok(Arc::new(store)),
        Ok(Err(error)) => Err(CannotOpen::Ever(error.to_string())),
        Err(error) => Err(CannotOpen::Yet(error.to_string())),
    }
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(path: &str) -> Result<Arc<dyn Store>, CannotOpen> {
    let path = Path::new(path).display();
    Err(CannotOpen::Ever(format!("{path} is a SQLite database, and this was built without the feature `sqlite`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(address: &str, expected: &str) {
        let why = open(address).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains(expected), "{address}: {why}");
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_told_what_one_is_and_keeps_its_password() {
        assert!(open("memory:").await.is_ok());
        check("", "expected memory: or sqlite:PATH").await;
        check("sqlite:", "expected memory:").await;
        check("sqlite://x", "expected memory:").await;
        check("oracle://u:secret@h", "kind `oracle:`").await;
        let why = open("oracle://u:secret@h").await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!why.contains("secret"), "{why}");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_is_opened_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let address = format!("sqlite:{}", dir.path().join("once.db").display());
        let store = open(&address).await.expect("a store");
        check(&address, "is in use by another").await;
        drop(store);
        assert!(open(&address).await.is_ok());
    }
}
