//! The sections of a config.

/// A section of the config: a table with its own set of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SectionKind {
    /// The top level, outside of every table.
    Top,
    /// `[admin]`
    Admin,
    /// An entry of `admin.tokens`.
    Token,
    /// `[source.NAME]`
    Source,
    /// `from = { … }`
    From,
    /// `verify = { … }`
    Verify,
    /// `kind = { … }`, in a preset.
    Kind,
    /// `fields.NAME = { … }`
    Field,
    /// `[source.NAME.once]`
    Once,
    /// `change = { … }`
    Change,
    /// `[[source.NAME.route]]`
    Route,
    /// `run = { … }`
    Block,
    /// `forward = { … }`
    Forward,
    /// `sign = { … }`
    Sign,
    /// `sql = { … }`
    Sql,
    /// `publish = { … }`
    Publish,
    /// `retry = { … }`
    Retry,
    /// `{ env = "…" }` or `{ file = "…" }`
    External,
}
