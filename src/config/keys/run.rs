//! The keys of `run`: a block of commands.

use super::{ConfigKey, ConfigValueType, SectionKind, key};
use SectionKind::Block;

/// The keys.
pub(super) const KEYS: [ConfigKey; 6] = [
    key(
        Block,
        "dir",
        ConfigValueType::Text,
        "the folder of the config file",
        "Where the steps run; {field} may be one existing segment.",
    ),
    key(Block, "steps", ConfigValueType::Steps, "required", "What runs, one after the other."),
    key(
        Block,
        "timeout",
        ConfigValueType::Duration,
        "10m",
        "How long the block may take. An attempt that takes longer counts against attempts.",
    ),
    key(Block, "env", ConfigValueType::Env, "nothing more", "Environment: names to pass, or names and values."),
    key(Block, "shell", ConfigValueType::Texts, "[\"sh\", \"-c\"]", "What runs a step that is a text."),
    key(
        Block,
        "log_output",
        ConfigValueType::Flag,
        "false",
        "Also write each line of the commands' output to the log.",
    ),
];
