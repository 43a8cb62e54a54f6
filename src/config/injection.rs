//! Finds the arguments of a command that a shell or an interpreter would run as program text, or that choose which
//! program runs. They must not contain a value of the payload: the sender could inject a program.
//!
//! ```text
//! ["sudo", "-u", "web", "bash", "-ec", "deploy {tag}", "_", "{sha}"]
//!   wrapper ────────────▶ shell ──────▶ text: refused        └─ positional: fine
//! ```
//!
//! Pure, over tables ([`programs`]). Names are searched in every argument, so that an unlisted wrapper does not hide a
//! shell. Right after an unlisted program, a listed name counts as the program. No list is complete: an unlisted
//! program is trusted with all its other arguments.
pub(crate) mod programs;
#[cfg(test)]
pub(crate) mod tests;

use programs::{
    ALWAYS, CODE_VARIABLE_PREFIXES, CODE_VARIABLES, GIT_BEHIND, GIT_COMMANDS, InterpreterOptions, KnownProgram,
    OperandRole, PROGRAMS, PYTHON_STARTERS, PYTHON_TEXT, ProgramReads, SHELL_VARIABLES, STARTER, STARTERS,
    STARTING_OPTIONS, WRAPPERS, WrapperProgram, abbreviates, listed,
};

/// One argument of a command as the config has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArgumentTemplate<'a> {
    /// Its text, `{field}` references included.
    pub(super) text: &'a str,
    /// Where its first `{field}` begins.
    pub(super) field: Option<usize>,
    /// Where its last `{field}` begins.
    pub(super) last: Option<usize>,
}

/// An argument that must not contain the `{field}` it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InjectionRisk<'a> {
    /// Which argument.
    pub(super) at: usize,
    pub(super) kind: InjectionKind<'a>,
}

/// What the field's value would control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InjectionKind<'a> {
    /// The program that is started.
    Program,
    /// The script, module or setting that decides what this program runs.
    Script { by: &'a str },
    /// Text that this program runs.
    Text { by: &'a str },
    /// Part of a line that this program passes to a shell, here or on another host.
    Line { by: &'a str },
    /// A variable that programs load code from.
    Variable { name: &'a str },
}

/// Every argument whose `{field}` lets the sender run something, each once.
pub(super) fn risks<'a>(argv: &[ArgumentTemplate<'a>]) -> Vec<InjectionRisk<'a>> {
    let mut scan = ArgvScan { argv, found: Vec::new() };
    scan.variables();
    let mut commands = scan.commands(0);
    let mut wrapped = wrapper(argv.first()).is_some();
    if behind_unlisted(argv) {
        commands.extend(scan.commands(1));
        wrapped |= wrapper(argv.get(1)).is_some();
    }
    let starter = argv.iter().position(|argument| listed(STARTERS, base(argument.text))).unwrap_or(argv.len());
    for at in starter + 1..argv.len() {
        if listed(STARTING_OPTIONS, argv[at - 1].text) {
            commands.extend(scan.commands(at));
        }
    }
    for at in 0..argv.len() {
        if base(argv[at].text) == "env" && argv.get(at + 1).is_some_and(|option| is_split_string(option.text)) {
            scan.add_from(at + 1, InjectionKind::Line { by: "env -S" });
        }
        let Some((name, program)) = known(argv[at].text) else { continue };
        let place = match () {
            () if commands.contains(&at) => ProgramCertainty::Command,
            () if at > 0 && argv[at - 1].text == "--entrypoint" || argv[at].text.starts_with("--entrypoint=") => {
                ProgramCertainty::Entrypoint
            }
            () if wrapped || listed(ALWAYS, name) => ProgramCertainty::Wrapped,
            () => ProgramCertainty::Anywhere,
        };
        scan.program(at, name, program.reads, place);
    }
    scan.found.sort_by_key(|risk| risk.at);
    scan.found.dedup_by_key(|risk| risk.at);
    scan.found
}

