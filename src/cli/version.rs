//! `hookonce version`: the version, and with `--verbose` how this binary was built.

use std::env::consts::{ARCH, OS};
use std::io::{self, Write};

/// The features that a build may leave out, and whether this one has them.
const FEATURES: [(&str, bool); 7] = [
    ("layer", cfg!(feature = "layer")),
    ("nats", cfg!(feature = "nats")),
    ("node", cfg!(feature = "node")),
    ("otel", cfg!(feature = "otel")),
    ("postgres", cfg!(feature = "postgres")),
    ("redis", cfg!(feature = "redis")),
    ("sqlite", cfg!(feature = "sqlite")),
];

/// Prints the version as `--version` does, and the build on request.
pub(crate) fn version(verbose: bool, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "hookonce {}", env!("CARGO_PKG_VERSION"))?;
    if verbose {
        for (label, value) in build() {
            writeln!(out, "{label:<9} {value}")?;
        }
    }
    Ok(())
}

fn build() -> Vec<(&'static str, String)> {
    let libc = if cfg!(target_env = "musl") { "musl, static" } else { "glibc" };
    let features: Vec<_> = FEATURES.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
    let mut lines = Vec::new();
    // Set by ./package: a source from a registry has no commit.
    lines.extend(option_env!("HOOKONCE_COMMIT").map(|commit| ("commit", commit.to_owned())));
    lines.push(("target", format!("{ARCH} {OS} ({libc})")));
    lines.push(("features", features.join(" ")));
    #[cfg(feature = "sqlite")]
    lines.push(("sqlite", crate::store::sqlite::build_info()));
    lines
}
