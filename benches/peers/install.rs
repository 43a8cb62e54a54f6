//! Installs what the peers need under `target/peers`: Python's packages with pip into a virtual environment, Node's with
//! npm into a folder, and `webhook` out of Debian's package. Nothing is installed outside.

use crate::contender::Contender;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REQUIREMENTS: &str = include_str!("programs/requirements.txt");
const EXPRESS: [(&str, &str); 2] = [
    ("package.json", include_str!("programs/express/package.json")),
    ("server.js", include_str!("programs/express/server.js")),
];

/// The programs that peers need, or why there is none.
pub struct Tools {
    /// The virtual environment's folder of programs.
    pub python: Result<PathBuf, String>,
    /// The folder with the server and its packages.
    pub express: Result<PathBuf, String>,
    pub webhook: Result<PathBuf, String>,
}

impl Tools {
    /// Installs what is missing.
    pub fn install(folder: &Path) -> Self {
        println!("installing what is missing into {}", folder.display());
        Self {
            python: python(&folder.join("venv")),
            express: express(&folder.join("express")),
            webhook: webhook(folder),
        }
    }

    /// Nothing: for what needs no network.
    pub fn none() -> Self {
        let none = || Err("not installed for the quick check".to_owned());
        Self { python: none(), express: none(), webhook: none() }
    }

    /// Why this one cannot take part.
    pub fn missing(&self, contender: Contender) -> Option<&str> {
        let tool = match contender {
            Contender::FlaskTutorial | Contender::FlaskPooled | Contender::FastApi => &self.python,
            Contender::Express => &self.express,
            Contender::Webhook => &self.webhook,
            Contender::Bare | Contender::Axum | Contender::StdlibSqlite | Contender::Hookonce(..) => return None,
        };
        tool.as_ref().err().map(String::as_str)
    }
}

fn python(folder: &Path) -> Result<PathBuf, String> {
    let (programs, installed) = (folder.join("bin"), folder.join("installed.txt"));
    if std::fs::read_to_string(&installed).is_ok_and(|text| text == REQUIREMENTS) {
        return Ok(programs);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let wanted = folder.join("requirements.txt");
    write(&wanted, REQUIREMENTS)?;
    run(Command::new(programs.join("pip")).args(["install", "--quiet", "--requirement"]).arg(wanted))?;
    write(&installed, REQUIREMENTS)?;
    Ok(programs)
}

fn express(folder: &Path) -> Result<PathBuf, String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let installed = folder.join("installed.json");
    let (_, wanted) = EXPRESS[0];
    for (name, text) in EXPRESS {
        write(&folder.join(name), text)?;
    }
    if std::fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(folder.to_owned());
    }
    run(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--omit=dev"]).current_dir(folder))?;
    write(&installed, wanted)?;
    Ok(folder.to_owned())
}

/// The one that is installed, or Debian's package unpacked: installing it would start it.
fn webhook(folder: &Path) -> Result<PathBuf, String> {
    let unpacked = folder.join("webhook");
    let program = unpacked.join("usr/bin/webhook");
    if program.exists() {
        return Ok(program);
    }
    std::fs::create_dir_all(&unpacked).map_err(|error| error.to_string())?;
    run(Command::new("apt-get").args(["download", "--quiet", "webhook"]).current_dir(&unpacked))?;
    let script = "dpkg-deb --extract webhook_*.deb . && rm webhook_*.deb";
    run(Command::new("sh").args(["-c", script]).current_dir(&unpacked))?;
    Ok(program)
}

/// Runs a command to its end; its error is the last line that it printed.
fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{name}: {}", said.trim().lines().last().unwrap_or("it failed, and did not say why")))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