/// The shell or interpreter that would run its standard input, which is the delivery's body.
pub(super) fn runs_its_input<'a>(argv: &[ArgumentTemplate<'a>]) -> Option<(usize, &'a str)> {
    let commands = ArgvScan { argv, found: Vec::new() }.commands(0);
    (0..argv.len()).find_map(|at| {
        let (name, program) = known(argv[at].text)?;
        let mut rest = argv[at + 1..].iter().map(|argument| argument.text);
        let (mut flags, mut bare) = (String::new(), true);
        while let Some(word) = rest.next() {
            match word.strip_prefix('-') {
                Some(letters) if !letters.starts_with('-') => {
                    flags.push_str(letters);
                    if matches!(program.reads, ProgramReads::Shell) {
                        for _ in letters.matches(['o', 'O']) {
                            rest.next();
                        }
                    }
                }
                _ if word == "--" || word == "/dev/stdin" => {}
                _ => {
                    bare = false;
                    break;
                }
            }
        }
        let told = |letters: &str| flags.contains(|c| letters.contains(c));
        let reads = match program.reads {
            ProgramReads::Shell => !told("c") && (flags.contains('s') || bare && commands.contains(&at)),
            ProgramReads::Options(InterpreterOptions { operands: OperandRole::Script, text, last, .. }) => {
                bare && commands.contains(&at) && !told(text) && !told(last) && !told("Vvh?")
            }
            _ => false,
        };
        reads.then_some((at, name))
    })
}

/// How certain it is that a known name is a program here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramCertainty {
    /// It is the program, or the one that wrappers start.
    Command,
    /// It replaces the program of a container; its arguments are behind the image.
    Entrypoint,
    /// It is behind a wrapper, whose options may have been misread.
    Wrapped,
    /// It may be any word.
    Anywhere,
}

struct ArgvScan<'s, 'a> {
    argv: &'s [ArgumentTemplate<'a>],
    found: Vec<InjectionRisk<'a>>,
}

