//! A cluster of three servers.

use crate::house::{self, House};
use crate::server::{Nats, free_port};
use async_nats::jetstream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_made_on_a_cluster_has_as_many_replicas_as_the_config_says() {
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
    house::until("the stream to be taken from", || house.log().contains(" taking ")).await;
    let context = jetstream::new(async_nats::connect(servers[1].url()).await.unwrap());
    let stream = context.get_stream("EVENTS").await.unwrap();
    assert_eq!(stream.cached_info().config.num_replicas, 3);
}
