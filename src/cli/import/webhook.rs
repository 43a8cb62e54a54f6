//! `hookonce import webhook`: turns the hooks of adnanh/webhook into a config, and their secrets into files.
//!
//! Nothing is written before everything is read and the new config loads. Secrets are written first, each readable by
//! its owner alone. Running it again changes nothing.

use super::generated_config::{comment, line, text};
use super::webhook_config::{self, GeneratedHook, SECRET_FOLDER};
use super::webhook_hooks::{self, WebhookHook};
use super::{FILE_BYTES_MAX, ImportError, ImportExit, ImportWriteMode, counted, folder_exists};
use crate::config::{self, EnvLookup};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Which hooks to import, and where to.
#[derive(Clone, Debug)]
pub(crate) struct WebhookImport {
    /// Files of hooks.
    pub hooks: Vec<PathBuf>,
    /// The port that webhook listens on.
    pub port: u16,
    /// The first part of its paths.
    pub prefix: String,
    /// The config to write.
    pub out: PathBuf,
    /// What may be written.
    pub may: ImportWriteMode,
}

impl WebhookImport {
    /// Whether a file of hooks, or the config that is replaced, is not for everyone to read.
    fn is_private(&self) -> bool {
        let private = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 == 0);
        self.hooks.iter().chain([&self.out]).any(private)
    }
}

/// Imports, and reports on `out`.
pub(crate) fn webhook(order: &WebhookImport, env: EnvLookup<'_>, out: &mut impl Write) -> io::Result<ImportExit> {
    match prepare(order, env).and_then(|plan| plan.apply(order).map(|written| (plan, written))) {
        Ok((plan, written)) => plan.report(order, &written, out),
        Err(ImportError(why)) => {
            eprintln!("error: {why}");
            Ok(ImportExit::Failed)
        }
    }
}

/// Everything that will be written.
struct WebhookImportPlan {
    hooks: Vec<GeneratedHook>,
    text: String,
    /// Files with secrets, with their contents.
    secrets: Vec<(PathBuf, String)>,
    /// What is in no hook.
    left: Vec<String>,
}

/// The files that were written, and those that already were as they should be.
struct WrittenFiles {
    new: Vec<PathBuf>,
    same: Vec<PathBuf>,
}

fn prepare(order: &WebhookImport, env: EnvLookup<'_>) -> Result<WebhookImportPlan, ImportError> {
    folder_exists(&order.out)?;
    let mut hooks: Vec<WebhookHook> = Vec::new();
    let mut left = Vec::new();
    for path in &order.hooks {
        for hook in read(path)? {
            if hooks.iter().any(|known| known.id == hook.id) {
                let id = hook.id.escape_debug();
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                left.push(format!("{file}: a second hook `{id}`; webhook does not start with this either"));
            } else {
                hooks.push(hook);
            }
        }
    }
    let mut names = BTreeSet::new();
    let prefix = order.prefix.trim_matches('/');
    let mut made = Vec::new();
    for hook in &hooks {
        let name = webhook_config::source_name(&hook.id, &mut names);
        let mut one = webhook_config::generate(hook, &name, prefix);
        if one.refused.is_none()
            && let Err(why) = load(&one.plain, &order.out, env).and_then(|()| load(&one.toml, &order.out, env))
        {
            one.refused = Some(why);
        }
        made.push(one);
    }
    if made.iter().all(|hook| hook.refused.is_some()) {
        let refused = made.iter().filter_map(|it| Some(format!("hook `{}`: {}", it.id, it.refused.as_ref()?)));
        let why: Vec<_> = refused.chain(left).map(|why| format!("\n  {why}")).collect();
        return Err(ImportError(format!("no hook can be imported{}", why.concat())));
    }
    let text = whole_config(order, &made, &left);
    // Two hooks that load alone may not load together: the same path, for one.
    load(&text, &order.out, env).map_err(ImportError)?;
    let folder = order.out.parent().unwrap_or(Path::new("")).join(SECRET_FOLDER);
    let imported = made.iter().filter(|hook| hook.refused.is_none());
    let secrets = imported.flat_map(|hook| &hook.secrets).map(|(name, secret)| (folder.join(name), secret.clone()));
    let secrets: Vec<_> = secrets.collect();
    no_file_twice(&order.out, &secrets)?;
    Ok(WebhookImportPlan { secrets, hooks: made, text, left })
}

