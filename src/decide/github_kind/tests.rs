use crate::decide::delivery::borrow_headers;
use crate::decide::github_kind::*;
use crate::decide::time::Timestamp;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::LazyLock;

/// Bodies of each kind, by their members: `name` is an object, `name=x` a text, `name{inner}` an object with one more.
const BODIES: &[(&str, &str)] = &[
    ("branch_protection_configuration", "action=enabled repository sender organization installation"),
    ("branch_protection_rule", "action=edited rule changes repository sender"),
    ("check_run", "action=completed check_run repository sender installation"),
    ("check_run", "action=requested_action check_run requested_action repository sender"),
    ("check_suite", "action=completed check_suite repository sender"),
    ("code_scanning_alert", "action=created alert{rule} commit_oid= ref= repository sender"),
    ("commit_comment", "action=created comment repository sender"),
    ("create", "ref= ref_type= full_ref= master_branch= description= pusher_type= repository sender"),
    ("custom_property", "action=created definition organization sender"),
    ("custom_property_values", "action=updated old_property_values= new_property_values= repository organization"),
    ("delete", "ref= ref_type= pusher_type= repository sender"),
    ("dependabot_alert", "action=created alert{dependency} repository sender"),
    ("deploy_key", "action=created key repository sender"),
    ("deployment", "action=created deployment workflow workflow_run repository sender"),
    ("deployment", "action=created deployment workflow= workflow_run= repository sender"),
    (
        "deployment_protection_rule",
        "action=requested environment= event= deployment_callback_url= deployment pull_requests= repository sender",
    ),
    (
        "deployment_review",
        "action=approved approver comment= reviewers= since= workflow_job_run workflow_job_runs= workflow_run repository sender",
    ),
    (
        "deployment_review",
        "action=requested environment= requestor reviewers= since= workflow_job_run workflow_run repository sender",
    ),
    (
        "deployment_status",
        "action=created deployment deployment_status check_run workflow workflow_run repository sender",
    ),
    ("deployment_status", "action=created deployment deployment_status repository sender"),
    ("discussion", "action=created discussion repository sender"),
    ("discussion", "action=answered discussion answer repository sender"),
    ("discussion", "action=labeled discussion label repository sender"),
    ("discussion_comment", "action=created discussion comment repository sender"),
    ("fork", "forkee repository sender"),
    ("github_app_authorization", "action=revoked sender"),
    ("github_app_authorization", "action=revoked sender installation"),
    ("gollum", "pages= repository sender"),
    ("installation", "action=created installation{account} repositories= requester= sender"),
    ("installation", "action=deleted installation{account} sender"),
    (
        "installation_repositories",
        "action=added installation{account} repositories_added= repositories_removed= repository_selection= requester= sender",
    ),
    ("installation_target", "action=renamed account changes installation target_type= sender"),
    ("issue_comment", "action=created issue comment repository sender"),
    ("issue_comment", "action=edited issue comment changes repository organization installation sender"),
    (
        "issue_dependencies",
        "action=blocked_by_added blocked_issue blocked_issue_id= blocking_issue blocking_issue_id= repository sender",
    ),
    ("issues", "action=opened issue repository sender"),
    ("issues", "action=labeled issue label repository sender"),
    ("issues", "action=milestoned issue milestone repository sender"),
    ("issues", "action=assigned issue assignee repository sender"),
    ("label", "action=created label repository sender"),
    (
        "marketplace_purchase",
        "action=purchased marketplace_purchase previous_marketplace_purchase effective_date= sender",
    ),
    ("member", "action=added member changes repository sender"),
    ("membership", "action=added member scope= team organization sender"),
    ("membership", "action=removed member= scope= team organization sender"),
    ("merge_group", "action=checks_requested merge_group repository sender"),
    ("meta", "action=deleted hook hook_id= repository sender"),
    ("milestone", "action=created milestone repository sender"),
    ("milestone", "action=edited milestone changes repository sender"),
    ("org_block", "action=blocked blocked_user organization sender"),
    ("organization", "action=member_added membership organization sender"),
    ("organization", "action=member_invited invitation user organization sender"),
    ("organization", "action=renamed changes membership organization sender"),
    ("package", "action=published package repository sender"),
    ("page_build", "build id= repository sender"),
    ("personal_access_token_request", "action=created personal_access_token_request organization sender installation"),
    ("ping", "zen= hook_id= hook repository sender"),
    ("ping", "zen= hook_id= hook organization sender"),
    ("project", "action=created project repository sender"),
    ("project_card", "action=created project_card repository sender"),
    ("project_column", "action=created project_column repository sender"),
    ("projects_v2", "action=created projects_v2 organization sender"),
    ("projects_v2_item", "action=edited projects_v2_item changes organization sender"),
    ("projects_v2_status_update", "action=created projects_v2_status_update organization sender"),
    ("public", "repository sender"),
    ("public", "repository organization installation sender"),
    ("pull_request", "action=opened number= pull_request repository sender"),
    ("pull_request", "action=labeled number= pull_request label repository sender"),
    ("pull_request", "action=milestoned number= pull_request milestone repository sender"),
    ("pull_request", "action=synchronize number= before= after= pull_request repository sender"),
    ("pull_request_review", "action=submitted pull_request review repository sender"),
    ("pull_request_review_comment", "action=created pull_request comment repository sender"),
    ("pull_request_review_thread", "action=resolved pull_request thread repository sender"),
    (
        "push",
        "ref= before= after= base_ref= commits= compare= created= deleted= forced= head_commit pusher repository sender",
    ),
    (
        "push",
        "ref= before= after= base_ref= commits= compare= created= deleted= forced= head_commit= pusher repository sender",
    ),
    ("registry_package", "action=published registry_package repository sender"),
    ("release", "action=published release repository sender"),
    ("repository", "action=created repository sender"),
    ("repository", "action=renamed changes repository organization sender"),
    ("repository_advisory", "action=published repository_advisory repository sender"),
    ("repository_dispatch", "action=anything branch= client_payload repository sender installation"),
    ("repository_import", "status= repository sender"),
    ("repository_ruleset", "action=created repository_ruleset repository sender"),
    ("repository_vulnerability_alert", "action=create alert{affected_package_name=} repository sender"),
    ("secret_scanning_alert", "action=created alert{secret_type=} repository sender"),
    ("secret_scanning_alert_location", "action=created alert{secret_type=} location repository sender"),
    ("secret_scanning_scan", "action=completed type= source= started_at= completed_at= repository"),
    ("security_advisory", "action=published security_advisory"),
    ("security_and_analysis", "changes{from} repository sender"),
    ("sponsorship", "action=created sponsorship sender"),
    ("star", "action=created starred_at= repository sender"),
    (
        "status",
        "id= sha= name= context= description= state= target_url= commit branches= created_at= updated_at= repository sender",
    ),
    (
        "sub_issues",
        "action=sub_issue_added parent_issue_id= parent_issue sub_issue_id= sub_issue sub_issue_repo repository sender",
    ),
    ("team", "action=created team organization sender"),
    ("team", "action=added_to_repository team repository organization sender"),
    ("team_add", "team repository organization sender"),
    ("watch", "action=started repository sender"),
    ("workflow_dispatch", "inputs= ref= workflow= repository sender"),
    ("workflow_job", "action=completed workflow_job repository sender"),
    ("workflow_job", "action=completed workflow_job deployment repository sender"),
    ("workflow_run", "action=completed workflow_run workflow repository sender"),
    ("workflow_run", "action=completed workflow_run workflow= repository sender"),
];

