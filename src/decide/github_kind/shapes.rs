//! The table of kinds: GitHub's documented webhook events, each with members that all its payloads have. Members are
//! few on purpose: servers that imitate GitHub leave some out. Not in the table are kinds that cannot be distinguished
//! by their members, such as the requests to bypass a rule, and kinds that are newer than this release.

use super::ShapeMember::{Any, Object};
use super::{AbsentMembers, PayloadShape};

/// Members that bodies of many kinds have: they identify none.
pub(super) const COMMON: &[&str] =
    &["action", "changes", "enterprise", "installation", "organization", "repository", "sender"];

/// A kind with members of its own.
const fn shape(
    kind: &'static str,
    has: &'static [crate::decide::github_kind::ShapeMember],
    lacks: &'static [&'static str],
) -> PayloadShape {
    PayloadShape { kind, has, lacks: AbsentMembers::These(lacks), actions: &[] }
}

/// A kind whose bodies have only common members: its `action` identifies it.
const fn bare(
    kind: &'static str,
    has: &'static [crate::decide::github_kind::ShapeMember],
    lacks: &'static [&'static str],
    actions: &'static [&'static str],
) -> PayloadShape {
    PayloadShape { kind, has, lacks: AbsentMembers::Others(lacks), actions }
}

/// Every kind that is known, in the order of their names.
pub(super) const SHAPES: &[PayloadShape] = &[
    bare("branch_protection_configuration", &[Object("repository")], &[], &["disabled", "enabled"]),
    shape("branch_protection_rule", &[Object("rule")], &[]),
    shape("check_run", &[Object("check_run")], &["deployment_status"]),
    shape("check_suite", &[Object("check_suite")], &[]),
    shape("code_scanning_alert", &[Object("alert"), Object("alert.rule")], &[]),
    shape("commit_comment", &[Object("comment")], &["discussion", "issue", "pull_request"]),
    shape("create", &[Any("ref"), Any("ref_type"), Any("master_branch")], &[]),
    shape("custom_property", &[Object("definition")], &[]),
    shape("custom_property_values", &[Any("new_property_values")], &[]),
    shape("delete", &[Any("ref"), Any("ref_type")], &["master_branch"]),
    shape("dependabot_alert", &[Object("alert"), Object("alert.dependency")], &[]),
    shape("deploy_key", &[Object("key")], &[]),
    shape("deployment", &[Object("deployment")], &["deployment_callback_url", "deployment_status", "workflow_job"]),
    shape("deployment_protection_rule", &[Any("deployment_callback_url"), Any("environment")], &[]),
    shape("deployment_review", &[Any("reviewers"), Any("since")], &[]),
    shape("deployment_status", &[Object("deployment"), Object("deployment_status")], &[]),
    shape("discussion", &[Object("discussion")], &["comment"]),
    shape("discussion_comment", &[Object("discussion"), Object("comment")], &[]),
    shape("fork", &[Object("forkee")], &[]),
    bare("github_app_authorization", &[Object("sender")], &["organization", "repository"], &["revoked"]),
    shape("gollum", &[Any("pages")], &[]),
    shape("installation", &[Object("installation"), Object("installation.account")], &["repositories_added"]),
    shape(
        "installation_repositories",
        &[Object("installation"), Any("repositories_added"), Any("repositories_removed")],
        &[],
    ),
    shape("installation_target", &[Object("account"), Any("target_type")], &[]),
    shape("issue_comment", &[Object("issue"), Object("comment")], &[]),
    shape("issue_dependencies", &[Any("blocked_issue_id"), Any("blocking_issue_id")], &[]),
    shape("issues", &[Object("issue")], &["blocked_issue_id", "comment", "sub_issue_id"]),
    shape("label", &[Object("label")], &["discussion", "issue", "pull_request"]),
    shape("marketplace_purchase", &[Object("marketplace_purchase")], &[]),
    shape("member", &[Object("member")], &["scope"]),
    shape("membership", &[Object("team"), Any("scope")], &[]),
    shape("merge_group", &[Object("merge_group")], &[]),
    shape("meta", &[Object("hook"), Any("hook_id")], &["zen"]),
    shape("milestone", &[Object("milestone")], &["issue", "pull_request"]),
    shape("org_block", &[Any("blocked_user")], &[]),
    bare(
        "organization",
        &[Object("organization")],
        &["repository"],
        &["deleted", "member_added", "member_invited", "member_removed", "renamed"],
    ),
    shape("package", &[Object("package")], &[]),
    shape("page_build", &[Object("build"), Any("id")], &[]),
    shape("personal_access_token_request", &[Object("personal_access_token_request")], &[]),
    shape("ping", &[Object("hook"), Any("zen")], &[]),
    shape("project", &[Object("project")], &[]),
    shape("project_card", &[Object("project_card")], &[]),
    shape("project_column", &[Object("project_column")], &[]),
    shape("projects_v2", &[Object("projects_v2")], &[]),
    shape("projects_v2_item", &[Object("projects_v2_item")], &[]),
    shape("projects_v2_status_update", &[Object("projects_v2_status_update")], &[]),
    bare("public", &[Object("repository")], &["action", "changes"], &[]),
    shape("pull_request", &[Object("pull_request"), Any("number")], &["comment", "review", "thread"]),
    shape("pull_request_review", &[Object("pull_request"), Object("review")], &[]),
    shape("pull_request_review_comment", &[Object("pull_request"), Object("comment")], &[]),
    shape("pull_request_review_thread", &[Object("pull_request"), Object("thread")], &[]),
    shape("push", &[Any("after"), Any("commits"), Any("ref")], &[]),
    shape("registry_package", &[Object("registry_package")], &[]),
    shape("release", &[Object("release")], &[]),
    bare(
        "repository",
        &[Object("repository")],
        &[],
        &[
            "archived",
            "created",
            "deleted",
            "edited",
            "privatized",
            "publicized",
            "renamed",
            "transferred",
            "unarchived",
        ],
    ),
    shape("repository_advisory", &[Object("repository_advisory")], &[]),
    shape("repository_dispatch", &[Any("branch"), Any("client_payload")], &[]),
    shape("repository_import", &[Object("repository"), Any("status")], &[]),
    shape("repository_ruleset", &[Object("repository_ruleset")], &[]),
    shape("repository_vulnerability_alert", &[Object("alert"), Any("alert.affected_package_name")], &[]),
    shape("secret_scanning_alert", &[Object("alert"), Any("alert.secret_type")], &["location"]),
    shape("secret_scanning_alert_location", &[Object("alert"), Object("location")], &[]),
    shape("secret_scanning_scan", &[Any("completed_at"), Any("source")], &[]),
    shape("security_advisory", &[Object("security_advisory")], &[]),
    bare("security_and_analysis", &[Object("changes"), Object("changes.from")], &["action"], &[]),
    shape("sponsorship", &[Object("sponsorship")], &[]),
    shape("star", &[Any("starred_at")], &[]),
    shape("status", &[Object("commit"), Any("context"), Any("state")], &[]),
    shape("sub_issues", &[Any("parent_issue_id"), Any("sub_issue_id")], &[]),
    shape("team", &[Object("team"), Any("action")], &["scope"]),
    shape("team_add", &[Object("team")], &["action", "scope"]),
    bare("watch", &[Object("repository")], &[], &["started"]),
    shape("workflow_dispatch", &[Any("inputs"), Any("ref"), Any("workflow")], &[]),
    shape("workflow_job", &[Object("workflow_job")], &[]),
    shape("workflow_run", &[Object("workflow_run"), Any("workflow")], &["deployment", "reviewers"]),
];