impl<'a> ArgvScan<'_, 'a> {
    fn add(&mut self, at: usize, kind: InjectionKind<'a>) {
        if self.argv.get(at).is_some_and(|argument| argument.field.is_some()) {
            self.found.push(InjectionRisk { at, kind });
        }
    }

    fn add_from(&mut self, from: usize, kind: InjectionKind<'a>) {
        (from..self.argv.len()).for_each(|at| self.add(at, kind));
    }

    /// `BASH_ENV={field}`, also as `-eBASH_ENV=…` and `--env=BASH_ENV=…`.
    fn variables(&mut self) {
        for (at, argument) in self.argv.iter().enumerate() {
            let text: &'a str = argument.text;
            let before = &text[..argument.field.unwrap_or(0)];
            let bare = ["--env=", "--setenv=", "-e", "-E"].into_iter().find_map(|option| before.strip_prefix(option));
            for assignment in [Some(before), bare].into_iter().flatten() {
                if let Some((name, _)) = assignment.split_once('=')
                    && self.gives_code(at, name)
                {
                    self.add(at, InjectionKind::Variable { name });
                }
            }
        }
    }

    /// Whether a program would load code from the variable set in this argument.
    fn gives_code(&self, at: usize, name: &str) -> bool {
        let is_shell = |argument: &ArgumentTemplate<'_>| {
            known(argument.text).is_some_and(|(_, program)| matches!(program.reads, ProgramReads::Shell))
        };
        listed(CODE_VARIABLES, name)
            || CODE_VARIABLE_PREFIXES.split(' ').any(|prefix| name.starts_with(prefix))
            || listed(SHELL_VARIABLES, name) && self.argv[at..].iter().any(is_shell)
    }

    /// The positions of programs: this argument, and what wrappers start, as far as their options are known.
    fn commands(&mut self, first: usize) -> Vec<usize> {
        let mut commands = Vec::new();
        let mut at = Some(first).filter(|first| *first < self.argv.len());
        while let Some(here) = at {
            // A field may be a folder on the way to the first program: it is filled segment by segment.
            let argument = self.argv[here];
            if here > 0 || argument.last.is_some_and(|last| !argument.text[last..].contains('/')) {
                self.add(here, InjectionKind::Program);
            }
            commands.push(here);
            at = wrapper(self.argv.get(here)).and_then(|wrapper| self.behind(here, wrapper));
        }
        commands
    }

    /// The position of the program that this wrapper starts.
    fn behind(&mut self, at: usize, wrapper: &WrapperProgram) -> Option<usize> {
        let mut next = at + 1;
        if !wrapper.behind.is_empty() {
            next += self.argv[next..].iter().position(|argument| listed(wrapper.behind, argument.text))? + 1;
        }
        let assigns = matches!(base(self.argv[at].text), "env" | "sudo" | "doas");
        let mut operands = wrapper.operands;
        let mut options_ended = false;
        while let Some(argument) = self.argv.get(next) {
            let word = argument.text;
            if word == "--" && !options_ended {
                options_ended = true;
            } else if word.len() > 1 && word.starts_with('-') && !options_ended {
                if base(self.argv[at].text) == "env" && is_split_string(word) {
                    self.add_from(next, InjectionKind::Line { by: "env -S" });
                    return None;
                }
                next += usize::from(takes_next(word, wrapper));
            } else if assigns && word.find('=').is_some_and(|equals| argument.field.is_none_or(|field| equals < field))
            {
            } else if operands > 0 {
                operands -= 1;
            } else {
                return Some(next);
            }
            next += 1;
        }
        None
    }

    fn program(&mut self, at: usize, name: &'a str, reads: ProgramReads, place: ProgramCertainty) {
        let text = InjectionKind::Text { by: name };
        let sure = place == ProgramCertainty::Command;
        match reads {
            ProgramReads::Everything if place != ProgramCertainty::Anywhere => {
                self.add_from(at + 1, InjectionKind::Line { by: name });
            }
            ProgramReads::Everything => {}
            ProgramReads::Behind(word) => {
                if let Some(behind) = self.argv[at + 1..].iter().position(|argument| argument.text == word) {
                    self.add_from(at + 2 + behind, text);
                }
            }
            ProgramReads::Tail(options) => self.tail(at, name, options, sure),
            ProgramReads::Shell => {
                self.shell(at, name, place, |letters| letters.matches(['o', 'O']).count());
                self.shell(at, name, place, |letters| usize::from(letters.ends_with(['o', 'O'])));
            }
            ProgramReads::Git(options) => self.git(at, name, &options, place),
            ProgramReads::Options(options) => self.interpreter(at, name, &options, place),
        }
    }

    fn tail(&mut self, at: usize, name: &'a str, options: &str, sure: bool) {
        for (next, argument) in self.argv.iter().enumerate().skip(at + 1) {
            let word = argument.text.to_ascii_lowercase();
            // PowerShell takes any beginning of an option's name.
            let is_text =
                |option: &str| option == word || word.len() > 1 && word.starts_with('-') && option.starts_with(&word);
            if options.split(' ').any(is_text) {
                return self.add_from(next + 1, InjectionKind::Text { by: name });
            }
            let file = word.starts_with("-f");
            // `-ExecutionPolicy Bypass`: a value, not a script.
            let is_value = self.argv[next - 1].text.starts_with('-') && !word.contains(['.', '/', '\\']);
            if file || !word.starts_with(['-', '/']) && !is_value {
                if sure {
                    self.add(next + usize::from(file), InjectionKind::Script { by: name });
                }
                return;
            }
        }
    }

    /// `-c` may be among other flags, and other flags between it and the text. `values` says how many arguments a word
    /// of flags takes: in most shells one for each `o` in it, in some only for an `o` at its end.
    fn shell(&mut self, at: usize, name: &'a str, place: ProgramCertainty, values: fn(&str) -> usize) {
        let (mut has_text, mut is_input, mut ended, mut next) = (false, false, false, at + 1);
        while let Some(argument) = self.argv.get(next) {
            let word = argument.text;
            if matches!(word, "-" | "--") && !ended {
                ended = place != ProgramCertainty::Entrypoint || has_text;
            } else if word.starts_with(['-', '+']) && !ended {
                // A value that ends a cluster of flags chooses flags.
                self.add(next, InjectionKind::Text { by: name });
                let letters = if word.starts_with("--") { "" } else { &word[1..] };
                has_text |= word.starts_with('-') && letters.contains('c') || word == "--command";
                is_input |= word.starts_with('-') && letters.contains('s');
                next += values(letters);
                if matches!(word, "--rcfile" | "--init-file") {
                    next += 1;
                    self.add(next, InjectionKind::Script { by: name });
                }
            } else if has_text {
                return self.add(next, InjectionKind::Text { by: name });
            } else if place != ProgramCertainty::Entrypoint {
                // With `-s` the program is the input, and operands are its arguments.
                if place == ProgramCertainty::Command && !is_input {
                    self.add(next, InjectionKind::Script { by: name });
                }
                return;
            }
            next += 1;
        }
    }

    /// Options of git itself, then those of its command.
    fn git(&mut self, at: usize, name: &'a str, options: &InterpreterOptions, place: ProgramCertainty) {
        let mut next = at + 1;
        while let Some(argument) = self.argv.get(next)
            && argument.text.starts_with('-')
        {
            match option(argument, options) {
                OptionShape::Here(OptionValueRole::Text | OptionValueRole::Code) => {
                    self.add(next, InjectionKind::Text { by: name });
                }
                OptionShape::Next(role) => {
                    next += 1;
                    if !matches!(role, OptionValueRole::Data) {
                        self.add(next, InjectionKind::Text { by: name });
                    }
                }
                _ => {}
            }
            next += 1;
        }
        let Some(command) = self.argv.get(next) else { return };
        // It may be an alias, which can be any program.
        if place == ProgramCertainty::Command {
            self.add(next, InjectionKind::Script { by: name });
        }
        if let Some((_, word)) = GIT_BEHIND.iter().find(|(command_name, _)| *command_name == command.text) {
            let behind = self.argv[next + 1..].iter().position(|argument| word.is_empty() || argument.text == *word);
            if let Some(behind) = behind {
                self.add_from(next + 1 + behind, InjectionKind::Text { by: name });
            }
        }
        for (names, options) in GIT_COMMANDS {
            if listed(names, command.text) {
                self.interpreter(next, name, options, place);
            }
        }
    }

    /// Behind `python -m`: some modules run what they are given.
    fn module(&mut self, at: usize, name: &'a str, place: ProgramCertainty) {
        let Some(argument) = self.argv.get(at) else { return };
        let flags_end = argument.text.find('m').filter(|_| argument.text.starts_with('-')).map_or(0, |m| m + 1);
        let module = &argument.text[flags_end..];
        if listed(PYTHON_TEXT, module) {
            self.add_from(at + 1, InjectionKind::Text { by: name });
        } else if listed(PYTHON_STARTERS, module) {
            self.interpreter(at, name, &STARTER, place);
        }
    }

    fn interpreter(&mut self, at: usize, name: &'a str, options: &InterpreterOptions, place: ProgramCertainty) {
        let (text, script) = (InjectionKind::Text { by: name }, InjectionKind::Script { by: name });
        let anywhere = options.anywhere || place == ProgramCertainty::Entrypoint;
        let (mut given, mut operands, mut next) = (false, 0, at + 1);
        while let Some(argument) = self.argv.get(next) {
            let word = argument.text;
            if word == "--" {
                given |= options.operands == OperandRole::Data;
                next += 1;
                self.operand(next, operands, given, (name, options), place);
                return;
            }
            if word.len() > 1 && word.starts_with('-') {
                match option(argument, options) {
                    OptionShape::Nothing | OptionShape::Here(OptionValueRole::Data) => {}
                    OptionShape::Next(OptionValueRole::Data) => next += 1,
                    OptionShape::Pair => next += 2,
                    OptionShape::Here(OptionValueRole::Text) => {
                        given = true;
                        self.add(next, text);
                    }
                    OptionShape::Next(OptionValueRole::Text) => {
                        given = true;
                        next += 1;
                        self.add(next, text);
                    }
                    OptionShape::Here(OptionValueRole::Code) => {
                        given |= options.operands == OperandRole::Text;
                        self.add(next, script);
                    }
                    OptionShape::Next(OptionValueRole::Code) => {
                        given |= options.operands == OperandRole::Text;
                        next += 1;
                        self.add(next, script);
                    }
                    // It may be short for the option, or another one that takes no value.
                    OptionShape::Likely(value) => {
                        given |= matches!(value, OptionValueRole::Text);
                        given |= matches!(value, OptionValueRole::Code) && options.operands == OperandRole::Text;
                        match value {
                            OptionValueRole::Text => self.add(next + 1, text),
                            OptionValueRole::Code => self.add(next + 1, script),
                            OptionValueRole::Data => {}
                        }
                        let has_value = self.argv.get(next + 1).is_some_and(|value| !value.text.starts_with('-'));
                        next += usize::from(has_value);
                    }
                    OptionShape::Last(ahead) => {
                        self.add(next + ahead, script);
                        if options.last == "m" {
                            self.module(next + ahead, name, place);
                        }
                        return;
                    }
                }
            } else {
                self.operand(next, operands, given, (name, options), place);
                operands += 1;
                // `--option value`, where the option is in no table: the value is not what ends the options.
                let before = self.argv[next - 1].text;
                let unclear = next > at + 1 && before.starts_with("--") && !before.contains('=');
                let is_file = word.contains(['/', '.']);
                // The first operand was the script or the text; options behind it still count.
                given |= options.anywhere && (!unclear || is_file);
                if !anywhere && options.operands != OperandRole::TextAfterFirst && !(unclear && !is_file && !given) {
                    return;
                }
            }
            next += 1;
        }
    }

    fn operand(
        &mut self,
        at: usize,
        before: usize,
        given: bool,
        of: (&'a str, &InterpreterOptions),
        place: ProgramCertainty,
    ) {
        let (name, options) = of;
        let Some(argument) = self.argv.get(at) else { return };
        let remote = argument.text[..argument.last.unwrap_or(0)].contains(':');
        match options.operands {
            OperandRole::Script if !given && place == ProgramCertainty::Command => {
                self.add(at, InjectionKind::Script { by: name });
            }
            OperandRole::Text if !given && place != ProgramCertainty::Anywhere => {
                self.add(at, InjectionKind::Text { by: name });
            }
            OperandRole::TextAfterFirst if before > 0 && place != ProgramCertainty::Anywhere => {
                self.add(at, InjectionKind::Text { by: name });
            }
            OperandRole::Remote if remote && place != ProgramCertainty::Anywhere => {
                self.add(at, InjectionKind::Line { by: name });
            }
            _ => {}
        }
    }
}

