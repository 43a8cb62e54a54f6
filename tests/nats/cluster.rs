//! A cluster of three servers.

use crate::server::Nats;
use crate::support::{self, House, free_port};
use crate::{LONG, worker};
use async_nats::jetstream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_created_on_a_cluster_has_as_many_replicas_as_the_config_says() {
    let routes = [free_port(), free_port(), free_port()];
    let urls = routes.map(|port| format!("\"nats://127.0.0.1:{port}\"")).join(", ");
    let mut servers: Vec<_> = routes
        .iter()
        .enumerate()
        .map(|(n, port)| {
            Nats::absent(&format!(
                "server_name: s{n}\njetstream {{ store_dir: \"data\" }}\n\
                 cluster {{ name: c, listen: \"127.0.0.1:{port}\", routes: [{urls}] }}"
            ))
        })
        .collect();
    for server in &mut servers {
        assert!(server.up(), "a server of the cluster does not start");
    }
    let all = servers.iter().map(Nats::url).collect::<Vec<_>>().join(",");
    let config = format!(
        "[source.s]\nfrom = {{ nats = \"{all}\", stream = \"EVENTS\", create = true, subjects = [\"events.>\"], \
         replicas = 3 }}\nverify = \"none\"\n"
    );
    let house = House::new(&config);
    support::until("the stream to be read", || house.log().contains(" taking ")).await;
    let context = jetstream::new(async_nats::connect(servers[1].url()).await.unwrap());
    let stream = context.get_stream("EVENTS").await.unwrap();
    assert_eq!(stream.cached_info().config.num_replicas, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_stream_with_fewer_replicas_than_configured_is_reported_and_not_changed() {
    let nats = Nats::start();
    let stream = nats.stream("GITHUB", LONG).await;
    assert_eq!(stream.cached_info().config.num_replicas, 1);
    let from = r#", create = true, subjects = ["github.>"], replicas = 3"#;
    let config = worker(&nats.url(), from, "run = { steps = [\"true\"] }");
    let said = "has replicas = 1, not 3 as the config says";
    let check = |first: &str| {
        let live = House::empty(&config).command(&["check", "--live"]).output().unwrap();
        let text = String::from_utf8_lossy(&live.stdout).into_owned();
        assert!(live.status.success() && text.contains(first) && text.contains(said), "{text}");
    };
    check("no consumer yet");
    for _ in 0..2 {
        let house = House::new(&config); // the first creates the consumer, the second finds it
        support::until("the stream to be read", || house.log().contains(" taking ")).await;
        for words in [said, "nats stream edit GITHUB --replicas 3"] {
            support::until(words, || house.log().contains(words)).await;
        }
    }
    check("stream GITHUB");
    let stream = nats.jetstream().await.get_stream("GITHUB").await.unwrap();
    assert_eq!(stream.cached_info().config.num_replicas, 1, "it was changed");
}
