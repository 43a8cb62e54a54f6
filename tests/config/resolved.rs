//! The meaning of a config, and its defaults.

use super::{LONG, SHORT, env, fine, route, source};
use hookonce::decide::source::{
    DeduplicationPolicy, Fanout, Group, Identity, InDoubtPolicy, Keep, RedeliveryPolicy, ResponseMode,
};
use hookonce::decide::time::Duration;
use hookonce::internals::action::plan::{
    ActionPlan, CommandLine, EnvEntry, FieldTemplate, FieldTemplatePart, WorkingDir,
};
use hookonce::internals::config::{self, AdminPermission, StoreAddress};
use hookonce::internals::config::{ColorChoice, ConfigErrorKind};
use std::path::Path;

#[test]
fn a_config_with_and_without_the_preset_has_the_same_identities() {
    let (short, long) = (fine(SHORT), fine(LONG));
    assert_eq!((short.warnings.as_slice(), long.warnings.as_slice()), (&[][..], &[][..]));
    let (short, long) = (&short.sources[0], &long.sources[0]);
    assert_eq!(DeduplicationPolicy { imported: None, ..short.once.clone() }, long.once);
    assert_eq!(short.delivery, long.delivery);
    // The preset's fields have a second place, for another kind of event.
    let first_places = |source: &hookonce::decide::source::Source| -> Vec<_> {
        source.fields.iter().map(|field| (field.name.clone(), field.at.clone())).collect()
    };
    assert_eq!(first_places(short), first_places(long));
    assert_eq!(short.when.as_ref().map(|f| f.text().to_owned()), long.when.as_ref().map(|f| f.text().to_owned()));
    assert_eq!(short.once.per, [Identity::Delivery, Identity::Body]);
    let change = short.once.change.as_ref().unwrap();
    let of = |list: &[hookonce::decide::field::FieldIndex]| -> Vec<String> {
        list.iter().map(|ix| short.fields.get(*ix).name.to_string()).collect()
    };
    assert_eq!(of(&change.of), ["package", "tag"]);
    assert_eq!(of(&change.to), ["version_id", "sha"]);
    assert_eq!(of(&change.order.into_iter().collect::<Vec<_>>()), ["updated_at"]);
    assert_eq!(of(short.once.imported.as_deref().unwrap()), ["tag", "version_id", "sha"]);
    assert_eq!(short.kind.as_ref().map(|kind| kind.any_of[0].is.as_str()), Some("registry_package"));
    assert_eq!(long.kind, None);
}

#[test]
fn the_config_of_the_first_user_is_resolved_as_written() {
    let config = fine(SHORT);
    let source = &config.sources[0];
    let route = &source.routes[0];
    assert_eq!(config.listen.to_string(), "127.0.0.1:3142");
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:3143");
    assert_eq!(config.store, StoreAddress::Sqlite("/etc/hookonce.db".into()));
    assert_eq!((&*source.name, &*source.scope, source.path.shown()), ("ghcr", "ghcr", "/version/1"));
    assert_eq!(source.once.keep, Keep::For(Duration::from_hours(30 * 24)));
    assert_eq!(source.once.keep_body, Duration::from_hours(7 * 24));
    assert_eq!((&*route.name, route.fanout, route.in_doubt), ("jamiec_ts", Fanout::Actions(1), InDoubtPolicy::Retry));
    assert_eq!(route.group, Some(Group::Fields(vec![source.fields.ix("package").unwrap()])));
    let retry = route.retry;
    assert_eq!((retry.attempts, retry.first.as_secs(), retry.longest.as_secs()), (3, 5, 60));
    let Some(ActionPlan::Run(blocks)) = config.actions.get(&("ghcr".into(), "jamiec_ts".into())) else { panic!() };
    assert_eq!(blocks[0].dir, WorkingDir::Fixed("/".into()));
    assert_eq!(blocks[0].timeout, Duration::from_mins(10));
    let shell = vec!["sh".to_owned(), "-c".to_owned()];
    assert_eq!(blocks[0].steps[0], CommandLine::Shell { shell, text: "docker compose pull".into() });
    assert!(config.secret_env_names.contains("WEBHOOK_SECRET"));
}

#[test]
fn bodies_need_not_be_kept_at_all() {
    let config = fine(&source("once = { keep_body = '0s' }"));
    assert_eq!(config.sources[0].once.keep_body, Duration::ZERO);
}

