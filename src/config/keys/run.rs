//! The keys of `run`: a block of commands.

use super::{Key, Part, Takes, key};
use Part::Block;

/// The keys.
pub(super) const KEYS: [Key; 6] = [
    key(
        Block,
        "dir",
        Takes::Text,
        "the folder of the config file",
        "Where the steps run; {field} may be one existing segment.",
    ),
    key(Block, "steps", Takes::Steps, "required", "What runs, one after the other."),
    key(
        Block,
        "timeout",
        Takes::Duration,
        "10m",
        "How long the block may take. An attempt that takes longer counts against attempts.",
    ),
    key(Block, "env", Takes::Env, "nothing more", "Environment: names to pass, or names and values."),
    key(Block, "shell", Takes::Texts, "[\"sh\", \"-c\"]", "What runs a step that is a text."),
    key(Block, "log_output", Takes::Flag, "false", "Also write each line of the commands' output to the log."),
];
