//! Tables of commands that are refused, and of commands that stay legal.

use super::super::run::references;
use super::*;
use proptest::prelude::*;

fn argv<'a>(words: &[&'a str]) -> Vec<ArgumentTemplate<'a>> {
    let one = |text: &'a str| {
        let first = references(text).into_iter().next().map(|(range, _)| range);
        let whole = first.as_ref().is_some_and(|range| *range == (0..text.len()));
        ArgumentTemplate { text, field: first.map(|range| range.start), whole }
    };
    words.iter().copied().map(one).collect()
}

/// A command's words, separated by `|`.
fn split(line: &str) -> Vec<&str> {
    line.split('|').collect()
}

#[track_caller]
fn check(line: &str, expected: &[usize]) {
    let words = split(line);
    let at: Vec<_> = risks(&argv(&words)).into_iter().map(|risk| risk.at).collect();
    assert_eq!(at, expected, "{line}");
}

/// Each has one argument with `{f}` in it, which is refused.
const REFUSED: &[&str] = &[
    // The program itself, and what an interpreter takes it from.
    "{f}",
    "env|{f}",
    "env|{f}=1|./deploy",
    "sudo|-u|web|{f}",
    "sudo|/opt/{f}/deploy",
    "timeout|5m|{f}",
    "docker|exec|web|{f}",
    "kubectl|exec|pod|--|{f}",
    "bash|{f}",
    "bash|-x|scripts/{f}.sh",
    "python3|{f}.py",
    "python3|-m|{f}",
    "node|-r|{f}|x.js",
    "awk|-f|{f}|data",
    "php|-d|auto_prepend_file={f}|x.php",
    // Shells.
    "sh|-c|{f}",
    "sh|-c|deploy {f}",
    "sh|-c|--|deploy {f}",
    "sh|-c|-x|deploy {f}",
    "sh|-{f}|deploy",
    "bash|-lc|deploy {f}",
    "bash|-ec|deploy {f}",
    "bash|-xc|deploy {f}",
    "bash|-euo|pipefail|-c|deploy {f}",
    "bash|-o|pipefail|-c|deploy {f}",
    "bash|--norc|-c|deploy {f}",
    "/bin/bash|-c|deploy {f}",
    "bash-5.2|-c|deploy {f}",
    "dash|-c|{f}",
    "zsh|-c|{f}",
    "ksh|-c|{f}",
    "ash|-c|{f}",
    "fish|-c|{f}",
    "fish|--command={f}",
    "pwsh|-NoProfile|-Command|deploy|{f}",
    "pwsh|-ExecutionPolicy|Bypass|-c|{f}",
    "cmd.exe|/c|{f}",
    "busybox|sh|-c|{f}",
    // Interpreters.
    "python|-c|{f}",
    "python3.11|-c|{f}",
    "/usr/bin/python3|-u|-c|print({f})",
    "python3|-c{f}",
    "python3|-{f}|x",
    "perl|-e|{f}",
    "perl|-E|{f}",
    "perl|-n|-e|{f}",
    "perl|-lane|{f}",
    "perl|-i.bak|-pe|s/x/{f}/|file",
    "ruby|-e|{f}",
    "ruby|-r|json|-e|{f}",
    "node|-e|{f}",
    "node|--eval|{f}",
    "node|--eval={f}",
    "node|-p|{f}",
    "node|-pe|{f}",
    "node|--some-option|value|-e|{f}",
    "nodejs|-e|{f}",
    "php|-r|{f}",
    "php8.2|-r|{f}",
    "lua5.4|-e|{f}",
    "deno|eval|{f}",
    "Rscript|-e|{f}",
    "julia|-e|{f}",
    "osascript|-e|{f}",
    "awk|{f}|data",
    "awk|-F:|{f}",
    "gawk|-e|{f}",
    "sed|s/x/{f}/|file",
    "sed|-i|s/x/{f}/|file",
    "sed|-e|p|-e|{f}",
    "jq|-r|.{f}",
    "psql|-d|app|-c|select '{f}'",
    "psql|-tAc|{f}",
    "psql|--command={f}",
    "mysql|-uroot|app|-e|{f}",
    "sqlite3|app.db|delete from t where x = '{f}'",
    "mongosh|--eval|{f}",
    "git|-c|core.sshCommand={f}|fetch",
    "find|.|-exec|{f}|;",
    "tar|--to-command={f}|-xf|a.tar",
    "rsync|-e|ssh {f}|a|b",
    "rsync|a|host:{f}",
    "scp|a|host:/srv/{f}",
    // Behind wrappers.
    "env|sh|-c|deploy {f}",
    "/usr/bin/env|-i|A=1|bash|-c|{f}",
    "env|-S|sh -c 'deploy {f}'",
    "env|-iS|deploy {f}",
    "env|--split-string=deploy {f}",
    "sudo|sh|-c|{f}",
    "sudo|-u|web|-E|bash|-lc|{f}",
    "sudo|A=1|python3|-c|{f}",
    "doas|-u|web|sh|-c|{f}",
    "timeout|5m|sh|-c|{f}",
    "timeout|-k|5|5m|bash|-c|{f}",
    "nice|sh|-c|{f}",
    "nice|-n|10|sh|-c|{f}",
    "ionice|-c|3|sh|-c|{f}",
    "nohup|sh|-c|{f}",
    "setsid|sh|-c|{f}",
    "stdbuf|-oL|sh|-c|{f}",
    "chroot|/srv|sh|-c|{f}",
    "unshare|-n|sh|-c|{f}",
    "nsenter|-t|1|-m|-u|-n|sh|-c|{f}",
    "ip|netns|exec|blue|sh|-c|{f}",
    "docker|exec|-it|web|sh|-c|{f}",
    "docker|exec|-u|root|web|python3|-c|{f}",
    "docker|run|--rm|alpine|sh|-c|{f}",
    "docker|run|--entrypoint|sh|alpine|-c|{f}",
    "docker|run|--entrypoint=sh|alpine|-c|{f}",
    "docker|compose|exec|-T|web|sh|-c|{f}",
    "docker|compose|-f|a.yml|run|web|bash|-c|{f}",
    "docker-compose|exec|web|sh|-c|{f}",
    "podman|exec|web|sh|-c|{f}",
    "kubectl|exec|-n|prod|deploy/web|--|sh|-c|{f}",
    "systemd-run|--unit|x|sh|-c|{f}",
    "flock|/lock|-c|deploy {f}",
    "flock|/lock|sh|-c|deploy {f}",
    "time|-p|sh|-c|{f}",
    "strace|-f|-o|x|sh|-c|{f}",
    "script|-q|-c|deploy {f}|log",
    "find|.|-name|x|-exec|sh|-c|{f}|;",
    "sudo|timeout|5m|nice|env|A=1|bash|-ec|{f}",
    "./my-wrapper|--flag|bash|-c|{f}",
    "./my-wrapper|ssh|host|{f}",
    "sudo|-u|web|awk|{f}",
    // Lines for a shell.
    "su|-c|{f}",
    "su|web|-c|deploy {f}",
    "su|-|web|-c|deploy {f}",
    "runuser|-l|web|-c|deploy {f}",
    "ssh|host|deploy {f}",
    "ssh|host|deploy|{f}",
    "ssh|-p|22|host|--|deploy|{f}",
    "ssh|-o|ProxyCommand=nc {f} 22|host",
    "sudo|-u|web|ssh|host|{f}",
    "sshpass|-f|pass|ssh|host|{f}",
    "xargs|-n1|deploy|{f}",
    "watch|-n1|deploy {f}",
    "parallel|deploy|:::|{f}",
    "timeout|5m|watch|deploy {f}",
    "make|deploy|TAG={f}",
    // Variables.
    "env|BASH_ENV={f}|bash|x.sh",
    "env|LD_PRELOAD=/lib/{f}|./deploy",
    "sudo|PATH=/opt/{f}/bin|./deploy",
    "docker|run|-e|NODE_OPTIONS={f}|app",
    "docker|run|-eNODE_OPTIONS={f}|app",
    "docker|run|--env=NODE_OPTIONS={f}|app",
];