/// What an option takes.
enum OptionShape {
    Nothing,
    /// A value in the same argument.
    Here(OptionValueRole),
    /// The next argument.
    Next(OptionValueRole),
    /// The next argument, if this is an abbreviation of the option.
    Likely(OptionValueRole),
    /// The next two arguments, both data.
    Pair,
    /// What is run is this many arguments ahead; options have ended.
    Last(usize),
}

enum OptionValueRole {
    Text,
    Code,
    Data,
}

fn option(argument: &ArgumentTemplate<'_>, options: &InterpreterOptions) -> OptionShape {
    let word = argument.text;
    let found = |long: &str, is_in: fn(&str, &str) -> bool| match () {
        () if is_in(options.long_text, long) => Some(OptionValueRole::Text),
        () if is_in(options.long_code, long) => Some(OptionValueRole::Code),
        () if is_in(options.long_values, long) => Some(OptionValueRole::Data),
        () => None,
    };
    let long = word.trim_start_matches('-');
    // Where there are no clusters, long options have one dash and may be abbreviated, too.
    let may_be_short = word.starts_with("--") || options.text.is_empty() && long.len() > 2;
    let short_for = |long: &str| found(long, abbreviates).filter(|_| may_be_short);
    let value = |long: &str| found(long, listed).or_else(|| short_for(long));
    if listed(options.pairs, long) {
        return OptionShape::Pair;
    }
    match long.split_once('=') {
        // A name with a field in it may be any name.
        Some((name, _)) if argument.field.is_some_and(|field| field < word.len() - long.len() + name.len()) => {
            return OptionShape::Here(OptionValueRole::Text);
        }
        Some((name, _)) if word.starts_with("--") || value(name).is_some() => {
            return OptionShape::Here(value(name).unwrap_or(OptionValueRole::Data));
        }
        _ => {}
    }
    if let Some(value) = found(long, listed) {
        return OptionShape::Next(value);
    }
    if let Some(value) = short_for(long) {
        return OptionShape::Likely(value);
    }
    if word.starts_with("--") {
        return if argument.field.is_some() { OptionShape::Here(OptionValueRole::Text) } else { OptionShape::Nothing };
    }
    cluster(argument, options)
}