#[test]
fn omitted_settings_have_their_defaults() {
    let config = fine(
        "[source.a]\nverify = 'none'\n[[source.a.route]]\n[[source.a.route]]\nforward = { url = 'http://a/' }\n\
         [[source.a.route]]\nrun = { steps = ['true'] }\n\
         [source.b]\nverify = 'none'\nrespond = 'done'\n[[source.b.route]]\nforward = { url = { env = 'URL' } }\n",
    );
    let (a, b) = (&config.sources[0], &config.sources[1]);
    assert_eq!((a.path.shown(), a.body_max, a.respond), ("/in/a", 25 << 20, ResponseMode::Accepted));
    assert_eq!(a.once.per, [Identity::Body], "this source has no delivery id");
    let names: Vec<_> = a.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["1", "2", "3"]);
    let makes: Vec<_> = a.routes.iter().map(|route| route.fanout).collect();
    assert_eq!(makes, [Fanout::Record, Fanout::Actions(1), Fanout::Actions(1)]);
    let attempts: Vec<_> = a.routes.iter().chain(&b.routes).map(|route| route.retry.attempts).collect();
    assert_eq!(attempts, [5, 5, 1, 1]);
    let cores = std::thread::available_parallelism().unwrap().get();
    let at_once: Vec<_> = a.routes.iter().map(|route| route.max_concurrency).collect();
    assert_eq!(at_once, [64, 64, 2 * cores]);
    let seconds = |n| Duration::from_secs(n);
    assert_eq!(a.routes[1].redelivery, RedeliveryPolicy::Retry { same_after: seconds(5), other_after: seconds(60) });
    assert_eq!(b.routes[0].redelivery, RedeliveryPolicy::Retry { same_after: seconds(0), other_after: seconds(0) });
    assert_eq!((a.routes[1].lease, a.routes[1].retry.first), (seconds(30), seconds(10)));
    assert_eq!(b.respond, ResponseMode::WhenDone { within: seconds(8) });
    let timeout = |source: &str, route: &str| match &config.actions[&(source.into(), route.into())] {
        ActionPlan::Forward(receivers) => receivers[0].timeout,
        ActionPlan::Run(blocks) => blocks[0].timeout,
        ActionPlan::Sql(statement) => statement.timeout,
        ActionPlan::Publish(publish) => publish.timeout,
    };
    assert_eq!((timeout("a", "2"), timeout("a", "3")), (seconds(30), seconds(600)));
    assert_eq!(timeout("b", "1"), Duration::from_millis(7500), "respond_within, less half a second");
    let ActionPlan::Run(blocks) = &config.actions[&("a".into(), "3".into())] else { panic!() };
    assert_eq!(blocks[0].dir, WorkingDir::Fixed("/etc".into()), "the folder of the config file");
}

#[test]
fn change_implies_the_body_and_its_own_group_where_only_the_body_is_signed() {
    let text = |verify: &str| {
        format!(
            "[source.s]\nverify = {verify}\nfields = {{ tag = 'body.t', sha = 'body.s', at = 'body.at' }}\n\
             once = {{ per = ['sha'], change = {{ of = ['tag'], to = ['sha'], order = 'at' }} }}\n[[source.s.route]]\n"
        )
    };
    let config = fine(&text("{ scheme = 'github', secret = { env = 'A' } }"));
    let source = &config.sources[0];
    let ix = |name| source.fields.ix(name).unwrap();
    assert_eq!(source.once.per, [Identity::Named(vec![ix("sha")]), Identity::Body]);
    assert_eq!(source.routes[0].group, Some(Group::Fields(vec![ix("tag")])));
    let bearer = fine(&text("{ scheme = 'bearer', secret = { env = 'A' } }"));
    assert_eq!(bearer.sources[0].once.per.len(), 1);
}

