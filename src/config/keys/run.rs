//! The keys of `run`: a block of commands.

use super::{ConfigKey, ConfigValueType, SectionKind, key};
use SectionKind::Block;

pub(super) const KEYS: [ConfigKey; 6] = [
    key(
        Block,
        "dir",
        ConfigValueType::Text,
        "the folder of the config file",
        "Working directory of the steps; {field} may be one existing path segment.",
    ),
    key(Block, "steps", ConfigValueType::Steps, "required", "The commands, run one after the other."),
    key(
        Block,
        "timeout",
        ConfigValueType::Duration,
        "10m",
        "Timeout of the block. An attempt that takes longer counts against attempts.",
    ),
    key(Block, "env", ConfigValueType::Env, "nothing more", "Environment: names to pass, or names and values."),
    key(Block, "shell", ConfigValueType::Texts, "[\"sh\", \"-c\"]", "The shell for steps that are strings."),
    key(
        Block,
        "log_output",
        ConfigValueType::Flag,
        "false",
        "Whether to also write the commands' output to the log, line by line.",
    ),
];
