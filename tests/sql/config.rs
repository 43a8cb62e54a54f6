//! Errors of a statement in the config are reported at load, with their position.

use crate::config;
use crate::support::House;

/// Whether `hookonce check` accepts this route on this store, and its output.
fn check(store: &str, route: &str) -> (bool, String) {
    let house = House::empty(&config(store, "", route));
    let said = house.command(&["check"]).output().unwrap();
    (said.status.success(), String::from_utf8(said.stdout).unwrap())
}

fn wrong(store: &str, route: &str, words: &[&str]) {
    let (fine, said) = check(store, route);
    assert!(!fine, "{route} is accepted: {said}");
    for word in words {
        assert!(said.contains(word), "{route}: {said}");
    }
}

const SQLITE: &str = "sqlite:hookonce.db";
const POSTGRES: &str = "postgres://u@127.0.0.1/d";

#[test]
fn an_undeclared_name_is_an_error_at_its_position() {
    for store in [SQLITE, POSTGRES] {
        let said = ["`:txt` is not a declared field", "did you mean `text`?", "hookonce.toml:", "^^^^"];
        wrong(store, r#"sql = "insert into t values (:n, :txt)""#, &said);
        wrong(store, r#"sql = { statement = "insert into t values (:deliver)" }"#, &["did you mean `delivery`?"]);
    }
}

#[test]
fn transaction_control_and_several_statements_are_errors() {
    for store in [SQLITE, POSTGRES] {
        for statement in
            ["begin", "commit", "rollback", "savepoint a", "set transaction read only", "vacuum", "call p()"]
        {
            wrong(store, &format!("sql = \"{statement}\""), &["cannot be run here"]);
        }
        wrong(store, r#"sql = "select 1; commit""#, &["several statements"]);
        wrong(store, r#"sql = "select 'a""#, &["never ends"]);
        wrong(store, r#"sql = """#, &["the statement is empty"]);
    }
}

#[test]
fn a_statement_needs_a_store_that_is_a_database() {
    for store in ["memory:", "redis://127.0.0.1:6379/0"] {
        wrong(store, r#"sql = "select 1""#, &["`sql` needs a store that is a database"]);
    }
}

#[test]
fn times_that_do_not_fit_and_two_actions_are_errors() {
    wrong(SQLITE, r#"sql = { timeout = "1s" }"#, &["`sql` has no `statement`"]);
    wrong(SQLITE, r#"sql = { statement = "select 1", timeout = "2m" }"#, &["`timeout` is too long"]);
    wrong(SQLITE, r#"sql = { statement = "select 1", timeout = "0s" }"#, &["`timeout` is zero"]);
    wrong(SQLITE, "lease = \"5s\"\nsql = \"select 1\"", &["`lease` is not longer than the statement's timeout"]);
    let said = ["`lease` is not longer than the statement's timeout", "`lease` is 30s by default", "\"1m\""];
    wrong(SQLITE, r#"sql = { statement = "select 1", timeout = "1m" }"#, &said);
    wrong(SQLITE, r#"sql = { statement = "select 1", timeout = "30s" }"#, &said[..1]);
    let (fine, said) = check(SQLITE, "lease = \"61s\"\nsql = { statement = \"select 1\", timeout = \"1m\" }");
    assert!(fine, "{said}");
    wrong(
        SQLITE,
        "in_doubt = \"hold\"\nsql = \"select 1\"",
        &["`sql` and `in_doubt` cannot be combined", "one commit"],
    );
    wrong(SQLITE, "sql = \"select 1\"\nrun = { steps = [\"true\"] }", &["one action", "`run` and `sql`"]);
    wrong(SQLITE, "sql = 3", &["expected a string, or a table"]);
}

#[test]
fn check_prints_the_statement() {
    let (fine, said) = check(SQLITE, "sql = \"\"\"insert into t\n  values (:n, :body)\"\"\"");
    assert!(fine, "{said}");
    assert!(said.contains("sql        insert into t values (:n, :body), within 5s"), "{said}");
}
