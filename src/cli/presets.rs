//! `hookonce presets`: what is known about senders.

use super::UNKNOWN;
use crate::config::presets::{self, PRESETS};
use crate::decide::suggest::nearest;
use std::io::{self, Write};

/// Lists the presets, or prints one as it would be written in a config.
pub fn presets(name: Option<&str>, out: &mut impl Write) -> io::Result<u8> {
    let Some(name) = name else {
        let wide = PRESETS.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
        for preset in PRESETS {
            let about = preset.text.lines().next().unwrap_or_default().trim_start_matches('#').trim();
            writeln!(out, "{:<wide$}  {about}", preset.name)?;
        }
        return Ok(0);
    };
    let Some(preset) = presets::find(name) else {
        let meant = nearest(name, PRESETS.iter().map(|preset| preset.name));
        let hint = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        eprintln!("error: there is no preset `{name}`{hint}\nhint: `hookonce presets` lists those there are");
        return Ok(UNKNOWN);
    };
    writeln!(out, "{}", preset.text.trim_end())?;
    Ok(0)
}