fn body(members: &str) -> String {
    let one = |member: &str| match (member.split_once('{'), member.split_once('=')) {
        (Some((name, inner)), _) => match inner.trim_end_matches('}').strip_suffix('=') {
            Some(text) => format!("{name:?}:{{{text:?}:\"x\"}}"),
            None => format!("{name:?}:{{{:?}:{{}}}}", inner.trim_end_matches('}')),
        },
        (None, Some((name, ""))) => format!("{name:?}:null"),
        (None, Some((name, text))) => format!("{name:?}:{text:?}"),
        (None, None) => format!("{member:?}:{{}}"),
    };
    format!("{{{}}}", members.split(' ').map(one).collect::<Vec<_>>().join(","))
}

/// The known kinds and those given, with the paths to walk a body along.
fn kinds(used: EventKindUse, own: &[(String, Vec<String>)]) -> (JsonPathTrie, EventKindMatcher) {
    let mut paths = JsonPathTrie::new();
    let kinds = EventKindMatcher::new(used, own, &mut paths);
    (paths, kinds)
}

static DECIDES: LazyLock<(JsonPathTrie, EventKindMatcher)> = LazyLock::new(|| kinds(EventKindUse::Decides, &[]));
static PASSED_ON: LazyLock<(JsonPathTrie, EventKindMatcher)> = LazyLock::new(|| kinds(EventKindUse::PassedOn, &[]));

fn compare(
    used: EventKindUse,
    own: &[(String, Vec<String>)],
    headers: &[(&str, &str)],
    body: &str,
) -> Result<(), String> {
    let described;
    let (paths, kinds) = match (own, used) {
        ([], EventKindUse::Decides) => &*DECIDES,
        ([], EventKindUse::PassedOn) => &*PASSED_ON,
        _ => {
            described = kinds(used, own);
            &described
        }
    };
    let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let delivery = Delivery {
        path: "",
        query: "",
        headers: &borrow_headers(&headers),
        body: &bytes,
        at: Timestamp::default(),
        wall: Timestamp::default(),
    };
    let seen = paths.walk(&bytes).expect("the test's own JSON");
    kinds.compare(&delivery, &seen)
}

