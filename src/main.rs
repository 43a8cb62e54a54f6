//! The command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("guard") => hookonce::action::guard::run(),
        _ => ExitCode::from(2),
    }
}
