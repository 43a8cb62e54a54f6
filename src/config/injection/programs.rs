//! Tables of programs that run text, and of wrappers that start another program. Data only.

/// How a program finds what it runs among its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProgramReads {
    /// As a POSIX shell: `-c` is a flag, and the first operand is the text. Without it the first operand is a script.
    Shell,
    /// Text is the value of an option.
    Options(InterpreterOptions),
    /// Behind one of these options everything is text; without one the first operand is a script.
    Tail(&'static str),
    /// Everything behind this word is text.
    Behind(&'static str),
    /// Options of its own, then a command with options of that command's: [`GIT_COMMANDS`], [`GIT_BEHIND`].
    Git(InterpreterOptions),
    /// Every argument may be text, here or on another host.
    Everything,
}

/// The options of an interpreter. Short ones are letters, long ones are names without dashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct InterpreterOptions {
    /// Their value is text.
    pub(super) text: &'static str,
    pub(super) long_text: &'static str,
    /// Their value is a file or module that is run, or a setting that can name one.
    pub(super) code: &'static str,
    pub(super) long_code: &'static str,
    /// Their value is data.
    pub(super) values: &'static str,
    pub(super) long_values: &'static str,
    /// They take two values, both data.
    pub(super) pairs: &'static str,
    /// A value, if any, is in the same argument.
    pub(super) attached: &'static str,
    /// Their value is what is run; all that follows is data.
    pub(super) last: &'static str,
    pub(super) operands: OperandRole,
    /// Text options are looked for behind operands, too.
    pub(super) anywhere: bool,
}

/// What an interpreter's operands are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperandRole {
    /// The first is a script file, unless there was text.
    Script,
    /// The first is text, unless an option gave text or a file.
    Text,
    /// All but the first are text.
    TextAfterFirst,
    /// One with a host and a colon before the field is read by a shell there.
    Remote,
    Data,
}

/// Programs that read arguments in one way.
pub(super) struct KnownProgram {
    pub(super) names: &'static str,
    pub(super) reads: ProgramReads,
}

/// A program that starts another one, which its arguments name.
pub(super) struct WrapperProgram {
    pub(super) names: &'static str,
    /// Only behind one of these words.
    pub(super) behind: &'static str,
    pub(super) values: &'static str,
    pub(super) long_values: &'static str,
    /// How many operands of its own come first.
    pub(super) operands: usize,
}

const NONE: InterpreterOptions = InterpreterOptions {
    text: "",
    long_text: "",
    code: "",
    long_code: "",
    values: "",
    long_values: "",
    pairs: "",
    attached: "",
    last: "",
    operands: OperandRole::Script,
    anywhere: false,
};
/// `-c text` behind anything.
const C_ANYWHERE: InterpreterOptions =
    InterpreterOptions { text: "c", long_text: "command", operands: OperandRole::Data, anywhere: true, ..NONE };

const fn options(names: &'static str, options: InterpreterOptions) -> KnownProgram {
    KnownProgram { names, reads: ProgramReads::Options(options) }
}

