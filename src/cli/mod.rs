//! The command line: one file per command, and here the arguments that lead to them.

pub(crate) mod backend;
pub(crate) mod cancel;
pub mod check;
pub(crate) mod demo;
pub(crate) mod error;
#[cfg(feature = "sqlite")]
pub(crate) mod explain;
pub(crate) mod forget;
pub(crate) mod generate;
#[cfg(feature = "sqlite")]
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod list;
#[cfg(feature = "sqlite")]
pub mod migrate;
pub(crate) mod replay;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod tail;
pub(crate) mod terminal;
pub(crate) mod text_table;
#[cfg(feature = "sqlite")]
pub(crate) mod vacuum;

use crate::config::diagnostic::ColorChoice;
use crate::node::NodeRole;
use crate::observe::log_layer::LogFormat;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use error::{CommandError, print_error};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// The answer is no.
const NO: u8 = 1;
/// Could not find out.
const UNKNOWN: u8 = 2;

/// Webhooks arrive twice. Your action should happen once.
#[derive(Parser, Debug)]
#[command(name = "hookonce", version, about, arg_required_else_help = true)]
struct CliArgs {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand, Debug)]
enum CliCommand {
    /// Play one image push against a node in this process, and show what becomes of it
    Demo,
    /// Receive webhooks and act on them
    Serve {
        #[command(flatten)]
        which: ConfigArgs,
        /// How the log is written; else `HOOKONCE_LOG`, else `log` of the config, else text
        #[arg(long, value_enum)]
        log: Option<LogFormatArg>,
        /// Only receive, or only act; another node on the same store does the rest
        #[arg(long, value_enum)]
        only: Option<NodeRoleArg>,
        /// Go on although the store has lost data: the loss that `serve` named when it refused to start
        #[arg(long, value_name = "EPOCH:COUNTER")]
        accept_loss: Option<String>,
    },
    /// Say whether the config is right, and what it means
    Check {
        #[command(flatten)]
        which: ConfigArgs,
        /// For programs
        #[arg(long)]
        json: bool,
        /// Also try secrets, store, folders, commands and receivers
        #[arg(long)]
        live: bool,
    },
    /// Say why a delivery runs or does not: 0 it would act, 1 it would not, 2 nobody can say
    #[cfg(feature = "sqlite")]
    Explain {
        #[command(flatten)]
        which: ConfigArgs,
        #[command(flatten)]
        ask: explain::ExplainArgs,
    },
    /// Carry over the config and the memory of another system
    #[cfg(feature = "sqlite")]
    Import {
        #[command(subcommand)]
        from: ImportCommand,
    },
    /// Sign a delivery as its sender would, and send it
    Send(send::SendArgs),
    /// List events, newest first
    List(list::ListArgs),
    /// Show all that is known of one event, and why it stands where it stands
    Show(show::ShowArgs),
    /// Follow what happens on a running node
    Tail(tail::TailArgs),
    /// Run events again
    Replay(replay::ReplayArgs),
    /// End an event that waits or runs
    Cancel(cancel::CancelArgs),
    /// Free what is kept long enough, or forget one event
    Forget(forget::ForgetArgs),
    /// Show or change the version of the store's schema
    #[cfg(feature = "sqlite")]
    Migrate {
        #[command(flatten)]
        which: ConfigArgs,
        /// The database, instead of the one in the config
        #[arg(long, value_name = "PATH", global = true)]
        store: Option<PathBuf>,
        #[command(subcommand)]
        way: MigrateCommand,
    },
    /// Give the room that an SQLite file no longer needs back to the disk; no node may run on it
    #[cfg(feature = "sqlite")]
    Vacuum {
        #[command(flatten)]
        which: ConfigArgs,
        /// The file, instead of the one in the config
        #[arg(long, value_name = "PATH")]
        store: Option<PathBuf>,
    },
    /// Write a config to begin with, and a secret beside it
    Init(init::InitArgs),
    /// List what is known about senders, or print one as it would be written in a config
    Presets {
        /// The preset to print
        name: Option<String>,
    },
    /// Print a JSON Schema of the config, for editors
    Schema,
    /// Print what a shell needs to complete the command line
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for each command
    Man {
        /// The folder to write them into
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
struct ConfigArgs {
    /// The config; else `HOOKONCE_CONFIG`, ./hookonce.toml, /etc/hookonce/hookonce.toml
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum LogFormatArg {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum NodeRoleArg {
    /// Receive, and leave the acting to others
    Ingest,
    /// Act, and receive nothing
    Work,
}

#[cfg(feature = "sqlite")]
#[derive(Subcommand, Debug)]
enum ImportCommand {
    /// From steakpie: its config becomes a hookonce.toml, its events are never acted on again
    Steakpie {
        /// Steakpie's config
        config: PathBuf,
        /// Steakpie's database; else `DB_PATH`, ./db.sqlite
        #[arg(long, value_name = "PATH")]
        db: Option<PathBuf>,
        /// The config to write
        #[arg(long, value_name = "FILE", default_value = "hookonce.toml")]
        out: PathBuf,
        /// The store to write; else hookonce.db beside the config
        #[arg(long, value_name = "PATH")]
        store: Option<PathBuf>,
        /// Show everything and write nothing
        #[arg(long)]
        dry_run: bool,
        /// Replace a config that is there
        #[arg(long, conflicts_with = "dry_run")]
        force: bool,
    },
}

#[cfg(feature = "sqlite")]
#[derive(Subcommand, Debug)]
enum MigrateCommand {
    /// Show every version and whether it is applied
    Status,
    /// Apply the versions that are missing, and build what indexes are missing on PostgreSQL
    Up {
        /// Only up to this version
        #[arg(long)]
        to: Option<u32>,
        /// First move the store to this schema of its PostgreSQL database; no node may run
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
    },
    /// Go back to a version: removes what the later ones hold
    Down {
        /// The version to go back to; 0 removes everything
        #[arg(long)]
        to: u32,
        /// Yes, remove it
        #[arg(long)]
        yes: bool,
    },
    /// Copy everything a store holds into an empty one, and compare both; no node may run on either
    Copy {
        /// The store to read: `sqlite:PATH`, `postgres://…`, `redis://…`, or the variable with it: `env:NAME`
        #[arg(long, value_name = "STORE")]
        from: String,
        /// The empty store to fill, given in the same way
        #[arg(long, value_name = "STORE")]
        to: String,
    },
    /// Use a store again that was copied into another one, or whose copy did not finish
    Reopen {
        /// The store; else the one in the config
        #[arg(value_name = "STORE")]
        copied: Option<String>,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
}

/// Does what the arguments say.
pub fn run() -> ExitCode {
    let line = match CliArgs::try_parse() {
        Ok(line) => line,
        Err(error) => {
            // A closed pipe is no reason to complain about a closed pipe.
            error.print().unwrap_or_default();
            return ExitCode::from(if error.use_stderr() { UNKNOWN } else { 0 });
        }
    };
    let mut out = io::stdout().lock();
    let done = dispatch(line.command, &mut out).and_then(|code| out.flush().map(|()| code));
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format!("error: {error}"));
            ExitCode::from(UNKNOWN)
        }
    }
}

fn dispatch(command: CliCommand, out: &mut impl Write) -> io::Result<u8> {
    let env = |name: &str| std::env::var(name).ok();
    match command {
        CliCommand::Demo => demo::demo(color_choice(&io::stdout()), out),
        CliCommand::Serve { which, log, only, accept_loss } => {
            let does = match only {
                None => NodeRole::Both,
                Some(NodeRoleArg::Ingest) => NodeRole::Ingest,
                Some(NodeRoleArg::Work) => NodeRole::Work,
            };
            let log = log.map(|log| match log {
                LogFormatArg::Text => LogFormat::Text,
                LogFormatArg::Json => LogFormat::Json,
            });
            let how = serve::ServeOptions { does, log, accepts: accept_loss };
            serve::serve(which.config.as_deref(), &how, color_choice(&io::stderr()), &env, out).map(|end| end as u8)
        }
        CliCommand::Check { which, json, live } => {
            let how = if live { check::live::check } else { check::check };
            how(which.config.as_deref(), report_format(json), &env, out).map(|verdict| verdict as u8)
        }
        CliCommand::Init(ask) => init::init(&ask, out),
        #[cfg(feature = "sqlite")]
        CliCommand::Explain { which, ask } => {
            let form = report_format(ask.is_for_programs());
            explain::explain(&ask, which.config.as_deref(), form, &env, out).map(|answer| answer as u8)
        }
        #[cfg(feature = "sqlite")]
        CliCommand::Import { from: ImportCommand::Steakpie { config, db, out: to, store, dry_run, force } } => {
            let may = match (dry_run, force) {
                (true, _) => import::ImportWriteMode::Nothing,
                (false, false) => import::ImportWriteMode::Add,
                (false, true) => import::ImportWriteMode::Replace,
            };
            let order = import::ImportOptions { config, db, out: to, store, may };
            import::steakpie(&order, &env, out).map(|end| end as u8)
        }
        CliCommand::Send(asked) => run_async(send::send(&asked, &env, out)),
        CliCommand::List(asked) => run_async(list::list(&asked, &env, out)),
        CliCommand::Show(asked) => run_async(show::show(&asked, &env, out)),
        CliCommand::Tail(asked) => run_async(tail::tail(&asked, &env, out)),
        CliCommand::Replay(asked) => run_async(replay::replay(&asked, &env, out)),
        CliCommand::Cancel(asked) => run_async(cancel::cancel(&asked, &env, out)),
        CliCommand::Forget(asked) => run_async(forget::forget(&asked, &env, out)),
        #[cfg(feature = "sqlite")]
        CliCommand::Migrate { way: MigrateCommand::Copy { from, to }, .. } => {
            run_async(migrate::copy::copy(&from, &to, &env, out))
        }
        #[cfg(feature = "sqlite")]
        CliCommand::Migrate { which, store, way: MigrateCommand::Reopen { copied, yes } } => run_async(async {
            let address = match (copied, store) {
                (Some(copied), _) => migrate::copy::address(&copied, &env, crate::store::copy::CopySide::Source)?,
                (None, store) => store_address(which.config.as_deref(), store, &env)?,
            };
            migrate::copy::reopen(&address, yes, out).await
        }),
        #[cfg(feature = "sqlite")]
        CliCommand::Vacuum { which, store } => {
            run_async(async { vacuum::vacuum(&store_address(which.config.as_deref(), store, &env)?, out) })
        }
        #[cfg(feature = "sqlite")]
        CliCommand::Migrate { which, store, way } => migrate(which.config.as_deref(), store, &way, &env, out),
        CliCommand::Presets { name } => generate::presets(name.as_deref(), out),
        CliCommand::Schema => generate::schema(out).map(|()| 0),
        CliCommand::Completions { shell } => generate::completions(CliArgs::command(), shell, out).map(|()| 0),
        CliCommand::Man { dir } => generate::man(&CliArgs::command(), dir.as_deref(), out),
    }
}

/// For programs, or for people.
fn report_format(json: bool) -> check::ReportFormat {
    if json { check::ReportFormat::Json } else { check::ReportFormat::Text(color_choice(&io::stdout())) }
}

/// Runs a command of people's, beside a node or without one, until it ends or a person ends it.
fn run_async(command: impl Future<Output = Result<u8, CommandError>>) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?; // heard from here on, whatever the command waits for
        tokio::select! {
            biased;
            done = command => done,
            _ = interrupt.recv() => Err(CommandError::unknown("interrupted; what was done before stays done")),
        }
    });
    runtime.shutdown_background(); // a question that nobody answers must not keep the process
    match done {
        Ok(code) => Ok(code),
        Err(CommandError::Print(error)) => Err(error),
        Err(trouble) => {
            print_error(format!("error: {trouble}"));
            Ok(if matches!(trouble, CommandError::No(_)) { NO } else { UNKNOWN })
        }
    }
}

