//! Tables of commands that are refused, and of commands that stay legal.

use crate::config::action::references;
use crate::config::injection::*;
use proptest::prelude::*;

fn argv<'a>(words: &[&'a str]) -> Vec<ArgumentTemplate<'a>> {
    let one = |text: &'a str| {
        let starts: Vec<_> = references(text).into_iter().map(|(range, _)| range.start).collect();
        ArgumentTemplate { text, field: starts.first().copied(), last: starts.last().copied() }
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
    "env|ENV={f}|sh|-i|-c|true",
    "env|BASH_FUNC_ls%%={f}|bash|-c|ls",
    "env|GIT_CONFIG_VALUE_0={f}|git|fetch",
    // The end of the program's path.
    "/usr/bin/{f}|-c|x",
    "./deploy-{f}.sh",
    "/opt/{g}/{f}|x",
    // What takes a value inside a word of flags, and what ends options.
    "bash|-oc|pipefail|echo {f}",
    "bash|-eOc|extglob|echo {f}",
    "bash|-oOc|pipefail|extglob|echo {f}",
    "zsh|-opipefail|-c|echo {f}",
    "./x|--y|zsh|-opipefail|-c|echo {f}",
    "sh|-es|-c|echo {f}",
    "bash|-s|-c|echo {f}",
    "bash|-c|-|echo {f}",
    "sh|-c|-|echo {f}",
    "sh|-c|+|echo {f}",
    "sh|-|{f}",
    "bash|--|{f}",
    "bash|--rcfile|{f}|-i|-c|true",
    // Abbreviations.
    "env|--split=sh -c 'echo {f}'",
    "env|--s=sh -c 'echo {f}'",
    "env|--split|sh -c 'echo {f}'",
    "nohup|env|--sp=sh -c 'echo {f}'",
    "sed|--expr=s/x/{f}/|/etc/hostname",
    "sed|--e=s/x/{f}/|/etc/hostname",
    "sed|--expr|s/x/{f}/|/etc/hostname",
    "tar|--checkpoint-act=exec={f}|-xf|a.tar",
    "tar|--checkpoint|-I|{f}|-xf|a.tar",
    "tar|--use-comp={f}|-xf|a.tar",
    "script|--comm=echo {f}|/dev/null",
    "psql|--comm={f}",
    "gdb|-eval-comm|{f}",
    "sudo|--us|web|{f}",
    "docker|exec|--detach|web|{f}",
    // Right behind a program that is not listed.
    "./wrap|awk|{f}",
    "./wrap|sed|-n|{f}",
    "./wrap|env|-S|sh -c 'echo {f}'",
    "./wrap|watch|echo {f}",
    "./wrap|sg|root|-c|echo {f}",
    "./wrap|make|{f}",
    "./wrap|sudo|-u|web|{f}",
    "./wrap|sudo|--unknown|x|awk|{f}",
    "./run-node|node|{f}",
    "find|.|-exec|awk|{f}|;",
    "fd|x|--exec|sed|-n|{f}",
    "./wrap|--fast|env|-S|sh -c 'echo {f}'",
    // Options behind operands.
    "sed|/etc/hostname|-e|{f}",
    "sed|/etc/hostname|--expr={f}",
    "jq|in.json|-f|{f}",
    "mongosh|app|--eval|{f}",
    "mongosh|app|--file|{f}",
    "emacs|x|--eval|{f}",
    "emacsclient|-e|{f}",
    "mongosh|{f}",
    // git.
    "git|{f}",
    "git|-C|repo|rebase|-x|echo {f}|HEAD~1",
    "git|rebase|-ix|echo {f}|HEAD~1",
    "git|rebase|HEAD~1|--exec|echo {f}",
    "git|rebase|--exec=echo {f}|HEAD~1",
    "git|ls-remote|--upload-pack={f}|.",
    "git|ls-remote|--upload-p={f}|.",
    "git|fetch|--upload-pack|{f}|origin",
    "git|push|--receive-pack={f}|origin",
    "git|clone|-u|{f}|a|b",
    "git|clone|-c|core.sshCommand={f}|a|b",
    "git|clone|--template={f}|a|b",
    "git|grep|-O{f}|x",
    "git|grep|--open-files-in-pager={f}|x",
    "git|submodule|foreach|echo {f}",
    "git|submodule|--quiet|foreach|--recursive|echo {f}",
    "git|bisect|run|sh|x|{f}",
    "git|filter-branch|--tree-filter|echo {f}",
    "git|--git-dir|x|-c|core.sshCommand={f}|fetch",
    "git|--exec-path={f}|fetch",
    "sudo|git|-C|repo|rebase|-x|echo {f}|HEAD~1",
    // Modules that run what they are given, and options of other programs.
    "python3|-m|timeit|{f}",
    "python3|-mtimeit|-s|pass|{f}",
    "python3|-um|timeit|-s|{f}|pass",
    "python3|-m|pdb|{f}",
    "python3|-m|pdb|-c|{f}|x.py",
    "python3|-m|cProfile|-s|time|{f}",
    "python3|-m|runpy|{f}",
    "python3|-m|code|{f}",
    "split|--filter=echo {f}|a",
    "split|--filt|echo {f}|a",
    "dpkg|--pre-invoke={f}|-i|a.deb",
    "dpkg|--post-invoke={f}|-i|a.deb",
    "apt-get|-o|Dpkg::Pre-Invoke::={f}|update",
    "apt|install|a|-oDpkg::Pre-Invoke::={f}",
    "rsync|a|{g}:{f}",
];

