//! The command line: its arguments are defined here, and each command has a file of its own.

pub(crate) mod backend;
pub(crate) mod cancel;
pub(crate) mod catch_up;
pub mod check;
pub(crate) mod demo;
pub(crate) mod error;
#[cfg(feature = "sqlite")]
pub(crate) mod explain;
pub(crate) mod forget;
pub(crate) mod generate;
pub(crate) mod handshake;
pub(crate) mod healthcheck;
#[cfg(feature = "sqlite")]
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod list;
#[cfg(feature = "sqlite")]
pub mod migrate;
pub(crate) mod open_dashboard;
pub(crate) mod pinned_tls;
pub(crate) mod registers;
pub(crate) mod reload;
pub(crate) mod reloading;
pub(crate) mod replay;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod service_manager;
pub(crate) mod show;
pub(crate) mod tail;
pub(crate) mod terminal;
pub(crate) mod test_notification;
pub(crate) mod text_table;
#[cfg(feature = "sqlite")]
pub(crate) mod vacuum;
pub(crate) mod version;

use crate::config::diagnostic::ColorChoice;
use crate::node::NodeRole;
use crate::observe::log_layer::LogFormat;
use crate::store::open::server_addresses;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use error::{CommandError, print_error};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// The answer is no.
const NO: u8 = 1;
/// The command could not find out.
const UNKNOWN: u8 = 2;

