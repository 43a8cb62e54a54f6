//! GitLab's events of a project hook, as documented. Not tried at GitLab itself.

use crate::sender_api::{SenderApi, Style, TOKEN, now};
use crate::support::{House, Sent, until};
use crate::{ended, runs, start};

/// In a custom header of the hook.
const TOKEN_OF_HOOK: &str = crate::support::SECRET;

fn sent(n: u64) -> Sent {
    let headers = [
        ("authorization", format!("Bearer {TOKEN_OF_HOOK}")),
        ("x-gitlab-event", "Push Hook".to_owned()),
        ("idempotency-key", format!("delivery-{n}")),
        ("content-type", "application/json".to_owned()),
    ];
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Sent { headers, body: format!("{{\"object_kind\":\"push\",\"n\":{n}}}").into_bytes() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_events_of_a_project_hook_are_sent_again_oldest_first_and_only_of_kinds_that_are_wanted() {
    let api = SenderApi::start(Style::Gitlab).await;
    for n in 0..90 {
        match n % 3 {
            0 => api.missed(&format!("delivery-{n}"), "Push Hook", now(), sent(n)),
            1 => api.attempted(&format!("delivery-{n}"), "Push Hook", now(), 200),
            _ => api.attempted(&format!("delivery-{n}"), "Note Hook", now(), 500),
        }
    }
    let mut house = House::empty(&format!(
        r#"
[source.lab]
path   = "/lab"
verify = {{ scheme = "bearer", secret = {{ env = "SECRET" }} }}
delivery = "header.idempotency-key"
fields = {{ kind = "header.x-gitlab-event", n = "body.n" }}
when   = 'kind == "Push Hook"'
[source.lab.catch_up]
project = "group/app"
hook    = 5
token   = {{ env = "CATCH_UP_TOKEN" }}
api     = "{}/api/v4"
pause   = "0s"
[[source.lab.route]]
run = {{ steps = ["echo $HOOKONCE_FIELD_N >> runs"] }}
"#,
        api.address
    ));
    start(&mut house);
    api.send_to(&house.url("/lab"));
    until("the catch-up", || ended(&house) == 1).await;
    until("all runs", || runs(&house).len() >= 30).await;
    let expected: Vec<u64> = (0..90).step_by(3).collect();
    assert_eq!(runs(&house), expected);
    assert_eq!(api.asked(), expected.iter().map(|n| format!("delivery-{n}")).collect::<Vec<_>>());
    let paths: Vec<_> = api.requests().into_iter().map(|request| request.path).collect();
    assert!(paths[0].starts_with("/api/v4/projects/group%2Fapp/hooks/5/events?per_page=20"), "{paths:?}");
    assert!(paths.last().unwrap().ends_with("/resend"), "{paths:?}");
    assert!(!house.log().contains(TOKEN));
}
