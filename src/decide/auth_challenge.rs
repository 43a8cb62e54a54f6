//! `WWW-Authenticate`: how a registry wants to be asked (RFC 9110, and the token flow of the distribution
//! specification).

use super::limits::{AUTH_CHALLENGE_BYTES_MAX, AUTH_CHALLENGE_PARAMS_MAX, AUTH_CHALLENGES_MAX};
use std::fmt;

/// One way to authenticate that a server offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthChallenge {
    /// With a token.
    Bearer {
        /// The URL that issues tokens.
        realm: String,
        /// The name that the token is for.
        service: Option<String>,
    },
    /// With a user and a password.
    Basic,
    /// In a way that this program does not know.
    Other,
}

/// Why a header is not a list of challenges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuthChallengeError(&'static str);

impl fmt::Display for AuthChallengeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`WWW-Authenticate` cannot be read: {}", self.0)
    }
}

impl std::error::Error for AuthChallengeError {}

/// Parses the value of one `WWW-Authenticate` header.
pub fn parse_challenges(header: &str) -> Result<Vec<AuthChallenge>, AuthChallengeError> {
    if header.len() > AUTH_CHALLENGE_BYTES_MAX {
        return Err(AuthChallengeError("it is too long"));
    }
    let mut rest = ChallengeCursor(header);
    let mut challenges = Vec::new();
    loop {
        rest.skip(|c| matches!(c, ' ' | '\t' | ','));
        if rest.0.is_empty() {
            return Ok(challenges);
        }
        if challenges.len() == AUTH_CHALLENGES_MAX {
            return Err(AuthChallengeError("it has too many challenges"));
        }
        challenges.push(rest.challenge()?);
    }
}

/// The part of a header that has not been read yet.
struct ChallengeCursor<'a>(&'a str);

impl<'a> ChallengeCursor<'a> {
    fn challenge(&mut self) -> Result<AuthChallenge, AuthChallengeError> {
        let scheme = self.token().ok_or(AuthChallengeError("the name of a scheme is missing"))?;
        let separated = self.skip(|c| c == ' ');
        if !(separated || self.0.is_empty() || self.0.starts_with(',')) {
            return Err(AuthChallengeError("the name of a scheme is not followed by a space"));
        }
        let params = if separated && self.token68() { Vec::new() } else { self.params()? };
        let param = |name: &str| params.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        if scheme.eq_ignore_ascii_case("bearer") {
            let realm = param("realm").ok_or(AuthChallengeError("Bearer has no realm"))?;
            return Ok(AuthChallenge::Bearer { realm, service: param("service") });
        }
        Ok(if scheme.eq_ignore_ascii_case("basic") { AuthChallenge::Basic } else { AuthChallenge::Other })
    }

    /// The parameters up to the next challenge, with names in lower case.
    fn params(&mut self) -> Result<Vec<(String, String)>, AuthChallengeError> {
        let mut params: Vec<(String, String)> = Vec::new();
        loop {
            let before = self.0;
            self.skip(|c| matches!(c, ' ' | '\t' | ','));
            let separated = params.is_empty() || before.trim_start().starts_with(',');
            let Some(name) = self.param_name() else {
                // What follows is the next challenge, or nothing.
                return if separated || self.0.is_empty() {
                    Ok(params)
                } else {
                    Err(AuthChallengeError("two parameters are not separated by a comma"))
                };
            };
            if !separated {
                return Err(AuthChallengeError("two parameters are not separated by a comma"));
            }
            if params.iter().any(|(known, _)| *known == name) {
                return Err(AuthChallengeError("a parameter is written twice"));
            }
            if params.len() == AUTH_CHALLENGE_PARAMS_MAX {
                return Err(AuthChallengeError("a challenge has too many parameters"));
            }
            let value = self.value()?;
            params.push((name, value));
        }
    }

    /// The name of a parameter and its `=`; nothing is read if there is none.
    fn param_name(&mut self) -> Option<String> {
        let mut ahead = ChallengeCursor(self.0);
        let name = ahead.token()?.to_ascii_lowercase();
        ahead.skip(|c| matches!(c, ' ' | '\t'));
        self.0 = ahead.0.strip_prefix('=')?;
        self.skip(|c| matches!(c, ' ' | '\t'));
        Some(name)
    }