/// Each is what people write, and none gives the sender a program.
const LEGAL: &[&str] = &[
    "./deploy.sh|{f}",
    "./deploy|--tag={f}",
    "/opt/{f}/deploy|{f}",
    "./deploy-{f}.sh",
    "bash|deploy.sh|{f}",
    "bash|-x|deploy.sh|{f}",
    "bash|-x|deploy.sh|-c|{f}",
    "bash|--|deploy.sh|{f}",
    "python3|deploy.py|{f}",
    "python3|-u|deploy.py|-c|{f}",
    "python3|-m|deploy|{f}",
    "python3|-mdeploy|{f}",
    "node|deploy.js|{f}",
    "node|--enable-source-maps|deploy.js|-e|{f}",
    "perl|-w|deploy.pl|{f}",
    "perl|-Ilib|-MJSON|deploy.pl|{f}",
    "ruby|-r|json|deploy.rb|{f}",
    "php|deploy.php|{f}",
    "php|-f|deploy.php|{f}",
    "deno|run|-A|deploy.ts|{f}",
    "pwsh|-NoProfile|-File|deploy.ps1|-Tag|{f}",
    "sh|-c|deploy \"$1\"|_|{f}",
    "sh|-c|deploy \"$1\"|_|-c|{f}",
    "bash|-euo|pipefail|-c|deploy \"$1\"|_|{f}",
    "sudo|-u|web|sh|-c|deploy \"$1\"|_|{f}",
    "docker|exec|web|sh|-c|deploy \"$1\"|_|{f}",
    "python3|-c|import sys|{f}",
    "perl|-e|print @ARGV|{f}",
    "node|-e|x|{f}",
    "awk|-v|tag={f}|BEGIN { print tag }",
    "awk|-f|x.awk|{f}",
    "sed|-e|p|{f}",
    "sed|-n|p|{f}",
    "jq|--arg|tag|{f}|.tag = $tag|in.json",
    "jq|-f|x.jq|{f}",
    "psql|-v|tag={f}|-f|x.sql",
    "mysql|-u|{f}|app",
    "sqlite3|{f}",
    "git|fetch|origin|{f}",
    "git|switch|-c|{f}",
    "timeout|5m|./deploy|{f}",
    "timeout|{f}|./deploy",
    "env|TAG={f}|./deploy",
    "env|-i|TAG={f}|sh|-c|deploy \"$TAG\"",
    "sudo|-u|web|./deploy|{f}",
    "nice|-n|10|./deploy|{f}",
    "flock|/lock|./deploy|{f}",
    "docker|compose|pull|{f}",
    "docker|compose|up|-d|{f}",
    "docker|pull|app:{f}",
    "docker|run|--rm|app:{f}",
    "docker|run|--rm|deployer|{f}",
    "docker|run|-e|TAG={f}|app",
    "docker|exec|{f}|./deploy",
    "docker|exec|-e|TAG={f}|web|./deploy",
    "kubectl|set|image|deploy/web|web=app:{f}",
    "kubectl|exec|{f}|--|./deploy|{f}",
    "systemctl|restart|app@{f}",
    "systemd-run|--unit|deploy-{f}|./deploy|{f}",
    "find|.|-name|{f}",
    "find|.|-name|x|-exec|./deploy|{f}|;",
    "echo|-c|{f}",
    "printf|%s|{f}",
    "curl|-d|{f}|http://localhost",
    "rsync|-a|{f}|host:/srv",
    "./run-node|node|{f}",
    "npm|run|deploy|--|{f}",
];