/// Webhooks arrive twice. Your action should happen once.
#[derive(Parser, Debug)]
#[command(name = "hookonce", version, about, arg_required_else_help = true, disable_help_subcommand = true)]
struct CliArgs {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand, Debug)]
enum CliCommand {
    /// Run a demo: one image push, delivered ten times to a node in this process
    Demo,
    /// Receive webhooks and act on them
    Serve {
        #[command(flatten)]
        which: ConfigArgs,
        /// Log format; default: `HOOKONCE_LOG`, else `log` of the config, else text
        #[arg(long, value_enum)]
        log: Option<LogFormatArg>,
        /// Only receive or only act; another node on the same store does the rest
        #[arg(long, value_enum)]
        only: Option<NodeRoleArg>,
        /// Start although the store has lost data; takes the value that `serve` printed when it refused to start
        #[arg(long, value_name = "EPOCH:COUNTER")]
        accept_loss: Option<String>,
    },
    /// Check the config and print what it means
    Check {
        #[command(flatten)]
        which: ConfigArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Also check that secrets, store, folders, commands and receivers can be used
        #[arg(long)]
        live: bool,
    },
    /// Explain whether a delivery would run, and why (exit 0 yes, 1 no, 2 unknown)
    #[cfg(feature = "sqlite")]
    Explain {
        #[command(flatten)]
        which: ConfigArgs,
        #[command(flatten)]
        ask: explain::ExplainArgs,
    },
    /// Import the config and history of another system
    #[cfg(feature = "sqlite")]
    Import {
        #[command(subcommand)]
        from: ImportCommand,
    },
    /// Sign and send a test delivery
    Send(send::SendArgs),
    /// List events, newest first
    List(list::ListArgs),
    /// Show one event: deliveries, attempts, output, and why it is in this state
    Show(show::ShowArgs),
    /// Print a link to the dashboard that logs a browser in, and open it
    Open(open_dashboard::OpenArgs),
    /// Follow the events of a running node
    Tail(tail::TailArgs),
    /// Run events again
    Replay(replay::ReplayArgs),
    /// Cancel a waiting or running event
    Cancel(cancel::CancelArgs),
    /// List, show or correct what each subject was last changed to, deployed as, and good as
    Registers(registers::RegistersArgs),
    /// Ask the sender again for deliveries that were missed
    CatchUp(catch_up::CatchUpArgs),
    /// Wait for the token or secret that a sender brings by its handshake, and print or store it
    Handshake(handshake::HandshakeArgs),
    /// Ask the running node whether it accepts deliveries (exit 0 yes, 1 no, 2 unknown)
    Healthcheck(healthcheck::HealthcheckArgs),
    /// Have a running node read its config again (exit 0 it is in use, 1 the old one stays)
    Reload(reload::ReloadArgs),
    /// Test who is told about the ends of events
    Notify {
        #[command(flatten)]
        which: ConfigArgs,
        #[command(subcommand)]
        way: NotifyCommand,
    },
    /// Delete expired events, or forget one event or source
    Forget(forget::ForgetArgs),
    /// Show or change the schema version of the store, or copy a store
    #[cfg(feature = "sqlite")]
    Migrate {
        #[command(flatten)]
        which: ConfigArgs,
        /// SQLite file to use instead of the config's store
        #[arg(long, value_name = "PATH", global = true)]
        store: Option<PathBuf>,
        #[command(subcommand)]
        way: MigrateCommand,
    },
    /// Shrink an SQLite store to the space it needs; stop its node first
    #[cfg(feature = "sqlite")]
    Vacuum {
        #[command(flatten)]
        which: ConfigArgs,
        /// SQLite file to use instead of the config's store
        #[arg(long, value_name = "PATH")]
        store: Option<PathBuf>,
    },
    /// Write a starter config and a secret
    Init(init::InitArgs),
    /// List the presets for known senders, or print one
    Presets {
        /// Preset to print
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: ConfigArgs,
    },
    /// Print the JSON Schema of the config, for editors
    Schema,
    /// Generate shell completions
    Completions {
        /// Shell to generate them for
        shell: clap_complete::Shell,
    },
    /// Print the man page of the program, of the config, or of a command; or write all of them
    Man {
        /// Page: hookonce, hookonce.toml, or hookonce-COMMAND
        #[arg(value_name = "PAGE", conflicts_with = "dir")]
        page: Option<String>,
        /// Folder to write them to
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Print the version
    Version {
        /// Also print how this binary was built: commit, target, features, SQLite
        #[arg(long)]
        verbose: bool,
    },
    /// Print this help, that of a command, or every key of the config: `help config`, `help config source`
    Help {
        /// A command, or config
        topic: Vec<String>,
    },
}

#[derive(Subcommand, Debug)]
enum NotifyCommand {
    /// Send a test message to each target, and print what it answered (exit 0 all took it, 1 not all)
    Test(test_notification::NotifyTestArgs),
}

#[derive(Args, Debug)]
struct ConfigArgs {
    /// Config file [default: `HOOKONCE_CONFIG`, ./hookonce.toml, or /etc/hookonce/hookonce.toml]
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// The value of `--log`.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum LogFormatArg {
    /// Human-readable lines
    Text,
    /// One JSON object per line
    Json,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum NodeRoleArg {
    /// Receive deliveries; other nodes act on them
    Ingest,
    /// Act on events; receive nothing
    Work,
}

#[cfg(feature = "sqlite")]
#[derive(Subcommand, Debug)]
enum ImportCommand {
    /// Import from steakpie: write a hookonce.toml, and never act on steakpie's events again
    Steakpie {
        /// Steakpie's config
        config: PathBuf,
        /// Steakpie's database [default: `DB_PATH`, or ./db.sqlite]
        #[arg(long, value_name = "PATH")]
        db: Option<PathBuf>,
        /// Config file to write
        #[arg(long, value_name = "FILE", default_value = "hookonce.toml")]
        out: PathBuf,
        /// Store to write [default: hookonce.db beside the config]
        #[arg(long, value_name = "PATH")]
        store: Option<PathBuf>,
        /// Print what would be written; write nothing
        #[arg(long)]
        dry_run: bool,
        /// Overwrite an existing config
        #[arg(long, conflicts_with = "dry_run")]
        force: bool,
    },
    /// Import from adnanh/webhook: write a hookonce.toml, and its secrets into files beside it
    Webhook {
        /// Files of hooks, JSON or YAML
        #[arg(required = true, value_name = "HOOKS")]
        hooks: Vec<PathBuf>,
        /// Port that webhook listens on
        #[arg(long, default_value_t = 9000)]
        port: u16,
        /// First part of its paths, as -urlprefix sets it
        #[arg(long, value_name = "PREFIX", default_value = "hooks")]
        url_prefix: String,
        /// Config file to write
        #[arg(long, value_name = "FILE", default_value = "hookonce.toml")]
        out: PathBuf,
        /// Print what would be written; write nothing
        #[arg(long)]
        dry_run: bool,
        /// Overwrite an existing config and its secrets
        #[arg(long, conflicts_with = "dry_run")]
        force: bool,
    },
}

#[cfg(feature = "sqlite")]
#[derive(Subcommand, Debug)]
enum MigrateCommand {
    /// List the schema versions and whether each is applied
    Status,
    /// Apply missing schema versions; on PostgreSQL also build missing indexes
    Up {
        /// Stop at this version
        #[arg(long)]
        to: Option<u32>,
        /// First move the store to this schema of its PostgreSQL database; stop all nodes first
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
    },
    /// Revert to a version; deletes the data of later versions
    Down {
        /// Version to revert to; 0 deletes everything
        #[arg(long)]
        to: u32,
        /// Don't ask before deleting data
        #[arg(long)]
        yes: bool,
    },
    /// Copy a store into an empty one and verify the copy; stop the nodes of both first
    Copy {
        #[arg(long, value_name = "STORE", help = concat!("Store to read: `sqlite:PATH`, ", server_addresses!(), ", or `env:NAME` for a variable with the URL"))]
        from: String,
        /// Empty store to fill, written the same way
        #[arg(long, value_name = "STORE")]
        to: String,
    },
    /// Make a store usable again after it was copied, or after its copy was aborted
    Reopen {
        /// Store to reopen [default: the config's store]
        #[arg(value_name = "STORE")]
        copied: Option<String>,
        /// Don't ask before reopening
        #[arg(long)]
        yes: bool,
    },
}

/// Parses the arguments and runs the command.
pub fn run() -> ExitCode {
    let line = match CliArgs::try_parse() {
        Ok(line) => line,
        Err(error) => {
            // If standard output or error is closed, there is nowhere to report it.
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
            let may = import::ImportWriteMode::of(dry_run, force);
            let order = import::ImportOptions { config, db, out: to, store, may };
            import::steakpie(&order, &env, out).map(|end| end as u8)
        }
        #[cfg(feature = "sqlite")]
        CliCommand::Import { from: ImportCommand::Webhook { hooks, port, url_prefix, out: to, dry_run, force } } => {
            let may = import::ImportWriteMode::of(dry_run, force);
            let order = import::webhook::WebhookImport { hooks, port, prefix: url_prefix, out: to, may };
            import::webhook::webhook(&order, &env, out).map(|end| end as u8)
        }
        CliCommand::Send(asked) => run_async(send::send(&asked, &env, out)),
        CliCommand::List(asked) => run_async(list::list(&asked, &env, out)),
        CliCommand::Show(asked) => run_async(show::show(&asked, &env, out)),
        CliCommand::Open(asked) => run_async(open_dashboard::open(&asked, &env, out)),
        CliCommand::Tail(asked) => run_async(tail::tail(&asked, &env, out)),
        CliCommand::Replay(asked) => run_async(replay::replay(&asked, &env, out)),
        CliCommand::Cancel(asked) => run_async(cancel::cancel(&asked, &env, out)),
        CliCommand::Registers(asked) => run_async(registers::registers(&asked, &env, out)),
        CliCommand::CatchUp(asked) => run_async(catch_up::catch_up(&asked, &env, out)),
        CliCommand::Handshake(asked) => run_async(handshake::handshake(&asked, &env, out)),
        CliCommand::Healthcheck(asked) => run_async(healthcheck::healthcheck(&asked, &env, out)),
        CliCommand::Reload(asked) => run_async(reload::reload(&asked, &env, out)),
        CliCommand::Notify { which, way: NotifyCommand::Test(asked) } => {
            run_async(test_notification::test(&asked, which.config.as_deref(), &env, out))
        }
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
        CliCommand::Presets { name, json, which } => {
            generate::presets(which.config.as_deref(), name.as_deref(), json, &env, out)
        }
        CliCommand::Schema => generate::schema(out).map(|()| 0),
        CliCommand::Completions { shell } => generate::completions(CliArgs::command(), shell, out).map(|()| 0),
        CliCommand::Man { page, dir } => generate::man(&CliArgs::command(), page.as_deref(), dir.as_deref(), out),
        CliCommand::Help { topic } => generate::help(CliArgs::command(), &topic, out),
        CliCommand::Version { verbose } => version::version(verbose, out).map(|()| 0),
    }
}

fn report_format(json: bool) -> check::ReportFormat {
    if json { check::ReportFormat::Json } else { check::ReportFormat::Text(color_choice(&io::stdout())) }
}

/// Runs an operator command until it ends or is interrupted.
fn run_async(command: impl Future<Output = Result<u8, CommandError>>) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?; // registered first, so that it works whatever the command waits for
        tokio::select! {
            biased;
            done = command => done,
            _ = interrupt.recv() => Err(CommandError::unknown("interrupted; what was already done stays done")),
        }
    });
    runtime.shutdown_background(); // a prompt still waiting for input must not keep the process alive
    match done {
        Ok(code) => Ok(code),
        Err(CommandError::Print(error)) => Err(error),
        Err(trouble) => {
            print_error(format!("error: {trouble}"));
            Ok(if matches!(trouble, CommandError::No(_)) { NO } else { UNKNOWN })
        }
    }
}