#[test]
fn a_change_without_order_is_kept_for_ever_only_where_a_capture_can_be_replayed() {
    let keep = |verify: &str| {
        let text = format!(
            "[source.s]\nverify = {verify}\nfields = {{ tag = 'body.t', sha = 'body.s' }}\n\
             once = {{ change = {{ of = ['tag'], to = ['sha'] }}, keep = '9d' }}\n[[source.s.route]]\n"
        );
        fine(&text).sources[0].once.keep
    };
    let nine_days = Keep::For(Duration::from_hours(9 * 24));
    assert_eq!(keep("{ scheme = 'github', secret = { env = 'A' } }"), Keep::Forever);
    assert_eq!(keep("{ scheme = 'hmac', header = 'x', secret = { env = 'A' } }"), Keep::Forever);
    assert_eq!(keep("{ scheme = 'bearer', secret = { env = 'A' } }"), nine_days);
    let timed = "{ scheme = 'hmac', header = 'x', over = '{timestamp}.{body}', timestamp = 'header.t', secret = { env = 'A' } }";
    assert_eq!(keep(timed), nine_days);
}

#[test]
fn a_delivery_id_is_signed_where_the_signature_covers_it_and_nowhere_else() {
    let signed = |lines: &str| {
        let text = format!("[source.s]\nsecret = {{ env = 'A' }}\n{lines}\n[[source.s.route]]\n");
        fine(&text).sources[0].delivery.as_ref().map(|id| id.signed)
    };
    assert_eq!(signed("verify = 'github'"), Some(false));
    assert_eq!(signed("verify = 'bearer'\ndelivery = 'header.x-id'"), Some(true));
    assert_eq!(signed("verify = { scheme = 'hmac', header = 'x' }"), None);
    assert_eq!(signed("verify = { scheme = 'hmac', header = 'x' }\ndelivery = 'header.x-id'"), Some(false));
    assert_eq!(signed("verify = 'bearer'\ndelivery = 'header.x-id'\nsigned = true"), Some(true));
    assert_eq!(signed("verify = { scheme = 'hmac', header = 'x' }\ndelivery = 'body.id'"), Some(true));
    let over_id = "verify = { scheme = 'hmac', header = 'x', over = '{id}.{body}' }\ndelivery = 'header.x-id'";
    assert_eq!(signed(over_id), Some(true));
}

#[test]
fn a_url_from_the_environment_is_sent_to_and_never_shown() {
    let config = fine(&route("forward = [{ url = { env = 'URL' } }, { url = 'http://b/x' }]"));
    let ActionPlan::Forward(receivers) = &config.actions[&("s".into(), "1".into())] else { panic!() };
    assert_eq!(receivers[0].url.to_string(), "https://user:pass@example.com/hook");
    assert_eq!((receivers[0].display.as_str(), receivers[1].display.as_str()), ("$URL", "http://b/x"));
    let debug = format!("{config:?}");
    assert!(!debug.contains("pass@"), "{debug}");
    assert!(config.secret_env_names.contains("URL"));
    assert_eq!(config.sources[0].routes[0].fanout, Fanout::Actions(2));
}

#[test]
fn a_secret_file_loses_its_last_newline_and_may_not_be_empty() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("good"), "t0ken\r\n").unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    let text = |file: &str| format!("admin.token = {{ file = '{file}' }}\n{}", source(""));
    let config = config::parse(&text("good"), "f", folder.path(), &env).unwrap();
    assert_eq!(
        (config.admin.tokens[0].secret.expose(), config.admin.tokens[0].may),
        (&b"t0ken"[..], AdminPermission::All)
    );
    let problems = config::parse(&text("empty"), "f", folder.path(), &env).unwrap_err();
    assert!(problems.list[0].title.ends_with("it is empty"), "{problems}");
    let problems = config::parse(&text("."), "f", folder.path(), &env).unwrap_err();
    assert!(problems.list[0].title.ends_with("it is a folder"), "{problems}");
}

#[test]
fn secrets_are_never_printed() {
    let config = fine(LONG);
    let debug = format!("{config:?}");
    assert!(!debug.contains("s3cret") && !debug.contains("t0ken"), "{debug}");
}

#[test]
fn an_unreadable_file_is_reported_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let tell = |path: &Path| {
        let problems = config::load(path, &env).unwrap_err();
        assert_eq!(problems.nature, ConfigErrorKind::Unread);
        problems.render(ColorChoice::Plain).replace(&folder.path().display().to_string(), "DIR")
    };
    let (long, latin) = (folder.path().join("long"), folder.path().join("latin"));
    std::fs::write(&long, vec![b'#'; (1 << 20) + 1]).unwrap();
    std::fs::write(&latin, b"# a\n# \xe4\n").unwrap();
    let missing = "error: there is no config at DIR/none\nhint: write one with `hookonce init`\n";
    assert_eq!(tell(&folder.path().join("none")), missing);
    let is_folder = "error: the config DIR is a folder\nhint: name the file: DIR/hookonce.toml\n";
    assert_eq!(tell(folder.path()), is_folder);
    assert_eq!(tell(&long), "error: the config DIR/long is longer than 1 MB\nhint: is it the right file?\n");
    assert_eq!(tell(&latin), "error: the config DIR/latin is not UTF-8: line 2\nhint: save it as UTF-8\n");
}

