//! `hookonce init`: writes a starter config and a secret, and prints how to set up the sender.
pub(crate) mod templates;

use super::UNKNOWN;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use templates::{InitTemplate, KINDS};

/// Random bytes of a generated secret.
const SECRET_BYTES: usize = 32;

/// Arguments of `init`.
#[derive(clap::Args, Debug)]
pub(crate) struct InitArgs {
    /// Kind of config: ghcr-deploy, forward, ci-ingestion or hmac [default: asks on a terminal]
    kind: Option<String>,
    /// Config file to write
    #[arg(long, value_name = "FILE", default_value = "hookonce.toml")]
    out: PathBuf,
    /// Overwrite an existing config and its secret
    #[arg(long)]
    force: bool,
}

/// The exit code, and why nothing was written.
struct InitError(u8, String);

/// Writes a config and a secret. Errors go to standard error.
pub(crate) fn init(ask: &InitArgs, out: &mut impl Write) -> io::Result<u8> {
    let asked = match &ask.kind {
        Some(name) => templates::find(name).map(|kind| (kind, kind.defaults())),
        None if io::stdin().is_terminal() => interview(&mut io::stdin().lock(), out)?,
        None => Err(format!("which kind of config? Run `hookonce init KIND` with one of: {}", templates::names())),
    };
    let written = asked.map_err(|why| InitError(UNKNOWN, why)).and_then(|(kind, answers)| {
        let secret = ask.out.with_file_name(kind.secret(&answers));
        write(ask, &secret, &kind.fill(&answers))?;
        Ok((kind, answers, secret))
    });
    match written {
        Ok((kind, answers, secret)) => print_next_steps(ask, kind, &answers, &secret, out).map(|()| 0),
        Err(InitError(code, why)) => {
            eprintln!("error: {why}");
            Ok(code)
        }
    }
}

/// The chosen template and the answers to its questions; or why there is none.
type InterviewResult = Result<(&'static InitTemplate, Vec<String>), String>;

/// Asks for the kind, then its questions. An empty line takes the default in brackets.
fn interview(from: &mut impl BufRead, out: &mut impl Write) -> io::Result<InterviewResult> {
    writeln!(out, "What should happen?\n")?;
    for (i, kind) in KINDS.iter().enumerate() {
        writeln!(out, "  {}  {:<13} {}", i + 1, kind.name, kind.about)?;
    }
    writeln!(out)?;
    let number = |answer: &str| match answer.parse::<usize>() {
        Ok(number) if (1..=KINDS.len()).contains(&number) => Ok(()),
        _ => templates::find(answer).map(drop),
    };
    let Some(answer) = question("Which", "1", &number, from, out)? else { return Ok(Err(ended())) };
    let by_number = answer.parse::<usize>().ok().and_then(|number| KINDS.get(number.checked_sub(1)?));
    let kind = match by_number.map_or_else(|| templates::find(&answer), Ok) {
        Ok(kind) => kind,
        Err(why) => return Ok(Err(why)),
    };
    let mut answers: Vec<String> = Vec::new();
    for asked in kind.questions {
        let default = asked.default(&answers);
        let Some(answer) = question(asked.ask, &default, &asked.takes, from, out)? else { return Ok(Err(ended())) };
        answers.push(answer);
    }
    writeln!(out)?;
    Ok(Ok((kind, answers)))
}

fn ended() -> String {
    "input ended before all questions were answered; nothing was written".into()
}

/// Asks until the answer is valid; `None` at the end of the input.
fn question(
    ask: &str,
    default: &str,
    takes: &dyn Fn(&str) -> Result<(), String>,
    from: &mut impl BufRead,
    out: &mut impl Write,
) -> io::Result<Option<String>> {
    loop {
        write!(out, "{ask} [{default}]: ")?;
        out.flush()?;
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            writeln!(out)?;
            return Ok(None);
        }
        let answer = if line.trim().is_empty() { default } else { line.trim() };
        match takes(answer) {
            Ok(()) => return Ok(Some(answer.to_owned())),
            Err(why) => writeln!(out, "  {why}")?,
        }
    }
}

