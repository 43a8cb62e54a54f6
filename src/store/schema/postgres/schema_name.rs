//! The name of the PostgreSQL schema that a store lives in.
//!
//! Every statement of ours names its tables as `{schema}.events`. Constant statements get the name from
//! [`SchemaName::qualify`], when they are prepared; those built with `format!` have a variable `schema` of this type.
//! No session sets a `search_path`: the user's own `sql` runs under the user's.

use crate::decide::id::Digest;
use std::fmt;
use std::sync::Arc;

/// PostgreSQL's limit for names, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// The name of a store's schema. It is displayed as a quoted identifier, ready for a statement.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SchemaName(Arc<str>);

impl Default for SchemaName {
    /// The schema unless the URL names another.
    fn default() -> Self {
        Self("hookonce".into())
    }
}

impl SchemaName {
    /// A name from an operator. `None` if PostgreSQL does not accept it, or if no statement could hold it safely.
    pub fn parse(name: &str) -> Option<Self> {
        let odd = |letter: char| letter.is_control() || letter == '\\';
        (!name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(odd)).then(|| Self(name.into()))
    }

    /// The name of an existing schema.
    pub(super) fn of(name: &str) -> Self {
        Self(name.into())
    }

    /// The name without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Replaces `{schema}` in a statement, inside a literal or outside.
    pub fn qualify(&self, sql: &'static str) -> String {
        let quoted = self.to_string();
        sql.replace("'{schema}.", &format!("'{}.", quoted.replace('\'', "''"))).replace("{schema}", &quoted)
    }

    /// A table, view, index or sequence in this schema, both names quoted.
    pub fn relation(&self, name: &str) -> String {
        format!("{self}.\"{}\"", name.replace('"', "\"\""))
    }

    /// A number derived from this name, for advisory locks.
    pub fn number(&self) -> i32 {
        let Digest([a, b, c, d, ..]) = Digest::of(self.0.as_bytes());
        i32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_names_its_schema_quoted_inside_and_outside_of_literals() {
        let check = |name: &str, expected: &str| {
            let schema = SchemaName::parse(name).expect("a name");
            assert_eq!(schema.qualify("select '{schema}.turns'::regclass, '{}' from {schema}.events"), expected);
        };
        check("hookonce", r#"select '"hookonce".turns'::regclass, '{}' from "hookonce".events"#);
        check(r#"a"b"#, r#"select '"a""b".turns'::regclass, '{}' from "a""b".events"#);
        check("o'b", r#"select '"o''b".turns'::regclass, '{}' from "o'b".events"#);
        assert_eq!(SchemaName::default().relation("a\"b"), r#""hookonce"."a""b""#);
    }

    #[test]
    fn a_name_that_postgres_would_truncate_or_misread_is_rejected() {
        for name in ["", "a\0b", "a\nb", "a\\b", &"x".repeat(64)] {
            assert_eq!(SchemaName::parse(name), None, "{name:?}");
        }
        assert!(SchemaName::parse(&"x".repeat(63)).is_some());
    }
}