#[test]
fn the_named_config_wins_over_the_variable() {
    let variable = |name: &str| (name == "HOOKONCE_CONFIG").then(|| "/a.toml".to_owned());
    assert_eq!(config::find(Some(Path::new("/b.toml")), &variable).unwrap(), Path::new("/b.toml"));
    assert_eq!(config::find(None, &variable).unwrap(), Path::new("/a.toml"));
}

#[test]
fn paths_are_relative_to_the_config_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hookonce.toml");
    std::fs::create_dir(folder.path().join("app")).unwrap();
    std::fs::write(&file, route("run = { dir = 'app', steps = ['true'] }")).unwrap();
    let config = config::load(&file, &env).unwrap();
    assert_eq!(config.store, StoreAddress::Sqlite(folder.path().join("hookonce.db")));
    let ActionPlan::Run(blocks) = &config.actions[&("s".into(), "1".into())] else { panic!() };
    assert_eq!(blocks[0].dir, WorkingDir::Fixed(folder.path().join("app")));
    assert_eq!(config.warnings, []);
}

#[test]
fn a_field_may_stand_in_a_list_and_in_dir() {
    let config = fine(&route("run = { dir = '/{tag}/app', steps = [['deploy', 'v{sha}', '{{json .}}']] }"));
    let ActionPlan::Run(blocks) = &config.actions[&("s".into(), "1".into())] else { panic!() };
    let (text, field) =
        (|text: &str| FieldTemplatePart::Text(text.into()), |name: &str| FieldTemplatePart::Field(name.into()));
    assert_eq!(blocks[0].dir, WorkingDir::Named(FieldTemplate(vec![text("/"), field("tag"), text("/app")])));
    let words = [vec![text("deploy")], vec![text("v"), field("sha")], vec![text("{{json .}}")]];
    assert_eq!(blocks[0].steps, [CommandLine::Argv(words.into_iter().map(FieldTemplate).collect())]);
}

#[test]
fn variables_of_a_block_override_those_of_its_route() {
    let lines = "env = { A1 = 'route', B1 = 'route' }\nrun = { steps = ['true'], env = ['HTTP_PROXY'] }";
    let config = fine(&route(lines));
    let ActionPlan::Run(blocks) = &config.actions[&("s".into(), "1".into())] else { panic!() };
    let set = |name: &str| EnvEntry::Set(name.into(), "route".into());
    assert_eq!(blocks[0].env, [set("A1"), set("B1"), EnvEntry::Pass("HTTP_PROXY".into())]);
}

#[test]
fn a_receiver_may_take_as_long_as_the_sender_waits_less_half_a_second() {
    let timeout = |keys: &str, route: &str| {
        let text = format!("[source.s]\n{keys}\n[[source.s.route]]\n{route}\n");
        let config = fine(&text);
        let ActionPlan::Forward(receivers) = &config.actions[&("s".into(), "1".into())] else { panic!() };
        (config.sources[0].respond, receivers[0].timeout)
    };
    let forward = "forward = { url = 'http://a/' }";
    let done = "verify = 'none'\nrespond = 'done'\nrespond_within = ";
    for (written, within, expected) in [("30s", 30_000, 29_500), ("2s", 2_000, 1_500), ("600ms", 600, 300)] {
        let within = ResponseMode::WhenDone { within: Duration::from_millis(within) };
        assert_eq!(timeout(&format!("{done}'{written}'"), forward), (within, Duration::from_millis(expected)));
    }
    let long = "forward = { url = 'http://a/', timeout = '1m' }";
    assert_eq!(timeout(&format!("{done}'2s'"), long).1, Duration::from_mins(1), "the configured value counts");
    let preset = "preset = 'ci-ingestion'\nsecret = { env = 'WEBHOOK_SECRET' }";
    let within = ResponseMode::WhenDone { within: Duration::from_secs(30) };
    assert_eq!(timeout(preset, forward), (within, Duration::from_millis(29_500)));
}