/// Two hooks never share a file: the secret of one would be that of the other.
fn no_file_twice(config: &Path, secrets: &[(PathBuf, String)]) -> Result<(), ImportError> {
    let mut files = BTreeSet::from([config]);
    match secrets.iter().find(|(path, _)| !files.insert(path)) {
        Some((path, _)) => Err((&**path, "two secrets would be written to it; nothing was written").into()),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Vec<WebhookHook>, ImportError> {
    let cannot = |what: &str| ImportError(format!("{}: {what}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(cannot(
                "there is no such file\nhint: name the file that webhook is started with, after -hooks",
            ));
        }
        Err(error) => return Err(cannot(&error.to_string())),
        Ok(read) if read as u64 > FILE_BYTES_MAX => {
            return Err(cannot("it is longer than 1 MB; is it the right file?"));
        }
        Ok(_) => {}
    }
    let text = String::from_utf8(bytes).map_err(|_| cannot("it is not text; is it the right file?"))?;
    let text = with_variables(&text);
    webhook_hooks::read(&text).map_err(|why| {
        let hint = if text.contains("{{") { "\nhint: it is a template; render it first" } else { "" };
        cannot(&format!("{why}{hint}"))
    })
}

/// Marks what a template takes from the environment: `{{ getenv "NAME" }}`, also with `| js`.
fn with_variables(text: &str) -> String {
    let pattern =
        regex::Regex::new(r#"\{\{-?\s*getenv\s+\\?["`]([A-Za-z_][A-Za-z0-9_]*)\\?["`]\s*(?:\|\s*js\s*)?-?\}\}"#);
    let [begin, end] = webhook_config::VARIABLE;
    let plain: String = text.chars().filter(|c| ![begin, end].contains(c)).collect();
    match pattern {
        Ok(pattern) => pattern.replace_all(&plain, format!("{begin}${{1}}{end}")).into_owned(),
        Err(_) => plain,
    }
}

/// Loads a config, without its secrets.
fn load(text: &str, path: &Path, env: EnvLookup<'_>) -> Result<(), String> {
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned)).unwrap_or_default();
    let loaded = config::parse_without_secrets(text, &path.display().to_string(), &folder, env);
    loaded.map(|_| ()).map_err(|problems| first_problem(&problems.errors_text()))
}

/// The first problem, in one line.
fn first_problem(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    match text.lines().find_map(|line| line.strip_prefix("hint: ")) {
        Some(hint) => format!("{first}; {hint}"),
        None => first.to_owned(),
    }
}

fn whole_config(order: &WebhookImport, hooks: &[GeneratedHook], left: &[String]) -> String {
    let from: Vec<_> =
        order.hooks.iter().map(|path| comment(&path.file_name().unwrap_or_default().to_string_lossy())).collect();
    let mut out = format!(
        "# Written by `hookonce import webhook` from {}. `hookonce check` explains it.\n\
         \n\
         # Every IPv4 address, as webhook listened; behind a proxy on this machine, 127.0.0.1 is enough.\n\
         listen = \"0.0.0.0:{}\"\n\
         store  = {}\n\
         \n\
         # Only POST is a delivery. A value that is read from the body needs JSON, also as text/plain or without a type, or\n\
         # a form with JSON in `payload` that X-Hub-Signature-256 signs. What is not signed as it should be is answered\n\
         # with 401. Commands get PATH, HOME, USER, LANG and what they name, not all that webhook was started with. Webhook\n\
         # waited for ever; here a block has a `timeout`. An argument that begins with `-` and comes from a delivery is\n\
         # rejected.\n",
        from.join(", "),
        order.port,
        text("sqlite:hookonce.db"),
    );
    for left in left {
        line(&mut out, format_args!("# not imported: {}", comment(left)));
    }
    for hook in hooks {
        out += &hook.text();
    }
    out
}