/// Short options in one argument: `-lane`, `-c`, `-vX=1`.
fn cluster(argument: &ArgumentTemplate<'_>, options: &InterpreterOptions) -> OptionShape {
    for (at, letter) in argument.text.char_indices().skip(1) {
        if argument.field.is_some_and(|field| field <= at) {
            return OptionShape::Here(OptionValueRole::Text);
        }
        let ends = at + letter.len_utf8() == argument.text.len();
        let value = match () {
            () if options.last.contains(letter) => return OptionShape::Last(usize::from(ends)),
            () if options.text.contains(letter) => OptionValueRole::Text,
            () if options.code.contains(letter) => OptionValueRole::Code,
            () if options.values.contains(letter) => OptionValueRole::Data,
            () if options.attached.contains(letter) && argument.field.is_some() => {
                return OptionShape::Here(OptionValueRole::Code);
            }
            () if options.attached.contains(letter) => return OptionShape::Nothing,
            () => continue,
        };
        // `node -pe text`: the last letter takes it.
        let more = argument.text[at..].chars().all(|c| options.text.contains(c));
        return if ends || more { OptionShape::Next(value) } else { OptionShape::Here(value) };
    }
    OptionShape::Nothing
}

/// Whether a wrapper's option has its value in the next argument.
fn takes_next(word: &str, wrapper: &WrapperProgram) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        // `docker exec --detach` is not short for `--detach-keys`.
        let may_be_short = wrapper.behind.is_empty();
        return listed(wrapper.long_values, long) || may_be_short && abbreviates(wrapper.long_values, long);
    }
    let mut letters = word[1..].chars();
    letters.any(|letter| wrapper.values.contains(letter)) && letters.as_str().is_empty()
}

