//! How the SQLite in this binary was compiled.

/// The flags with which `.cargo/config.toml` compiles SQLite. A build from a registry has them only if its environment does.
pub(crate) const FLAGS: &str = "-DHAVE_FDATASYNC=1 -DSQLITE_DEFAULT_MEMSTATUS=0";

/// SQLite's version, and how it waits for the disk. With `fsync` each commit also writes the time of change of the log:
/// as safe, and slower.
pub(crate) fn build_info() -> String {
    // Cargo gives the crate that compiles SQLite the same environment. SQLite itself does not tell.
    let flags = option_env!("LIBSQLITE3_FLAGS").unwrap_or_default();
    let syncs = if flags.contains("HAVE_FDATASYNC") {
        "fdatasync".to_owned()
    } else {
        format!("fsync; to commit faster, build with LIBSQLITE3_FLAGS=\"{FLAGS}\"")
    };
    format!("{} ({syncs})", rusqlite::version())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_of_this_tree_has_the_flags_that_are_advised_to_others() {
        let config = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/.cargo/config.toml")).unwrap();
        assert!(config.contains(&format!("LIBSQLITE3_FLAGS = \"{FLAGS}\"")), "{config}");
        assert!(build_info().ends_with("(fdatasync)"), "{}", build_info());
    }
}
