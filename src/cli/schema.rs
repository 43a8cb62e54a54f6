//! `hookonce schema`: what a config may look like, for editors.

use crate::config::json_schema as config;
use std::io::{self, Write};

/// Prints the JSON Schema of the config.
pub fn schema(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{:#}", config::schema())
}