/// Versions are left off: `python3.11` is `python`, `sqlite3` is `sqlite`.
pub(super) const PROGRAMS: &[KnownProgram] = &[
    KnownProgram {
        names: "sh bash dash ash hush zsh ksh mksh pdksh oksh lksh yash posh csh tcsh rbash rksh bash-static elvish \
         xonsh rc es",
        reads: ProgramReads::Shell,
    },
    KnownProgram {
        names: "pwsh powershell",
        reads: ProgramReads::Tail("-command -commandwithargs -encodedcommand -ec /command /c"),
    },
    KnownProgram { names: "cmd", reads: ProgramReads::Tail("/c /k /r") },
    KnownProgram { names: "deno", reads: ProgramReads::Behind("eval") },
    KnownProgram { names: "yq", reads: ProgramReads::Everything },
    // Other hosts, other users, and those that make a line for a shell of their arguments.
    KnownProgram {
        names: "ssh slogin autossh mosh plink dbclient rsh remsh pssh parallel-ssh pdsh clush su runuser sg capsh xargs \
         parallel watch eval tmux screen make gmake bmake just task concurrently heroku salt",
        reads: ProgramReads::Everything,
    },
    options(
        "fish nu",
        InterpreterOptions {
            text: "cCe",
            long_text: "command commands init-command execute",
            values: "dDf",
            long_values: "debug features config env-config",
            ..NONE
        },
    ),
    options(
        "python pypy ipython micropython",
        InterpreterOptions { text: "c", values: "WX", last: "m", long_values: "check-hash-based-pycs", ..NONE },
    ),
    options("perl raku", InterpreterOptions { text: "eE", values: "I", attached: "MmFiCDxV", ..NONE }),
    options(
        "ruby jruby truffleruby",
        InterpreterOptions { text: "e", code: "r", values: "ICE", attached: "FiTWKx0", ..NONE },
    ),
    options(
        "node nodejs bun tsx ts-node",
        InterpreterOptions {
            text: "ep",
            long_text: "eval print",
            code: "r",
            long_code: "require import loader experimental-loader preload",
            values: "C",
            long_values: "conditions env-file input-type",
            ..NONE
        },
    ),
    options(
        "php php-cgi",
        InterpreterOptions {
            text: "rBRE",
            long_text: "run process-begin process-code process-end",
            code: "dFc",
            long_code: "define process-file php-ini",
            values: "Stz",
            last: "f",
            ..NONE
        },
    ),
    options("lua luajit texlua", InterpreterOptions { text: "e", code: "l", ..NONE }),
    options(
        "awk gawk mawk nawk original-awk goawk",
        InterpreterOptions {
            text: "e",
            long_text: "source",
            code: "fEil",
            long_code: "file exec include load",
            values: "vF",
            long_values: "assign field-separator",
            operands: OperandRole::Text,
            ..NONE
        },
    ),
    options(
        "sed gsed",
        InterpreterOptions {
            text: "e",
            long_text: "expression",
            code: "f",
            long_code: "file",
            values: "l",
            long_values: "line-length",
            attached: "i",
            operands: OperandRole::Text,
            anywhere: true,
            ..NONE
        },
    ),
    options(
        "jq gojq jaq",
        InterpreterOptions {
            code: "fL",
            long_code: "from-file",
            long_values: "indent",
            pairs: "arg argjson slurpfile rawfile",
            operands: OperandRole::Text,
            anywhere: true,
            ..NONE
        },
    ),
    options("dc bc", InterpreterOptions { text: "e", long_text: "expression", last: "f", anywhere: true, ..NONE }),
    options(
        "rscript r julia groovy scala elixir iex ghc ocaml osascript clojure clj bb racket gnuplot erl sbcl \
         octave",
        InterpreterOptions { text: "eE", long_text: "eval print e", code: "L", long_code: "load", ..NONE },
    ),
    options(
        "emacs emacsclient mongosh mongo",
        InterpreterOptions {
            text: "eE",
            long_text: "eval print e execute",
            code: "Llf",
            long_code: "load script file",
            values: "uph",
            anywhere: true,
            ..NONE
        },
    ),
    options("guile expect", InterpreterOptions { text: "c", code: "l", last: "f", ..NONE }),
    options(
        "vim vi nvim ex view",
        InterpreterOptions {
            text: "c",
            long_text: "cmd",
            code: "Ssu",
            operands: OperandRole::Data,
            anywhere: true,
            ..NONE
        },
    ),
    options(
        "gdb lldb",
        InterpreterOptions {
            long_text: "ex eval-command iex o one-line",
            code: "x",
            operands: OperandRole::Data,
            anywhere: true,
            ..NONE
        },
    ),
    options(
        "psql usql pgcli",
        InterpreterOptions {
            text: "c",
            long_text: "command",
            code: "f",
            long_code: "file",
            operands: OperandRole::Data,
            anywhere: true,
            ..NONE
        },
    ),
    options(
        "mysql mariadb mycli litecli cqlsh",
        InterpreterOptions {
            text: "e",
            long_text: "execute init-command",
            values: "huPDS",
            attached: "p",
            operands: OperandRole::Data,
            anywhere: true,
            ..NONE
        },
    ),
    options(
        "sqlite duckdb",
        InterpreterOptions { long_text: "cmd c s", operands: OperandRole::TextAfterFirst, anywhere: true, ..NONE },
    ),
    options(
        "clickhouse clickhouse-client sqlcmd",
        InterpreterOptions { text: "qQ", long_text: "query", operands: OperandRole::Data, anywhere: true, ..NONE },
    ),
    options("script flock vagrant", C_ANYWHERE),
    options("gcloud doppler", InterpreterOptions { text: "", ..C_ANYWHERE }),
    options("fly flyctl", InterpreterOptions { text: "C", ..C_ANYWHERE }),
    options("nix-shell", InterpreterOptions { text: "", long_text: "run command", ..C_ANYWHERE }),
    options("npm npx pnpm", InterpreterOptions { long_text: "call", ..C_ANYWHERE }),
    options("nodemon", InterpreterOptions { text: "x", long_text: "exec", ..C_ANYWHERE }),
    options("ansible", InterpreterOptions { text: "a", long_text: "args", ..C_ANYWHERE }),
    KnownProgram {
        names: "git",
        reads: ProgramReads::Git(InterpreterOptions {
            text: "c",
            values: "C",
            long_code: "exec-path config-env",
            long_values: "git-dir work-tree namespace",
            ..NONE
        }),
    },
    options("split gsplit", InterpreterOptions { text: "", long_text: "filter", ..C_ANYWHERE }),
    options("dpkg", InterpreterOptions { text: "", long_text: "pre-invoke post-invoke", ..C_ANYWHERE }),
    options(
        "apt apt-get aptitude",
        InterpreterOptions { text: "o", long_text: "option", code: "c", long_code: "config-file", ..C_ANYWHERE },
    ),
    options("find gfind", InterpreterOptions { text: "", long_text: "exec execdir ok okdir", ..C_ANYWHERE }),
    options("fd fdfind", InterpreterOptions { text: "xX", long_text: "exec exec-batch", ..C_ANYWHERE }),
    options(
        "tar gtar bsdtar",
        InterpreterOptions {
            text: "I",
            long_text: "checkpoint-action to-command use-compress-program rsh-command",
            ..C_ANYWHERE
        },
    ),
    options(
        "rsync",
        InterpreterOptions {
            text: "e",
            long_text: "rsh rsync-path",
            operands: OperandRole::Remote,
            anywhere: true,
            ..NONE
        },
    ),
    options("scp sftp", InterpreterOptions { text: "oSD", operands: OperandRole::Remote, anywhere: true, ..NONE }),
];