#[test]
fn a_field_in_program_text_is_refused_wherever_the_program_is() {
    let refused = |line: &&&str| {
        let words = split(line);
        let at: Vec<_> = risks(&argv(&words)).into_iter().map(|risk| risk.at).collect();
        at == [words.iter().position(|word| word.contains("{f}")).expect("the test's own {f}")]
    };
    assert_eq!(REFUSED.iter().filter(|line| !refused(line)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn a_field_that_is_only_an_argument_is_legal() {
    let legal = |line: &&&str| risks(&argv(&split(line))).is_empty();
    assert_eq!(LEGAL.iter().filter(|line| !legal(line)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn the_document_lists_every_name_that_is_looked_for_and_no_other() {
    let text = include_str!("../../../docs/run.md");
    let listed =
        text.split("<!-- program text -->").nth(1).and_then(|rest| rest.split("<!-- /program text -->").next());
    let quoted = listed.expect("the document's own marks").split('`').skip(1).step_by(2);
    let mut named: Vec<_> = quoted.filter(|word| !matches!(*word, "-c" | "env -S")).collect();
    let programs = PROGRAMS.iter().flat_map(|program| program.names.split(' '));
    let wrappers = WRAPPERS.iter().flat_map(|wrapper| wrapper.names.split(' '));
    let mut known: Vec<_> = programs.chain(wrappers).chain(CODE_VARIABLES.split(' ')).collect();
    for names in [&mut named, &mut known] {
        names.sort_unstable();
    }
    assert_eq!(named, known);
}

#[test]
fn every_argument_is_found_once() {
    check("sh|-c|{f}|{f}", &[2]);
    check("ssh|{f}|{f}", &[1, 2]);
    check("sudo|{f}|sh|-c|{f}", &[1, 4]);
}

#[test]
fn a_program_without_text_or_script_runs_its_input() {
    let check = |line: &str, expected: bool| {
        assert_eq!(runs_its_input(&argv(&split(line))).is_some(), expected, "{line}");
    };
    for line in ["sh", "bash|-s", "bash|-s|--|{f}", "bash|-eu", "python3|-", "node", "docker|exec|-i|web|bash"] {
        check(line, true);
    }
    for line in ["ssh|host|bash|-s", "sudo|perl", "kubectl|exec|-i|pod|--|sh", "bash|/dev/stdin"] {
        check(line, true);
    }
    for line in ["sh|-c|cat", "bash|x.sh", "python3|-V", "bash|--version", "cat", "node|-v", "env|bash|x.sh|-s"] {
        check(line, false);
    }
}

proptest! {
    #[test]
    fn a_command_without_a_field_is_never_refused(words in prop::collection::vec(
        prop_oneof![
            "[ -~]{0,12}",
            prop::sample::select(vec!["sh", "-c", "--", "env", "-S", "sudo", "docker", "exec", "ssh", "find", "-exec", "-",
                "awk", "jq", "--arg", "python3", "-m", "pwsh", "-f", "node", "--eval", "A=1", "--entrypoint", "é", "-é"])
                .prop_map(str::to_owned),
        ], 0..12)) {
        let argv: Vec<_> =
            words.iter().map(|text| ArgumentTemplate { text, field: None, whole: false }).collect();
        prop_assert_eq!(risks(&argv), vec![]);
        let _ = runs_its_input(&argv);
    }

    #[test]
    fn any_flags_and_wrappers_before_a_shells_text_do_not_hide_it(
        wrappers in prop::collection::vec(prop::sample::select(vec![
            "env", "env A=1", "sudo", "sudo -u web", "timeout 5m", "nice -n 3", "nohup", "setsid", "docker exec web",
            "kubectl exec pod --", "./unknown --flag", "stdbuf -oL",
        ]), 0..4),
        flags in prop::collection::vec(prop::sample::select(vec!["-x", "-e", "-eu", "+x", "-o pipefail", "--norc"]), 0..4),
        shell in prop::sample::select(vec!["sh", "/bin/bash", "zsh", "busybox sh"]),
    ) {
        let line = format!("{} {shell} {} -c", wrappers.join(" "), flags.join(" "));
        let mut words: Vec<_> = line.split_whitespace().collect();
        let text = words.len();
        words.extend(["deploy {f}", "_", "{f}"]);
        let at: Vec<_> = risks(&argv(&words)).into_iter().map(|risk| risk.at).collect();
        prop_assert_eq!(at, vec![text]);
    }
}
