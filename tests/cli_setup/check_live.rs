//! `hookonce check --live`: tries what the config names, and changes nothing.

use super::support::House;
use super::{ghcr, run, said};
use std::net::TcpListener;

#[test]
fn working_parts_are_reported_as_ok() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", receiver.local_addr().unwrap());
    let forward = format!("[[source.ghcr.route]]\nname = 'two'\nforward = {{ url = '{url}' }}\n");
    let house = House::empty(&format!("{}{forward}", ghcr("run = { steps = ['x', ['sh', '-c', 'x']] }")));
    run(&house, &["check", "--live"]).has(
        0,
        &[
            "ok     secret    $SECRET: set",
            "does not exist yet; it is created when a node starts",
            "ok     folder    ",
            "ok     command   sh: /",
            &format!("ok     receiver  {url}: can be connected to"),
            "is fine, and all 5 live checks passed",
        ],
    );
    assert!(!house.path("hookonce.db").exists(), "nothing is created");
}

#[test]
fn broken_parts_are_reported_with_what_to_do() {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port();
    std::thread::spawn(move || {
        // It never speaks TLS.
        let answered = plain
            .incoming()
            .flatten()
            .map(|mut socket| std::io::Write::write_all(&mut socket, b"HTTP/1.1 400\r\n\r\n"));
        answered.for_each(drop);
    });
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let routes = format!(
        "run = {{ dir = 'gone', steps = [['no-such-program'], ['./script']] }}\n\
         [[source.ghcr.route]]\nname = 'two'\nforward = {{ url = 'http://127.0.0.1:{free}/' }}\n\
         [[source.ghcr.route]]\nname = 'three'\nforward = {{ url = 'https://127.0.0.1:{port}/' }}\n\
         [[source.ghcr.route]]\nname = 'four'\nforward = {{ url = {{ env = 'NO_URL' }} }}\n"
    );
    let house = House::empty(&ghcr(&routes));
    let mut command = house.command(&["check", "--live"]);
    command.env_remove("SECRET");
    said(command, b"").has(
        1,
        &[
            "wrong  secret    $SECRET: the environment variable `SECRET` is not set; set `SECRET`",
            "wrong  value     $NO_URL: the environment variable `NO_URL` is not set",
            "/gone: it does not exist; create it",
            "wrong  command   no-such-program: it is not in PATH",
            "/script does not exist; install it",
            &format!("wrong  receiver  http://127.0.0.1:{free}/: cannot connect"),
            &format!("wrong  receiver  https://127.0.0.1:{port}/: TLS failed: "),
            "7 of 8 live checks failed",
        ],
    );
    let mut command = house.command(&["check", "--live", "--json"]);
    command.env("SECRET", "");
    let json = said(command, b"").has(1, &[]).json();
    assert_eq!(json["status"], "wrong");
    assert_eq!(json["live"][0]["words"], "the environment variable `SECRET` is empty");
}

#[test]
fn a_store_is_opened_and_left_unchanged() {
    let house = House::empty(&ghcr("run = { steps = ['true'] }"));
    run(&house, &["migrate", "up", "--to", "1"]).has(0, &[]);
    run(&house, &["check", "--live"]).has(0, &["the next node to start migrates its schema: 0002 "]);
    run(&house, &["migrate", "status"]).has(0, &["0002 beside       not applied"]);
    run(&house, &["migrate", "up"]).has(0, &[]);
    run(&house, &["check", "--live"]).has(0, &["opens, and its schema is up to date"]);
    std::fs::write(house.path("hookonce.db"), "something else").unwrap();
    run(&house, &["check", "--live"]).has(1, &["is not an SQLite database"]);
    house.configure(&format!("store = 'sqlite:gone/h.db'\n{}", ghcr("run = { steps = ['true'] }")));
    run(&house, &["check", "--live"]).has(1, &["gone does not exist; create it"]);
}

#[test]
fn a_live_check_works_beside_a_running_node() {
    let house = House::new(&ghcr("run = { steps = ['true'] }"));
    run(&house, &["check", "--live"]).has(0, &["opens, and its schema is up to date"]);
}

#[test]
fn a_wrong_config_is_reported_as_without_live() {
    let house = House::empty("nonsense = 1\n");
    run(&house, &["check", "--live"]).has(1, &["unknown key `nonsense`"]);
    run(&house, &["check", "--live", "--config", "none.toml"]).has(2, &["there is no config at none.toml"]);
}
