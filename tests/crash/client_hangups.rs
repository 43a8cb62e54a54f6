//! Clients that disconnect: their event is complete or absent, and nothing else is left.

use crate::rounds;
use crate::seed::{self, Random};
use crate::support::{House, until};
use rustix::net::sockopt::set_socket_linger;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

const CONFIG: &str = r#"store = "sqlite:hookonce.db"
[source.noted]
path = "/noted"
verify = "none"
delivery = "header.x-id"
[source.held]
path = "/held"
verify = "none"
delivery = "header.x-id"
[[source.held.route]]
in_doubt = "hold"
run = { steps = ['echo $(wc -c) >> acted'] }
[source.waits]
path = "/waits"
verify = "none"
delivery = "header.x-id"
respond = "done"
[[source.waits.route]]
run = { steps = ['sleep 0.05; echo $(wc -c) >> acted'] }
"#;

/// The size of a body: all of them together, if they stayed, would exceed the memory budget.
const BODY: usize = 300_000;

fn request(path: &str, id: usize) -> (String, Vec<u8>) {
    let mut body = format!("{{\"id\":{id},\"text\":\"").into_bytes();
    body.resize(BODY - 2, b'x');
    body.extend(b"\"}");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\nx-id: d{id}\r\ncontent-type: application/json\r\ncontent-length: {BODY}\r\n\r\n"
    );
    (head, body)
}

/// The number of sockets that the node has open.
fn sockets(house: &House) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", house.pid().as_raw_nonzero())).unwrap();
    let is_socket = |name: std::path::PathBuf| name.to_string_lossy().starts_with("socket:");
    files.flatten().filter(|file| std::fs::read_link(file.path()).is_ok_and(is_socket)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disconnects_leaves_an_event_that_is_complete_or_absent() {
    let mut random = Random::new(seed::any());
    let trials = rounds(800, 5000);
    let house = House::new(CONFIG);
    let before = sockets(&house);
    let authority = house.url("").strip_prefix("http://").unwrap().to_owned();
    let (mut whole_sent, mut part_sent) = (0, 0);
    for id in 0..trials {
        let path = ["/noted", "/noted", "/noted", "/held", "/waits"][id % 5];
        let (head, body) = request(path, id);
        let bytes = [head.as_bytes(), &body].concat();
        // Thirteen positions in the head, thirteen in the body, and after all of it.
        let cut = match id % 39 {
            n @ 0..13 => n * head.len() / 13,
            n @ 13..26 => head.len() + (n - 13) * BODY / 13,
            _ => bytes.len(),
        };
        let mut stream = TcpStream::connect(&authority).unwrap();
        // A node that has given up on the request closes first.
        let sent = stream.write_all(&bytes[..cut]);
        if cut == bytes.len() {
            sent.unwrap();
            whole_sent += 1;
            tokio::time::sleep(random.millis(0, 8)).await;
        } else {
            part_sent += 1;
        }
        if random.below(2) == 0 {
            set_socket_linger(&stream, Some(Duration::ZERO)).unwrap(); // a reset instead of a FIN
        }
        drop(stream);
    }
    until("all connections are gone", || sockets(&house) <= before).await;
    // No body is left in the budget: two that fill the share of large bodies still fit.
    let large = vec![b' '; 23 << 20];
    let headers = |id: &str| [("x-id".to_owned(), id.to_owned()), ("content-type".into(), "application/json".into())];
    let (one, two) = (headers("large 1"), headers("large 2"));
    let (one, two) = tokio::join!(house.post("/noted", &one, &large), house.post("/noted", &two, &large));
    assert!(
        [&one, &two].iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.status != 503)),
        "{one:?} {two:?}"
    );
    house.quiet().await;
    assert_eq!(house.count("dead"), 0, "{}", house.log());
    let sizes =
        house.sql("select distinct coalesce(unpacked, length(body)) as size from payloads where size < 20000000");
    assert!(sizes.iter().all(|size| *size == BODY.to_string()), "incomplete bodies were accepted: {sizes:?}");
    let acting = house.sql("select 1 from events where source <> 'noted'").len();
    let acted = house.lines("acted");
    assert_eq!((acted.len(), acted.iter().all(|line| *line == BODY.to_string())), (acting, true));
    let events = house.sql("select 1 from events where delivery_id not like 'large%'").len();
    assert!(events <= whole_sent, "{events} events from {whole_sent} complete requests");
    println!(
        "N = {trials} disconnects at 27 positions, {part_sent} in the middle: half events 0, connections and bodies left 0; \
         {events} of {whole_sent} complete requests became events, {acting} acted on, each once"
    );
    assert!(events > 0 && acting > 0);
}
