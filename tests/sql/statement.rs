//! Parsing a statement: its `:names`, and the statements that are refused.

use crate::seed::{self, Random};
use hookonce::decide::limits;
use hookonce::decide::sql_template::{SqlDialect, SqlParamSource, SqlTemplate, SqlTemplateError};
use std::time::Duration;

const BOTH: [SqlDialect; 2] = [SqlDialect::Sqlite, SqlDialect::Postgres];

fn parse(text: &str, dialect: SqlDialect) -> Result<SqlTemplate, SqlTemplateError> {
    SqlTemplate::parse(text, dialect, Duration::from_secs(5))
}

/// The text of the statement as it is sent to the database.
fn sent(text: &str, dialect: SqlDialect) -> String {
    parse(text, dialect).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}")).numbered.to_string()
}

fn refused(text: &str, dialect: SqlDialect, title: &str) {
    match parse(text, dialect) {
        Err(wrong) => {
            assert!(wrong.title.contains(title), "{text}: {wrong:?}");
            assert!(text.get(wrong.at.clone()).is_some(), "{text}: {wrong:?}");
        }
        Ok(read) => panic!("{dialect:?} accepts {text}: {read:?}"),
    }
}

#[test]
fn a_name_is_numbered_everywhere_but_in_quotes_and_comments() {
    for (text, expected) in [
        ("select f(:a, :b, :a)", "select f($1, $2, $3)"),
        ("select :body::json, ':a', \":a\", 1::int", "select $1::json, ':a', \":a\", 1::int"),
        ("select 'it''s :a' || :a", "select 'it''s :a' || $1"),
        ("select e'it\\'s :a' || :a", "select e'it\\'s :a' || $1"),
        ("select E'\\\\' || :a", "select E'\\\\' || $1"),
        ("select '\\' || :a", "select '\\' || $1"),
        ("select $$ :a ' $$ || :a", "select $$ :a ' $$ || $1"),
        ("select $x$ :a $$ :a $x$ || :a", "select $x$ :a $$ :a $x$ || $1"),
        ("select a$b$ + :a", "select a$b$ + $1"),
        ("select 1 -- :a\n + :a", "select 1 -- :a\n + $1"),
        ("select /* :a /* :a */ :a */ :a", "select /* :a /* :a */ :a */ $1"),
        ("select f(x := :a, y => :b)", "select f(x := $1, y => $2)"),
        ("select '{}'::jsonb ? :a and b @> :c", "select '{}'::jsonb ? $1 and b @> $2"),
        ("select a[1:2], :a", "select a[1:2], $1"),
        ("select :a;  -- the end\n ;", "select $1;  -- the end\n ;"),
        ("select 'ü :a', \"ü\".ü, :a", "select 'ü :a', \"ü\".ü, $1"),
        ("select :aü", "select $1 ü"),
        ("(select :a)", "(select $1)"),
    ] {
        assert_eq!(sent(text, SqlDialect::Postgres), expected);
    }
    for (text, expected) in [
        ("insert into t values (:a, :b)", "insert into t values (?1, ?2)"),
        ("select [:a], `:a`, \":a\", ':a', :a", "select [:a], `:a`, \":a\", ':a', ?1"),
        ("select /* :a /* */ :a", "select /* :a /* */ ?1"),
        ("select '\\', :a", "select '\\', ?1"),
        ("select x'00', 1e5, 0x1F, :a2", "select x'00', 1e5, 0x1F, ?1"),
        ("replace into t values (:event_id)", "replace into t values (?1)"),
    ] {
        assert_eq!(sent(text, SqlDialect::Sqlite), expected);
    }
}

#[test]
fn the_source_of_a_named_value_is_known_at_load() {
    let names = parse("select :body, :delivery, :event_id, :attempt, :tag", SqlDialect::Sqlite).unwrap().names;
    let what: Vec<_> = names.into_iter().map(|named| named.what).collect();
    let expected = [
        SqlParamSource::Body,
        SqlParamSource::Delivery,
        SqlParamSource::EventId,
        SqlParamSource::Attempt,
        SqlParamSource::Field("tag".into()),
    ];
    assert_eq!(what, expected);
}