    /// A token or a quoted string.
    fn value(&mut self) -> Result<String, AuthChallengeError> {
        let Some(quoted) = self.0.strip_prefix('"') else {
            return self.token().map(str::to_owned).ok_or(AuthChallengeError("a parameter has no value"));
        };
        let mut value = String::new();
        let mut chars = quoted.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Ok(value);
                }
                '\\' => match chars.next() {
                    Some((_, escaped)) if is_text(escaped) => value.push(escaped),
                    _ => return Err(AuthChallengeError("a quoted value has an invalid escape")),
                },
                c if is_text(c) => value.push(c),
                _ => return Err(AuthChallengeError("a value has a character that is not printable ASCII")),
            }
        }
        Err(AuthChallengeError("a quoted value does not end"))
    }

    /// Credentials without parameters, up to the next comma or the end; nothing is read if there are none.
    fn token68(&mut self) -> bool {
        let is_68 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '+' | '/');
        let after = self.0.trim_start_matches(is_68);
        let begins = after.len() < self.0.len();
        let after = after.trim_start_matches('=').trim_start_matches([' ', '\t']);
        let found = begins && (after.is_empty() || after.starts_with(','));
        if found {
            self.0 = after;
        }
        found
    }

    fn token(&mut self) -> Option<&'a str> {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let length = self.0.find(|c| !is_token(c)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(length);
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    /// Skips these characters; returns whether there were any.
    fn skip(&mut self, skipped: impl Fn(char) -> bool) -> bool {
        let rest = self.0.trim_start_matches(skipped);
        let any = rest.len() < self.0.len();
        self.0 = rest;
        any
    }
}

fn is_text(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bearer(realm: &str, service: Option<&str>) -> AuthChallenge {
        AuthChallenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) }
    }

    fn check(header: &str, expected: &[AuthChallenge]) {
        assert_eq!(parse_challenges(header).as_deref(), Ok(expected), "{header}");
    }

    #[test]
    fn the_challenges_of_known_registries_are_understood() {
        check(
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/nginx:pull""#,
            &[bearer("https://auth.docker.io/token", Some("registry.docker.io"))],
        );
        check(
            r#"bearer REALM="https://ghcr.io/token", service=ghcr.io , scope="repository:o/app:pull", error="invalid_token""#,
            &[bearer("https://ghcr.io/token", Some("ghcr.io"))],
        );
        check(r#"Basic realm="Registry Realm""#, &[AuthChallenge::Basic]);
        check("Basic", &[AuthChallenge::Basic]);
        check(
            r#"Negotiate YII=, Basic realm="a, b=\"c\"", Bearer realm="https://a/t""#,
            &[AuthChallenge::Other, AuthChallenge::Basic, bearer("https://a/t", None)],
        );
        check("", &[]);
    }

    #[test]
    fn what_is_not_a_challenge_is_an_error() {
        for header in [
            "Bearer",
            r#"Bearer service="a""#,
            r#"Bearer realm="https://a"#,
            r#"Bearer realm="a" service="b""#,
            r#"Bearer realm="a",realm="b""#,
            r#"Bearer realm="a", REALM="b""#,
            "Bearer realm=",
            "Bearer realm=\"a\u{7}\"",
            "Bearer realm=\"é\"",
            "=",
            r#""Bearer""#,
            "Bearer=x",
            &format!("Bearer realm=\"{}\"", "a".repeat(AUTH_CHALLENGE_BYTES_MAX)),
            &"Basic, ".repeat(AUTH_CHALLENGES_MAX + 1),
            &format!(
                "Bearer {}",
                (0..=AUTH_CHALLENGE_PARAMS_MAX).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join(",")
            ),
        ] {
            assert!(parse_challenges(header).is_err(), "{header}: {:?}", parse_challenges(header));
        }
    }

    proptest! {
        #[test]
        fn a_realm_comes_out_as_it_was_quoted(realm in "[ -~]{0,40}", service in "[a-z.]{1,10}") {
            let quoted = realm.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("Basic realm=\"x\", Bearer realm=\"{quoted}\" , service={service}");
            prop_assert_eq!(parse_challenges(&header), Ok(vec![AuthChallenge::Basic, bearer(&realm, Some(&service))]));
        }

        #[test]
        fn no_header_panics_or_gives_more_than_the_limit(header in "([bB]earer|Basic|realm|service|=|\"|,| |\\\\|a){0,40}|\\PC{0,60}") {
            if let Ok(challenges) = parse_challenges(&header) {
                prop_assert!(challenges.len() <= AUTH_CHALLENGES_MAX);
            }
        }
    }
}