impl WebhookImportPlan {
    /// Writes the secrets, then the config. A file with other content stops it before anything is written.
    fn apply(&self, order: &WebhookImport) -> Result<WrittenFiles, ImportError> {
        let mut written = WrittenFiles { new: Vec::new(), same: Vec::new() };
        if order.may == ImportWriteMode::Nothing {
            return Ok(written);
        }
        let config = [(order.out.clone(), self.text.clone())];
        let all: Vec<_> = self.secrets.iter().chain(&config).collect();
        let mut wanted = Vec::new();
        for (path, content) in all {
            match fs::read(path) {
                Ok(old) if old == content.as_bytes() => written.same.push(path.clone()),
                Ok(_) if order.may != ImportWriteMode::Replace => {
                    let why = "it exists with other content; nothing was written. Use --force to overwrite it";
                    return Err((&**path, why).into());
                }
                Ok(_) => wanted.push((path, content)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => wanted.push((path, content)),
                Err(error) => return Err((&**path, error).into()),
            }
        }
        let private = order.is_private() || self.hooks.iter().any(|hook| hook.private);
        let config_mode = if private { 0o600 } else { 0o644 };
        for (path, content) in wanted {
            let secret = path != &order.out;
            let mode = if secret { 0o600 } else { config_mode };
            write(path, content, secret, mode).map_err(|error| ImportError::from((&**path, error)))?;
            written.new.push(path.clone());
        }
        Ok(written)
    }

    /// Prints what was read and written, what is different, what was left out, and what to do next.
    fn report(&self, order: &WebhookImport, written: &WrittenFiles, out: &mut impl Write) -> io::Result<ImportExit> {
        let to = order.out.display();
        let imported = self.hooks.iter().filter(|hook| hook.refused.is_none()).count();
        writeln!(out, "read {}: {}", counted(order.hooks.len(), "file"), counted(self.hooks.len(), "hook"))?;
        if order.may == ImportWriteMode::Nothing {
            writeln!(out, "would write {to}:\n\n{}", self.text)?;
            for (path, _) in &self.secrets {
                writeln!(out, "would write {}: a secret", path.display())?;
            }
        }
        for path in &written.new {
            let what = if *path == order.out { String::new() } else { ": a secret".to_owned() };
            writeln!(out, "wrote {}{what}", path.display())?;
        }
        for path in &written.same {
            writeln!(out, "left {} unchanged: it has the same content", path.display())?;
        }
        let different: Vec<_> = self
            .hooks
            .iter()
            .filter(|hook| hook.refused.is_none())
            .flat_map(|hook| hook.notes.iter().map(|note| (&hook.id, note)))
            .collect();
        if !different.is_empty() {
            writeln!(out, "\ndifferent from now on:")?;
            different.iter().try_for_each(|(id, note)| writeln!(out, "  hook `{}`: {note}", id.escape_debug()))?;
        }
        let refused = self.hooks.iter().filter_map(|hook| Some((&hook.id, hook.refused.as_ref()?)));
        let refused: Vec<_> = refused.map(|(id, why)| format!("hook `{}`: {why}", id.escape_debug())).collect();
        if !refused.is_empty() || !self.left.is_empty() {
            writeln!(out, "\nnot imported:")?;
            refused.iter().chain(&self.left).try_for_each(|left| writeln!(out, "  {left}"))?;
        }
        if order.may == ImportWriteMode::Nothing {
            writeln!(out, "\nnothing was written")?;
        } else {
            writeln!(
                out,
                "\nnext:\n  1. read {to}, and see what `hookonce check --config {to}` says\n  2. stop webhook\n  \
                 3. start `hookonce serve --config {to}`\n\
                 URLs and secrets stay as they are."
            )?;
        }
        let whole = imported == self.hooks.len() && self.left.is_empty();
        Ok(if whole { ImportExit::Whole } else { ImportExit::NotAll })
    }
}

/// Writes a file in one step, with this mode from the beginning; the folder of a secret is its owner's alone.
fn write(path: &Path, content: &str, secret: bool, mode: u32) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| secret && !folder.is_dir()) {
        DirBuilder::new().mode(0o700).create(folder)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::remove_file(&beside)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_with_a_file_twice_is_refused() {
        let secret = |path: &str| (PathBuf::from(path), "s".to_owned());
        let config = Path::new("hookonce.toml");
        assert!(no_file_twice(config, &[secret("s/a"), secret("s/a.2")]).is_ok());
        assert!(no_file_twice(config, &[secret("s/a"), secret("s/b"), secret("s/a")]).is_err());
    }

    #[test]
    fn what_a_template_takes_from_the_environment_is_marked() {
        let [begin, end] = webhook_config::VARIABLE;
        for template in [
            "{{ getenv \"TOKEN\" | js }}",
            "{{getenv \"TOKEN\"}}",
            "{{- getenv `TOKEN` -}}",
            "{{ getenv \\\"TOKEN\\\" }}",
        ] {
            assert_eq!(with_variables(&format!("\"a{template}b\"")), format!("\"a{begin}TOKEN{end}b\""), "{template}");
        }
        assert_eq!(with_variables("{{ cat \"x\" }} \u{f0e1}y\u{f0e2}"), "{{ cat \"x\" }} y");
    }
}