/// `env -S`, also among other flags: `-iS`.
fn is_split_string(word: &str) -> bool {
    word.strip_prefix("--").is_some_and(|long| abbreviates("split-string", long.split('=').next().unwrap_or(long)))
        || word.starts_with('-')
            && !word.starts_with("--")
            && word.find('S').is_some_and(|at| !word[..at].contains(['u', 'C']))
}

fn wrapper(argument: Option<&ArgumentTemplate<'_>>) -> Option<&'static WrapperProgram> {
    let word = argument?.text;
    WRAPPERS.iter().find(|wrapper| listed(wrapper.names, base(word)) || listed(wrapper.names, file(word)))
}

/// The program of this name, and the name it was found by.
fn known(word: &str) -> Option<(&str, &'static KnownProgram)> {
    let word = word.strip_prefix("--entrypoint=").unwrap_or(word);
    let name = base(word);
    let lower = name.to_ascii_lowercase();
    let program = PROGRAMS.iter().find(|program| listed(program.names, &lower))?;
    Some((name, program))
}

/// `/usr/bin/python3.11` is `python`, `cmd.exe` is `cmd`; `node1.sh` is a script and stays what it is.
fn base(word: &str) -> &str {
    let file = file(word);
    let Some(digit) = file.find(|c: char| c.is_ascii_digit()) else { return file };
    let (name, version) = file.split_at(digit);
    let has_extension = version.split('.').skip(1).any(|part| part.starts_with(|c: char| c.is_ascii_alphabetic()));
    if name.is_empty() || has_extension { file } else { name.trim_end_matches(['-', '.']) }
}

fn file(word: &str) -> &str {
    let file = word.rsplit(['/', '\\']).next().unwrap_or(word);
    file.strip_suffix(".exe").unwrap_or(file)
}

/// Whether the first program is unlisted and the next argument is a listed name.
fn behind_unlisted(argv: &[ArgumentTemplate<'_>]) -> bool {
    let is_listed =
        |argument: &ArgumentTemplate<'_>| known(argument.text).is_some() || wrapper(Some(argument)).is_some();
    matches!(argv, [first, second, ..] if !is_listed(first) && is_listed(second))
}
