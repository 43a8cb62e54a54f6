//! The binary. Exit codes: 0 success, 1 the answer is no, 2 could not find out.

use std::process::ExitCode;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The guard runs for every step of a command and needs none of the command line.
    if std::env::args_os().nth(1).is_some_and(|command| command == "guard") {
        return hookonce::internals::run_guard();
    }
    hookonce::internals::run_command_line()
}