/// Statements that must be refused: they would end, change or leave our transaction, or are not one statement.
const REFUSED: &[&str] = &[
    "begin",
    "BEGIN IMMEDIATE",
    "begin; select 1",
    "start transaction",
    "commit",
    "Commit Work",
    "/* select */ commit",
    "-- select\ncommit",
    "end",
    "end transaction",
    "abort",
    "rollback",
    "rollback to savepoint a",
    "savepoint a",
    "release a",
    "release savepoint a",
    "prepare transaction 'x'",
    "commit prepared 'x'",
    "rollback prepared 'x'",
    "set transaction isolation level serializable",
    "set session characteristics as transaction read only",
    "set synchronous_commit = off",
    "set local statement_timeout = 0",
    "reset all",
    "discard all",
    "deallocate all",
    "call p()",
    "do $$ begin commit; end $$",
    "vacuum",
    "vacuum full events",
    "analyze",
    "attach 'x.db' as x",
    "attach database :body as x",
    "detach x",
    "pragma journal_mode = delete",
    "pragma synchronous = off",
    "copy t from program 'sh'",
    "copy t to '/tmp/x'",
    "create table t (a int)",
    "drop table events",
    "alter system set fsync = off",
    "truncate events",
    "grant all on events to public",
    "lock table events",
    "listen x",
    "notify x",
    "reindex",
    "cluster",
    "checkpoint",
    "load 'x'",
    "explain select 1",
    "declare c cursor for select 1",
    "fetch c",
    "execute p",
    "security label for x on table t is 'y'",
    "",
    "   ",
    "-- nothing",
    "/* nothing */",
    ";",
    "42",
];

#[test]
fn a_statement_that_would_end_or_leave_the_transaction_is_refused() {
    for text in REFUSED {
        for dialect in BOTH {
            assert!(parse(text, dialect).is_err(), "{dialect:?} accepts {text}");
        }
    }
    assert!(REFUSED.len() >= 40);
}

#[test]
fn several_statements_are_refused_however_they_hide() {
    for text in [
        "select 1; select 2",
        "select 1; commit",
        "select ';'; commit",
        "select 1 /* ; */ ; commit",
        "select 1;-- x\ncommit",
        "select 1;;;commit",
        "select 'a''b';commit",
        "select \"a\"\"b\";commit",
        "select 1;/* x */commit",
        "insert into t values (':a;'); delete from t",
    ] {
        for dialect in BOTH {
            refused(text, dialect, "several statements");
        }
    }
    refused("select e'\\'' ; commit", SqlDialect::Postgres, "several statements");
    refused("select '\\' ; commit --'", SqlDialect::Postgres, "several statements");
    refused("select $a$ ; $b$ ; $a$ ; commit", SqlDialect::Postgres, "several statements");
    refused("select /* /* */ ; */ 1; commit", SqlDialect::Postgres, "several statements");
    refused("select [;], `;`; commit", SqlDialect::Sqlite, "several statements");
    refused("select /* /* */ 1; commit -- */", SqlDialect::Sqlite, "several statements");
    for fine in ["select ';'", "select 1;", "select \";\"", "select 1 -- ; x", "select /* ; x */ 1"] {
        for dialect in &BOTH {
            drop(sent(fine, *dialect));
        }
    }
    sent("select $$ ; commit; $$", SqlDialect::Postgres);
}

#[test]
fn unterminated_text_and_parameters_without_a_name_are_refused() {
    for text in ["select 'a", "select \"a", "select /* a", "select 'a''"] {
        for dialect in &BOTH {
            refused(text, *dialect, "never ends");
        }
    }
    for text in ["select $$ a", "select $a$ $$", "select e'\\'", "select /* /* */"] {
        refused(text, SqlDialect::Postgres, "never ends");
    }
    for text in ["select `a", "select [a"] {
        refused(text, SqlDialect::Sqlite, "never ends");
    }
    for text in ["select ?", "select ?1", "select @a", "select $a", "select #a", "select :1", "select $1"] {
        refused(text, SqlDialect::Sqlite, "no name");
    }
    for text in ["select $1", "select $1, :a"] {
        refused(text, SqlDialect::Postgres, "no name");
    }
    for dialect in &BOTH {
        refused("select 'a\0b'", *dialect, "zero byte");
    }
    let long = format!("select '{}'", "x".repeat(limits::STATEMENT_BYTES_MAX));
    let many = format!("select {}1", ":a, ".repeat(limits::STATEMENT_NAMES_MAX + 1));
    for dialect in &BOTH {
        refused(&long, *dialect, "bytes");
    }
    for dialect in &BOTH {
        refused(&many, *dialect, "names");
    }
}

#[test]
fn any_text_is_parsed_or_refused() {
    let pieces = [
        "'", "\"", "$", "$a$", "/*", "*/", "--", "\n", ":", "::", ":a", ";", "e'", "\\", "ü", "[", "]", "select ", "?",
        "`", "1",
    ];
    let mut random = Random::new(seed::given_or(1));
    for _ in 0..20_000 {
        let mut text = "select ".to_owned();
        for _ in 0..8 {
            text += random.one(&pieces);
        }
        for dialect in BOTH {
            match parse(&text, dialect) {
                Ok(read) => assert!(read.names.iter().all(|named| text[named.at.clone()].starts_with(':'))),
                Err(wrong) => assert!(text.get(wrong.at.clone()).is_some(), "{text:?}: {wrong:?}"),
            }
        }
    }
}