/// Options of git's commands that take a command or a setting.
pub(super) const GIT_COMMANDS: &[(&str, InterpreterOptions)] = &[
    (
        "rebase",
        InterpreterOptions {
            text: "x",
            long_text: "exec",
            values: "sX",
            long_values: "onto strategy strategy-option",
            ..C_ANYWHERE
        },
    ),
    (
        "clone",
        InterpreterOptions {
            text: "uc",
            long_text: "upload-pack config",
            long_code: "template",
            values: "obj",
            long_values: "origin branch depth",
            ..C_ANYWHERE
        },
    ),
    ("init", InterpreterOptions { text: "", long_text: "", long_code: "template", values: "b", ..C_ANYWHERE }),
    (
        "fetch pull ls-remote fetch-pack push send-pack archive",
        InterpreterOptions { text: "", long_text: "upload-pack receive-pack exec", values: "jo", ..C_ANYWHERE },
    ),
    (
        "grep",
        InterpreterOptions {
            text: "",
            long_text: "open-files-in-pager",
            values: "eABCmf",
            attached: "O",
            ..C_ANYWHERE
        },
    ),
    ("difftool", InterpreterOptions { text: "x", long_text: "extcmd", values: "t", ..C_ANYWHERE }),
    (
        "send-email",
        InterpreterOptions { text: "", long_text: "sendmail-cmd to-cmd cc-cmd header-cmd smtp-server", ..C_ANYWHERE },
    ),
];

/// Commands of git that run what is behind this word, or all that is behind the command.
pub(super) const GIT_BEHIND: &[(&str, &str)] = &[("submodule", "foreach"), ("bisect", "run"), ("filter-branch", "")];

/// Modules that take Python text: `python -m timeit text`.
pub(super) const PYTHON_TEXT: &str = "timeit code";
/// Modules that run the script that they are given: `python -m pdb file`.
pub(super) const PYTHON_STARTERS: &str = "pdb cProfile profile trace runpy";
/// The options of [`PYTHON_STARTERS`].
pub(super) const STARTER: InterpreterOptions =
    InterpreterOptions { text: "c", long_text: "command", values: "osCf", last: "m", ..NONE };

/// Programs that start others, named by [`STARTING_OPTIONS`].
pub(super) const STARTERS: &str = "find gfind fd fdfind";
/// The next argument is a program, with its own arguments behind it.
pub(super) const STARTING_OPTIONS: &str = "-exec -execdir -ok -okdir --exec --exec-batch -x -X";

const fn wrapper(names: &'static str, values: &'static str, operands: usize) -> WrapperProgram {
    WrapperProgram { names, behind: "", values, long_values: "", operands }
}