/// Colours on a terminal, unless `NO_COLOR` is set.
fn color_choice(to: &impl IsTerminal) -> ColorChoice {
    let colour = to.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colour { ColorChoice::Colour } else { ColorChoice::Plain }
}

/// The named file, else the config's store.
#[cfg(feature = "sqlite")]
fn store_address(
    config: Option<&Path>,
    store: Option<PathBuf>,
    env: crate::config::EnvLookup<'_>,
) -> Result<crate::config::StoreAddress, CommandError> {
    match store {
        Some(path) => Ok(crate::config::StoreAddress::Sqlite(path)),
        None => migrate::store(config, env),
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
                        unreachable!("handled before: needs no schema")
                    }
                    MigrateCommand::Status => migrate::postgres::status(&url, &config, out).await,
                    MigrateCommand::Up { to, schema } => {
                        migrate::postgres::up(&url, &config, schema.as_deref(), *to, out).await
                    }
                    MigrateCommand::Down { to, yes } => migrate::postgres::down(&url, *to, consent(*yes), out).await,
                }
            })
        }
        #[cfg(feature = "redis")]
        Ok((StoreAddress::Redis(url), _)) => match way {
            MigrateCommand::Down { to, .. } => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(migrate::redis::down(&url, *to, out))
            }
            _ => Err(migrate::MigrateError::server(format!("{url} has no schema"))),
        },
        Ok((other, _)) => Err(migrate::MigrateError::server(format!("{other} has no schema"))),
        Err(why) => {
            print_error(format!("error: {why}"));
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
        MigrateCommand::Copy { .. } | MigrateCommand::Reopen { .. } => unreachable!("handled before: needs no schema"),
        MigrateCommand::Status => migrate::status(path, out),
        MigrateCommand::Up { schema: Some(_), .. } => {
            Err(migrate::MigrateError::server(format!("{} is a file, which has no schemas", path.display())))
        }
        MigrateCommand::Up { to, schema: None } => migrate::up(path, *to, out),
        MigrateCommand::Down { to, yes } => migrate::down(path, *to, consent(*yes), out),
    }
}

#[cfg(feature = "sqlite")]
fn consent(yes: bool) -> migrate::DataLossConsent {
    if yes { migrate::DataLossConsent::Given } else { migrate::DataLossConsent::NotGiven }
}
