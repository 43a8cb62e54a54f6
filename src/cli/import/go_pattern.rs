//! Regular expressions as Go reads them, as ours with the same meaning.

use regex::Regex;

/// Go's expression as one of ours: its classes `\d`, `\s`, `\w` and the border `\b` know ASCII alone. What Go reads
/// otherwise, or not at all, is refused.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let shown = pattern.escape_debug();
    let ours = GoPattern::new(pattern)
        .translate()
        .map_err(|what| format!("`{shown}` has {what}, which Go and Hookonce read differently"))?;
    Regex::new(&ours).map_err(|_| format!("`{shown}` is no expression that is known here"))
}

/// An expression of Go that is being translated.
struct GoPattern<'p> {
    rest: &'p str,
    ours: String,
}

impl<'p> GoPattern<'p> {
    fn new(pattern: &'p str) -> Self {
        Self { rest: pattern, ours: String::new() }
    }

    /// Takes a character, if there is one more.
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next();
        self.rest = chars.as_str();
        c
    }

    /// Takes a character over as it is.
    fn keep_next(&mut self) {
        let c = self.next();
        self.ours.extend(c);
    }

    /// The whole expression, or what in it means something else.
    fn translate(mut self) -> Result<String, &'static str> {
        let mut repeated = false;
        while let Some(c) = self.next() {
            let repeats = matches!(c, '*' | '+' | '?' | '{');
            if repeats && repeated {
                return Err("a repetition of a repetition");
            }
            repeated = repeats;
            match c {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '(' => self.group()?,
                '{' => self.count()?,
                other => self.ours.push(other),
            }
            if repeats && self.rest.starts_with('?') {
                self.keep_next();
            }
        }
        Ok(self.ours)
    }

    /// After a backslash.
    fn escape(&mut self, in_class: bool) -> Result<(), &'static str> {
        let ours = match self.next() {
            Some('d') => "[0-9]",
            Some('D') => "[^0-9]",
            Some('s') => r"[\t\n\f\r ]",
            Some('S') => r"[^\t\n\f\r ]",
            Some('w') => "[0-9A-Za-z_]",
            Some('W') => "[^0-9A-Za-z_]",
            Some('b' | 'B') if in_class => return Err(r"`\b` in a class"),
            Some('b') => r"(?-u:\b)",
            Some('B') => r"(?-u:\B)",
            Some('<' | '>') => return Err(r"`\<` or `\>`"),
            Some('u' | 'U') => return Err(r"`\u`"),
            Some('p' | 'P') => return Err(r"`\p`"),
            other => {
                self.ours.push('\\');
                self.ours.extend(other);
                return Ok(());
            }
        };
        self.ours.push_str(ours);
        Ok(())
    }

    /// After the bracket that begins a class.
    fn class(&mut self) -> Result<(), &'static str> {
        self.ours.push('[');
        if self.rest.starts_with('^') {
            self.keep_next();
        }
        let (mut first, mut after_dash) = (true, false);
        while let Some(c) = self.next() {
            match c {
                ']' if first => return Err("`]` at the beginning of a class"),
                '[' => return Err("`[` in a class"),
                '&' | '-' | '~' if self.rest.starts_with(c) => return Err("`&&`, `--` or `~~` in a class"),
                '\\' if after_dash && self.rest.starts_with(['d', 'D', 's', 'S', 'w', 'W']) => {
                    return Err("a range that ends with a class");
                }
                '\\' => self.escape(true)?,
                other => self.ours.push(other),
            }
            if c == ']' {
                return Ok(());
            }
            after_dash = c == '-' && !first;
            first = false;
        }
        Ok(())
    }

    /// After the bracket that begins a group: Go knows the flags `i`, `m`, `s` and `U`, and names of ASCII.
    fn group(&mut self) -> Result<(), &'static str> {
        self.ours.push('(');
        let Some(inside) = self.rest.strip_prefix('?') else { return Ok(()) };
        let fits = if let Some(named) = inside.strip_prefix("P<") {
            let name = named.split('>').next().unwrap_or_default();
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        } else {
            let flags = inside.split([':', ')']).next().unwrap_or_default();
            let known = |flags: &str| flags.chars().all(|c| "imsU".contains(c));
            match flags.split_once('-') {
                Some((on, off)) => known(on) && known(off) && !off.is_empty(),
                None => known(flags) && (!flags.is_empty() || inside.starts_with(':')),
            }
        };
        if !fits {
            return Err("a group with other flags than `i`, `m`, `s` and `U`");
        }
        self.keep_next();
        Ok(())
    }

    /// After the brace that begins a count: `3}`, `3,}` or `3,5}`, at most 1000.
    fn count(&mut self) -> Result<(), &'static str> {
        let wrong = "braces that are no count of at most 1000";
        let (inside, rest) = self.rest.split_once('}').ok_or(wrong)?;
        let (from, to) = inside.split_once(',').unwrap_or((inside, ""));
        let number = |text: &str| {
            text.bytes().all(|c| c.is_ascii_digit()) && text.parse::<u32>().is_ok_and(|number| number <= 1000)
        };
        if !number(from) || !(to.is_empty() || number(to)) {
            return Err(wrong);
        }
        self.ours.extend(["{", inside, "}"]);
        self.rest = rest;
        Ok(())
    }
}
