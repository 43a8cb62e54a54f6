//! Many copies of one request at once, on one node and on two.

use super::{Client, Kind, PATIENCE, STORES, Service, behind};
use hookonce::{Once, seconds};
use std::collections::BTreeSet;

const COPIES: usize = 200;

async fn check(kind: Kind, nodes: usize) {
    let place = kind.fresh().await;
    let service = Service::slow();
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..nodes {
        clients.push(behind(&service, Once::new(place.store.clone()).wait(PATIENCE)).await);
    }
    let copies: Vec<_> = (0..COPIES)
        .map(|n| {
            let client = clients[n % nodes].clone();
            tokio::spawn(async move { client.post("storm", "one body").await })
        })
        .collect();
    service.entered(1).await;
    service.let_go();
    let mut said = Vec::new();
    for copy in copies {
        said.push(copy.await.unwrap());
    }
    assert_eq!(service.calls(), 1, "{kind:?} on {nodes}");
    let different: BTreeSet<_> = said.iter().map(|said| (said.status, said.body.clone())).collect();
    assert_eq!(different, [(200, "call 1 of nobody: one body".to_owned())].into(), "{kind:?} on {nodes}");
    assert_eq!(said.iter().filter(|said| !said.replayed()).count(), 1, "one is the first");
    let events: BTreeSet<_> = said.iter().map(|said| said.header("hookonce-event").unwrap()).collect();
    assert_eq!(events.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_concurrent_copies_are_one_call_and_two_hundred_equal_responses() {
    for kind in STORES {
        check(*kind, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_copies_to_several_nodes_are_one_call() {
    for kind in STORES {
        check(*kind, 3).await;
    }
}

/// Requests that wait for one that fails get the same failure; of the next requests only one runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_copies_of_a_failed_request_are_one_more_call() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::new();
        let client = behind(&service, Once::new(place.store.clone()).wait(seconds(20))).await;
        service.will_answer(&[500]);
        assert_eq!(client.post("k", "b").await.status, 500);
        let copies: Vec<_> = (0..50)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.post("k", "b").await })
            })
            .collect();
        for copy in copies {
            let said = copy.await.unwrap();
            assert_eq!((said.status, &*said.body), (200, "call 2 of nobody: b"), "{kind:?}");
        }
        assert_eq!(service.calls(), 2, "{kind:?}");
    }
}
