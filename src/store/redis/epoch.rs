//! The store's two marks: its epoch, made with it, and how often it was written.

use super::link::Link;
use super::names::Names;
use super::{Access, read};
use crate::store::{CannotOpen, StoreError};
use ::redis::{Pipeline, Value};

/// The store's epoch and count. A node makes the store where there is none; nobody does where only a part is left.
pub(super) async fn begin(link: &Link, names: &Names, access: Access) -> Result<(Vec<u8>, u64), CannotOpen> {
    let yet = |error: StoreError| CannotOpen::Yet(error.to_string());
    let address = &link.address;
    let mut questions = Pipeline::new();
    questions.cmd("MGET").arg(&[names.epoch(), names.count()]);
    questions.cmd("EXISTS").arg(names.all());
    let answers = link.ask(&questions).await.map_err(yet)?;
    let [marks, events] = &answers[..] else { return Err(CannotOpen::Yet(format!("{address} answers oddly"))) };
    let [epoch, count] = read::list(marks) else { return Err(CannotOpen::Yet(format!("{address} answers oddly"))) };
    let number = |value: &Value| read::number(value).and_then(|number| u64::try_from(number).ok());
    if let Some(epoch) = read::bytes(epoch) {
        return Ok((epoch.to_vec(), number(count).unwrap_or(0)));
    }
    if access == Access::Read {
        return Err(CannotOpen::Ever(format!(
            "{address} holds no store under the prefix `{}`; `hookonce serve` makes it, or check the URL",
            address.prefix
        )));
    }
    if number(count).is_some() || read::number(events) == Some(1) {
        return Err(CannotOpen::Ever(format!(
            "{address} holds a part of a store under the prefix `{}`, but not its epoch: it was damaged. Restore a \
             backup, or give another `prefix` to begin a new one",
            address.prefix
        )));
    }
    let mut new = [0; 16];
    aws_lc_rs::rand::fill(&mut new).expect("the system gives random bytes");
    let mut questions = Pipeline::new();
    questions.cmd("SET").arg(names.epoch()).arg(hex::encode(new)).arg("NX");
    questions.cmd("GET").arg(names.epoch());
    let answers = link.ask(&questions).await.map_err(yet)?;
    let epoch =
        answers.get(1).and_then(read::bytes).ok_or_else(|| CannotOpen::Yet(format!("{address} keeps nothing")))?;
    Ok((epoch.to_vec(), 0))
}
