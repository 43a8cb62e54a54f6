//! `hookonce healthcheck` and `hookonce version`: what containers and reports of problems ask.

use crate::support::{House, free_port};
use crate::{Said, numbers, on_known_ports, run, with_ports};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

#[tokio::test]
async fn the_health_check_passes_while_the_node_of_this_config_accepts_deliveries() {
    let mut house = on_known_ports("");
    assert_eq!(run(&house, &["healthcheck"]).fine(), "ready\n");
    let admin = house.admin_url("");
    assert_eq!(run(&house, &["healthcheck", "--admin", &admin]).fine(), "ready\n");
    house.stop();
    run(&house, &["healthcheck"]).check(1, "no node responds at");
    run(&house, &["healthcheck", "--admin", &admin]).check(1, "no node responds at");
}

#[tokio::test]
async fn the_health_check_needs_no_token() {
    let house = on_known_ports("token = { env = \"SECRET\" }");
    assert_eq!(run(&house, &["healthcheck"]).fine(), "ready\n");
}

/// As in an empty root. A crate's `Client::new()` would panic there.
#[test]
fn a_machine_without_ca_certificates_runs_a_node_its_commands_and_the_demo() {
    let mut house = House::empty(&with_ports(free_port(), free_port(), ""));
    let mut bare = [&["serve"][..], &["healthcheck"], &["list"], &["demo"]].map(|args| {
        let mut command = house.command(args);
        command.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/dev/null");
        command
    });
    let [serve, asked @ ..] = &mut bare;
    house.try_start_by(std::mem::replace(serve, Command::new("true"))).unwrap();
    for command in asked {
        let said = Said::of(command.stdin(Stdio::null()).output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

#[test]
fn a_node_that_accepts_no_deliveries_is_not_healthy_and_the_reason_is_printed() {
    let house = House::empty(&numbers());
    let node = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = node.local_addr().unwrap().to_string();
    // What a node answers is tested in tests/crash/disk.rs.
    let body = "{\"status\":\"unavailable\",\"reason\":\"store_not_writable\"}";
    std::thread::spawn(move || {
        let (mut stream, _) = node.accept().unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).unwrap();
        write!(stream, "HTTP/1.1 503 Service Unavailable\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    });
    run(&house, &["healthcheck", "--admin", &address]).check(1, "the node is not ready: store_not_writable");
}

#[test]
fn a_health_check_that_cannot_ask_says_why() {
    let house = House::empty(&numbers());
    run(&house, &["healthcheck"]).check(2, "name it with --admin");
    run(&house, &["healthcheck", "-c", "no.toml"]).check(2, "there is no config at no.toml");
    run(&house, &["healthcheck", "--admin", "not an address"]).check(2, "is not the address of an admin port");
}

#[tokio::test]
async fn another_server_is_not_a_healthy_node() {
    let house = House::new(&numbers());
    let (status, reason) = (house.url(""), "does not respond like an admin port of hookonce");
    // The webhook port answers the same question, and any other path of it does not.
    assert_eq!(run(&house, &["healthcheck", "--admin", &status]).fine(), "ready\n");
    run(&house, &["healthcheck", "--admin", &house.url("/in")]).check(2, reason);
}

#[test]
fn the_version_tells_how_the_binary_was_built() {
    let house = House::empty(&numbers());
    let short = run(&house, &["version"]).fine();
    assert_eq!(short, run(&house, &["--version"]).fine());
    let long = run(&house, &["version", "--verbose"]).fine();
    let rest = long.strip_prefix(&*short).unwrap();
    for part in
        ["target    ", std::env::consts::ARCH, "features  layer nats node postgres redis sqlite\n", "(fdatasync)\n"]
    {
        assert!(rest.contains(part), "{part:?} is not in {long}");
    }
}