/// Colours, where a person looks and wants them.
fn color_choice(to: &impl IsTerminal) -> ColorChoice {
    let colour = to.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colour { ColorChoice::Colour } else { ColorChoice::Plain }
}

/// The file that was named, else the store in the config.
#[cfg(feature = "sqlite")]
fn store_address(
    config: Option<&Path>,
    store: Option<PathBuf>,
    env: crate::config::EnvLookup<'_>,
) -> Result<crate::config::StoreAddress, CommandError> {
    match store {
        Some(path) => Ok(crate::config::StoreAddress::Sqlite(path)),
        None => migrate::store(config, env).map_err(CommandError::unknown),
    }
}

#[cfg(feature = "sqlite")]
fn migrate(
    config: Option<&Path>,
    store: Option<PathBuf>,
    way: &MigrateCommand,
    env: crate::config::EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<u8> {
    use crate::config::StoreAddress;
    let asked = match store {
        Some(path) => Ok((StoreAddress::Sqlite(path), migrate::MigrationSettings::default())),
        None => migrate::configured(config, env),
    };
    let done = match asked {
        Ok((StoreAddress::Sqlite(path), _)) => migrate_file(&path, way, out),
        #[cfg(feature = "postgres")]
        Ok((StoreAddress::Postgres(url), config)) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                match way {
                    MigrateCommand::Copy { .. } | MigrateCommand::Reopen { .. } => {
                        unreachable!("it asks for no schema")
                    }
                    MigrateCommand::Status => migrate::postgres::status(&url, &config, out).await,
                    MigrateCommand::Up { to, schema } => {
                        migrate::postgres::up(&url, &config, schema.as_deref(), *to, out).await
                    }
                    MigrateCommand::Down { to, yes } => migrate::postgres::down(&url, *to, consent(*yes), out).await,
                }
            })
        }
        Ok((other, _)) => Err(migrate::MigrateError::Server(format!("{other} has no schema"))),
        Err(why) => {
            print_error(why);
            return Ok(UNKNOWN);
        }
    };
    match done {
        Ok(()) => Ok(0),
        Err(migrate::MigrateError::Print(error)) => Err(error),
        Err(why) => {
            print_error(format!("error: {why}"));
            Ok(if matches!(why, migrate::MigrateError::NotAgreed(_)) { NO } else { UNKNOWN })
        }
    }
}

#[cfg(feature = "sqlite")]
fn migrate_file(path: &Path, way: &MigrateCommand, out: &mut impl Write) -> Result<(), migrate::MigrateError> {
    match way {
        MigrateCommand::Copy { .. } | MigrateCommand::Reopen { .. } => unreachable!("it asks for no schema"),
        MigrateCommand::Status => migrate::status(path, out),
        MigrateCommand::Up { schema: Some(_), .. } => {
            Err(migrate::MigrateError::Server(format!("{} is a file, which has no schemas", path.display())))
        }
        MigrateCommand::Up { to, schema: None } => migrate::up(path, *to, out),
        MigrateCommand::Down { to, yes } => migrate::down(path, *to, consent(*yes), out),
    }
}

#[cfg(feature = "sqlite")]
fn consent(yes: bool) -> migrate::DataLossConsent {
    if yes { migrate::DataLossConsent::Given } else { migrate::DataLossConsent::NotGiven }
}