/// Wrappers. An unlisted option is assumed to take no value; if that is wrong, the names in [`PROGRAMS`] are still
/// found.
pub(super) const WRAPPERS: &[WrapperProgram] = &[
    WrapperProgram { long_values: "unset chdir argv0", ..wrapper("env", "uCa", 0) },
    WrapperProgram {
        long_values: "user group prompt chdir chroot host role type command-timeout",
        ..wrapper("sudo", "ugpCDRTUrth", 0)
    },
    wrapper("doas", "uC", 0),
    WrapperProgram { long_values: "user", ..wrapper("pkexec", "", 0) },
    WrapperProgram { long_values: "kill-after signal", ..wrapper("timeout", "ks", 1) },
    WrapperProgram { long_values: "adjustment", ..wrapper("nice", "n", 0) },
    WrapperProgram { long_values: "class classdata", ..wrapper("ionice", "cn", 0) },
    WrapperProgram { long_values: "input output error", ..wrapper("stdbuf", "ioe", 0) },
    WrapperProgram { long_values: "format output", ..wrapper("time", "fo", 0) },
    wrapper("strace ltrace", "eopsuaEPSIXbO", 0),
    WrapperProgram { long_values: "target setuid setgid", ..wrapper("nsenter", "tSG", 0) },
    WrapperProgram { long_values: "setuid setgid root wd", ..wrapper("unshare", "SGRw", 0) },
    WrapperProgram {
        long_values: "reuid regid groups inh-caps ambient-caps bounding-set securebits pdeathsig",
        ..wrapper("setpriv", "", 0)
    },
    WrapperProgram {
        long_values: "unit property description slice uid gid working-directory setenv machine",
        ..wrapper("systemd-run", "upHMGE", 0)
    },
    WrapperProgram { long_values: "timeout wait conflict-exit-code", ..wrapper("flock", "wE", 1) },
    wrapper("chroot chrt taskset gosu su-exec setuidgid faketime", "", 1),
    wrapper("sshpass", "pfdePh", 0),
    wrapper("choom cgexec", "ng", 0),
    wrapper(
        "nohup setsid busybox toybox unbuffer chronic fakeroot proot firejail bwrap tini dumb-init \
         dbus-run-session xvfb-run torsocks proxychains prlimit setarch runcon numactl cpulimit valgrind perf \
         catchsegv",
        "",
        0,
    ),
    WrapperProgram { behind: "exec", ..wrapper("ip direnv aws-vault chamber lxc incus", "", 1) },
    WrapperProgram {
        behind: "exec",
        long_values: "env env-file user workdir detach-keys index",
        ..wrapper("docker podman nerdctl docker-compose podman-compose crictl", "euw", 1)
    },
    WrapperProgram { behind: "--", ..wrapper("kubectl oc k3s microk8s lxc-attach machinectl", "", 0) },
    WrapperProgram { behind: "run exec", ..wrapper("poetry pipenv uv bundle rye mise op", "", 0) },
];

/// Names that count as programs anywhere in the arguments, because they are unlikely to be anything else.
pub(super) const ALWAYS: &str = "ssh slogin autossh mosh plink su runuser xargs";

/// Variables whose value programs run, or load code from.
pub(super) const CODE_VARIABLES: &str = "PATH LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT BASH_ENV SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND PERL5OPT \
         PERL5LIB PERL5DB PYTHONPATH PYTHONSTARTUP PYTHONHOME RUBYOPT RUBYLIB NODE_OPTIONS NODE_PATH LUA_INIT \
         LUA_PATH LUA_CPATH PHPRC PHP_INI_SCAN_DIR GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_PAGER \
         GIT_EDITOR GIT_PROXY_COMMAND GIT_ASKPASS EDITOR VISUAL PAGER BROWSER LESSOPEN LESSCLOSE \
         JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS MAKEFLAGS RSYNC_RSH SHELL GCONV_PATH \
         ZDOTDIR GIT_SEQUENCE_EDITOR GIT_EXEC_PATH GIT_TEMPLATE_DIR SSH_ASKPASS MANPAGER TAR_OPTIONS PERLLIB";

/// Beginnings of such names.
pub(super) const CODE_VARIABLE_PREFIXES: &str = "BASH_FUNC_ GIT_CONFIG_ LUA_INIT_ DYLD_";

/// Variables that only shells take code from, and often data for other programs.
pub(super) const SHELL_VARIABLES: &str = "ENV";

/// Whether the word is one of this list or the beginning of one.
pub(super) fn abbreviates(list: &str, word: &str) -> bool {
    !word.is_empty() && list.split(' ').any(|one| one.starts_with(word))
}

/// Whether the word is in this list.
pub(super) fn listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word && !one.is_empty())
}