/// Each is what people write, and none gives the sender a program.
const LEGAL: &[&str] = &[
    "./deploy.sh|{f}",
    "./deploy|--tag={f}",
    "/opt/{f}/deploy|{f}",
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
    "./run-node|--with|node|{f}",
    "/opt/{f}/bin/deploy|x",
    "{f}/deploy|x",
    "bash|-oe|pipefail|deploy.sh|{f}",
    "bash|-oc|pipefail|deploy \"$1\"|_|{f}",
    "bash|-c|-|deploy \"$1\"|_|{f}",
    "env|ENV={f}|./deploy",
    "docker|run|-e|ENV={f}|app",
    "./wrap|./deploy|{f}",
    "./wrap|git|fetch|origin|{f}",
    "./wrap|docker|pull|app:{f}",
    "./wrap|sudo|./deploy|{f}",
    "systemctl|restart|{f}",
    "git|-C|repo|checkout|{f}",
    "git|--no-pager|log|{f}",
    "git|--no-pager|switch|-c|{f}",
    "./deploy|--exec|{f}",
    "git|push|-u|origin|{f}",
    "git|clone|-b|{f}|a|b",
    "git|tag|-a|{f}|-m|{f}",
    "git|commit|-m|{f}",
    "git|rebase|--onto|{f}|main",
    "git|submodule|update|{f}",
    "git|bisect|good|{f}",
    "git|grep|-e|{f}",
    "python3|-m|pip|install|{f}",
    "python3|-m|cProfile|x.py|{f}",
    "tar|-cf|{f}|.",
    "split|-b|{f}|a",
    "dpkg|-i|{f}",
    "apt-get|install|-y|{f}",
    "jq|.tag = $tag|in.json|--arg|tag|{f}",
    "mongosh|-u|{f}|app|--file|x.js",
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
    let variables =
        [CODE_VARIABLES, CODE_VARIABLE_PREFIXES, SHELL_VARIABLES].into_iter().flat_map(|list| list.split(' '));
    let mut known: Vec<_> = programs.chain(wrappers).chain(variables).collect();
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
    for line in ["bash|-o|pipefail", "bash|-euo|pipefail|-s", "bash|-v"] {
        check(line, true);
    }
    for line in ["ssh|host|bash|-s", "sudo|perl", "kubectl|exec|-i|pod|--|sh", "bash|/dev/stdin"] {
        check(line, true);
    }
    for line in ["sh|-c|cat", "bash|x.sh", "python3|-V", "bash|--version", "cat", "node|-v", "env|bash|x.sh|-s"] {
        check(line, false);
    }
    for line in ["killall|node", "bash|-euo|pipefail|-c|cat", "bash|-o|pipefail|x.sh"] {
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
            words.iter().map(|text| ArgumentTemplate { text, field: None, last: None }).collect();
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
