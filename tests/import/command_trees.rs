//! Any tree of commands does the same under our config as under steakpie: the same commands, in the same order,
//! whichever of them fail and whatever is in their text.

use hookonce::internals::action::plan::{ActionPlan, CommandLine, WorkingDir};
use hookonce::internals::cli::{generated_config, steakpie_config, yaml};
use proptest::prelude::*;
use std::path::Path;
use std::process::{Command, Stdio};

/// A command of the test: what it records, and how it ends.
#[derive(Clone, Debug)]
struct Made {
    word: String,
    ends: Ends,
    children: Vec<Made>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Ends {
    Well,
    WellElsewhere,
    WellAtOnce,
    Badly,
    BadlyAtOnce,
    WithAComment,
    /// Bash runs nothing of it.
    InAnOpenQuote,
}

impl Made {
    fn text(&self, log: &Path) -> String {
        let quoted = self.word.replace('\'', r"'\''");
        let begins = format!("printf '%s\\n' '{quoted}' >> '{}'", log.display());
        match self.ends {
            Ends::Well => begins,
            Ends::WellElsewhere => format!("{begins}; cd /; r=7"),
            Ends::WellAtOnce => format!("{begins}\nexit 0\n"),
            Ends::Badly => format!("{begins} && false"),
            Ends::BadlyAtOnce => format!("{begins}; exit 3"),
            Ends::WithAComment => format!("{begins} # it's {{tag}} \"fine"),
            Ends::InAnOpenQuote => format!("{begins}; echo \"{{tag}}"),
        }
    }

    fn succeeds(&self) -> bool {
        !matches!(self.ends, Ends::Badly | Ends::BadlyAtOnce | Ends::InAnOpenQuote)
    }
}

/// What steakpie runs: siblings in any case, children only after their parent.
fn expected(commands: &[Made], into: &mut Vec<String>) {
    for command in commands {
        if command.ends != Ends::InAnOpenQuote {
            into.push(command.word.clone());
        }
        if command.succeeds() {
            expected(&command.children, into);
        }
    }
}

/// A command as YAML, in the newer or the older form.
fn flow(command: &Made, log: &Path, older: bool) -> String {
    let text = serde_json::to_string(&command.text(log)).unwrap();
    let children: Vec<_> = command.children.iter().map(|child| flow(child, log, older)).collect();
    match (children.as_slice(), older) {
        ([], _) => text,
        (children, false) => format!("[{text}, {}]", children.join(", ")),
        (children, true) => format!("{{{text}: [{}]}}", children.join(", ")),
    }
}

fn made() -> impl Strategy<Value = Made> {
    let ends = prop_oneof![
        4 => Just(Ends::Well),
        1 => Just(Ends::WellElsewhere),
        1 => Just(Ends::WellAtOnce),
        2 => Just(Ends::Badly),
        1 => Just(Ends::BadlyAtOnce),
        1 => Just(Ends::WithAComment),
        1 => Just(Ends::InAnOpenQuote),
    ];
    let word =
        prop_oneof!["[a-z]{1,8}", r#"[a-z'"$`\\{}()#!&|;<>*~ é\t]{1,12}"#, Just("{tag} ${sha} {{x}}".to_owned())];
    let leaf = (word, ends).prop_map(|(word, ends)| Made { word, ends, children: Vec::new() });
    leaf.prop_recursive(4, 14, 4, |inner| {
        (inner.clone(), prop::collection::vec(inner, 0..4)).prop_map(|(parent, children)| Made { children, ..parent })
    })
}

/// Runs the steps of every block as hookonce does: the next one only if the previous one succeeded.
fn run(plan: &ActionPlan, home: &Path) {
    let ActionPlan::Run(blocks) = plan else { panic!("{plan:?}") };
    for block in blocks {
        let WorkingDir::Fixed(dir) = &block.dir else { panic!("{block:?}") };
        for step in &block.steps {
            let CommandLine::Shell { shell, text } = step else { panic!("{step:?}") };
            assert_eq!(shell, &["bash", "-lc"]);
            let mut command = Command::new(&shell[0]);
            command.args(&shell[1..]).arg(text).current_dir(dir).env("HOME", home);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if !command.status().unwrap().success() {
                break;
            }
        }
    }
}

fn check(commands: &[Made], older: bool, folders: usize) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("the log");
    let items: Vec<_> = commands.iter().map(|command| flow(command, &log, older)).collect();
    let folder = serde_json::to_string(&dir.path().display().to_string()).unwrap();
    let parts: Vec<_> = items.chunks(items.len().div_ceil(folders)).map(|part| part.join(", ")).collect();
    let yaml = match (older, parts.as_slice()) {
        (true, _) => format!("\"the package\": [{}]", items.join(", ")),
        (false, [all]) => format!("\"the package\":\n  run:\n    {folder}: [{all}]\n"),
        (false, parts) => format!("\"the package\":\n  run:\n    {folder}: [{}]\n    /: [{}]\n", parts[0], parts[1]),
    };
    let read = steakpie_config::read(&yaml::parse(&yaml).unwrap().root.unwrap());
    assert_eq!(read.left, [], "{yaml}");
    let form = generated_config::GeneratedConfigOptions { from: "config.yml", port: 3142, store: "sqlite:hookonce.db" };
    let toml = generated_config::config(&read, form);
    let env = |_: &str| Some("a secret that is long enough".to_owned());
    let config = hookonce::internals::config::parse(&toml, "hookonce.toml", dir.path(), &env);
    let config = config.unwrap_or_else(|problems| panic!("{problems}\n{toml}"));
    run(config.actions.values().next().unwrap(), dir.path());
    let ran = std::fs::read_to_string(&log).unwrap_or_default();
    let mut should = Vec::new();
    expected(commands, &mut should);
    assert_eq!(ran.lines().collect::<Vec<_>>(), should, "{yaml}\n{toml}");
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..crate::seed::cases(48) })]
    #[test]
    fn the_same_commands_run_in_the_same_order(
        commands in prop::collection::vec(made(), 1..4),
        older in any::<bool>(),
        folders in 1_usize..3,
    ) {
        check(&commands, older, folders);
    }
}

#[test]
fn a_tree_with_every_kind_of_end_runs_as_under_steakpie() {
    let all = [
        Ends::Well,
        Ends::WellElsewhere,
        Ends::WellAtOnce,
        Ends::Badly,
        Ends::BadlyAtOnce,
        Ends::WithAComment,
        Ends::InAnOpenQuote,
    ];
    let leaf = |word: &str, ends| Made { word: word.into(), ends, children: Vec::new() };
    let leaves: Vec<_> = all.iter().map(|ends| leaf(&format!("{ends:?} {{sha}}"), *ends)).collect();
    let parents: Vec<_> = all.iter().map(|ends| Made { children: leaves.clone(), ..leaf("parent", *ends) }).collect();
    let root = Made { children: parents, ..leaf("root", Ends::WellElsewhere) };
    for older in [false, true] {
        check(&[root.clone(), leaf("last", Ends::Well)], older, 1);
    }
}