/// Writes both files, or neither.
fn write(ask: &InitArgs, secret: &Path, config: &str) -> Result<(), InitError> {
    let there: Vec<_> = [&*ask.out, secret].into_iter().filter(|path| path.symlink_metadata().is_ok()).collect();
    if let (Some(path), false) = (there.first(), ask.force) {
        let why = format!("{} already exists; nothing was written. Use --force to overwrite it", path.display());
        return Err(InitError(1, why));
    }
    let cannot = |path: &Path, error: &io::Error| {
        InitError(UNKNOWN, format!("{} cannot be written: {error}; nothing was changed", path.display()))
    };
    // An existing file is replaced only once its successor is on disk beside it.
    let (new_secret, new_config) = (temporary_path(secret), temporary_path(&ask.out));
    let folder = folder_of(secret, &ask.out).map_err(|error| cannot(secret, &error))?;
    let made = random().and_then(|text| create(&new_secret, &text, 0o600)).map_err(|error| cannot(secret, &error));
    let made = made.and_then(|()| create(&new_config, config, 0o644).map_err(|error| cannot(&ask.out, &error)));
    let moved = made.and_then(|()| {
        fs::rename(&new_config, &ask.out).map_err(|error| cannot(&ask.out, &error))?;
        fs::rename(&new_secret, secret).map_err(|error| cannot(secret, &error))
    });
    if moved.is_err() {
        fs::remove_file(&new_secret).ok();
        fs::remove_file(&new_config).ok();
        folder.map(fs::remove_dir);
    }
    moved
}

/// Creates the folder of the secrets, private to its owner, if the template has one; `None` if it exists.
fn folder_of<'s>(secret: &'s Path, config: &Path) -> io::Result<Option<&'s Path>> {
    let Some(folder) = secret.parent().filter(|folder| Some(*folder) != config.parent()) else { return Ok(None) };
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => Ok(Some(folder)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn create(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    // A leftover file of this name is ours.
    fs::remove_file(path).ok();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn random() -> io::Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("no randomness available"))?;
    Ok(format!("{}\n", hex::encode(bytes)))
}

/// Prints how to set up the sender, and what to run next.
fn print_next_steps(
    ask: &InitArgs,
    kind: &InitTemplate,
    answers: &[String],
    secret: &Path,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "wrote {} and {}\n\n{}", ask.out.display(), secret.display(), kind.sender)?;
    writeln!(out, "  URL           https://YOUR-HOST{} (through a proxy to http://127.0.0.1:3142)", kind.path)?;
    writeln!(out, "  Content type  application/json")?;
    writeln!(out, "  Secret        the line in {}", secret.display())?;
    let headers = kind.headers(answers);
    if !headers.is_empty() {
        writeln!(out, "  Headers       {headers}")?;
    }
    writeln!(out, "  Events        {}\n", kind.events)?;
    let config = match ask.out.to_str() {
        Some("hookonce.toml") => String::new(),
        _ => format!(" --config {}", ask.out.display()),
    };
    writeln!(out, "Then:\n  hookonce check{config}\n  hookonce serve{config}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(said: &str, expected: Result<(&str, &[&str]), &str>) -> String {
        let mut out = Vec::new();
        let asked = interview(&mut said.as_bytes(), &mut out).unwrap();
        match (asked, expected) {
            (Ok((kind, answers)), Ok((name, expected))) => {
                let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
                assert_eq!((kind.name, answers), (name, expected));
            }
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (asked, _) => panic!("{:?}", asked.map(|(kind, answers)| (kind.name, answers))),
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_empty_line_takes_what_stands_in_brackets() {
        check("\n\n\n", Ok(("ghcr-deploy", &["my-app", "/opt/my-app"])));
        check("1\nshop\n\n", Ok(("ghcr-deploy", &["shop", "/opt/shop"])));
        check("forward\nhttp://127.0.0.1:9/x\n", Ok(("forward", &["http://127.0.0.1:9/x"])));
        check("4\nX-Sig\nmake deploy\n", Ok(("hmac", &["X-Sig", "make deploy"])));
    }

    #[test]
    fn a_bad_answer_is_asked_again_and_an_end_writes_nothing() {
        let told = check("9\nfrowrad\n2\nnowhere\nhttp://127.0.0.1:9/\n", Ok(("forward", &["http://127.0.0.1:9/"])));
        assert!(told.contains("did you mean `forward`?") && told.contains("http://"), "{told}");
        check("", Err("nothing was written"));
        check("1\nshop\n", Err("nothing was written"));
    }
}