/// Checks whether a body passes under this kind.
fn check(used: EventKindUse, kind: &str, body: &str, expected: bool) {
    let found = compare(used, &[], &[(HEADER, kind)], body);
    assert_eq!(found.is_ok(), expected, "{body} as {kind}: {found:?}");
}

#[test]
fn every_body_has_the_shape_of_its_own_kind_and_of_no_other() {
    for (of, members) in BODIES {
        let body = body(members);
        for shape in shapes::SHAPES {
            check(EventKindUse::Decides, shape.kind, &body, shape.kind == *of);
            check(EventKindUse::PassedOn, shape.kind, &body, shape.kind == *of);
        }
        assert_eq!(of_body(body.as_bytes()).as_deref(), Some(*of), "{body}");
    }
}

#[test]
fn every_kind_is_in_the_table_once_and_has_a_test_body() {
    for (i, shape) in shapes::SHAPES.iter().enumerate() {
        assert!(BODIES.iter().any(|(kind, _)| *kind == shape.kind), "{}", shape.kind);
        assert!(shapes::SHAPES[..i].iter().all(|other| other.kind != shape.kind), "{}", shape.kind);
    }
}

#[test]
fn a_kind_that_is_not_known_decides_nothing_unless_the_config_describes_it() {
    let body = r#"{"action":"made","novelty":{}}"#;
    let why = compare(EventKindUse::Decides, &[], &[(HEADER, "novelty")], body).unwrap_err();
    assert!(why.contains(r#"kinds = { novelty = "body.…" }"#), "{why}");
    check(EventKindUse::PassedOn, "novelty", body, true);
    let own = [("novelty".to_owned(), vec!["novelty".to_owned()])];
    assert_eq!(compare(EventKindUse::Decides, &own, &[(HEADER, "novelty")], body), Ok(()));
    for used in [EventKindUse::Decides, EventKindUse::PassedOn] {
        assert!(compare(used, &own, &[(HEADER, "novelty")], r#"{"action":"made"}"#).is_err());
        assert!(compare(used, &own, &[(HEADER, "push")], body).is_err());
    }
    let other = [("push".to_owned(), vec!["novelty".to_owned()])];
    assert_eq!(
        compare(EventKindUse::Decides, &other, &[(HEADER, "push")], body),
        Ok(()),
        "the config's description wins"
    );
}

#[test]
fn a_body_of_a_known_kind_never_passes_for_one_that_the_config_describes() {
    let push = body("ref= after= commits= repository sender");
    let own = [("novelty".to_owned(), vec!["ref".to_owned()])];
    assert!(compare(EventKindUse::Decides, &own, &[(HEADER, "novelty")], &push).is_err());
    assert_eq!(compare(EventKindUse::Decides, &own, &[(HEADER, "push")], &push), Ok(()));
    let own = [("novelty".to_owned(), vec!["novelty".to_owned()])];
    let made = body("action=created novelty repository sender");
    assert_eq!(compare(EventKindUse::Decides, &own, &[(HEADER, "novelty")], &made), Ok(()));
    assert!(compare(EventKindUse::Decides, &own, &[(HEADER, "repository")], &made).is_err());
}

#[test]
fn a_header_that_is_missing_doubled_or_no_text_decides_nothing() {
    let body = body("ref= after= commits=");
    for used in [EventKindUse::Decides, EventKindUse::PassedOn] {
        assert!(compare(used, &[], &[(HEADER, "push"), (HEADER, "push")], &body).is_err());
        assert!(compare(used, &[], &[(HEADER, "")], &body).is_err());
        assert!(compare(used, &[], &[(HEADER, "p\u{fc}sh")], &body).is_err());
        assert_eq!(compare(used, &[], &[(HEADER, "push")], &body), Ok(()));
        for other in ["Push", " push", "push ", "push,push", "registry_package"] {
            assert!(compare(used, &[], &[(HEADER, other)], &body).is_err(), "{other:?}");
        }
    }
    assert!(compare(EventKindUse::Decides, &[], &[], &body).is_err());
    assert_eq!(compare(EventKindUse::PassedOn, &[], &[], &body), Ok(()));
}

proptest! {
    /// Members that GitHub may add under new names change nothing.
    #[test]
    fn members_of_no_kind_do_not_matter(at in any::<prop::sample::Index>(), name in "x_[a-z]{1,8}") {
        let (of, members) = BODIES[at.index(BODIES.len())];
        let body = body(&format!("{members} {name}"));
        for shape in shapes::SHAPES {
            check(EventKindUse::Decides, shape.kind, &body, shape.kind == of);
        }
    }
}
