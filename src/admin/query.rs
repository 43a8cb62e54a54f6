//! Query parameters. An unknown, repeated or unreadable one is refused by name: a misspelt filter must not list
//! everything.

use super::openapi::{self, text};
use super::refuse;
use crate::decide::event::DeathCause;
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp};
use crate::store::EventQuery;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use utoipa::IntoParams;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::schema::ObjectBuilder;

/// Maximum number of entries in one response.
pub(crate) const LIST_MAX: usize = 500;
/// The default number of events in one response.
pub(super) const LIST_USUAL: usize = 100;
/// Maximum number of characters of a search text.
pub(super) const TEXT_CHARS_MAX: usize = 200;
/// The states of an event.
pub(super) const STATES: [&str; 4] = ["waiting", "running", "done", "dead"];
/// How an event can be done.
pub(super) const HOWS: [&str; 3] = ["acted", "recorded", "superseded"];

/// The name of an event in the path.
pub(super) struct EventNameParam(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for EventNameParam {
    type Rejection = QueryRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, QueryRejection> {
        let read = Path::from_request_parts(parts, state).await;
        read.map(|Path(name)| Self(name)).map_err(|_| misread("the event's name"))
    }
}

impl IntoParams for EventNameParam {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let name = ParameterBuilder::new().name("event").parameter_in(ParameterIn::Path).required(Required::True);
        let name = name.description(Some("Its id, any unique end of it, or the id of a delivery."));
        vec![name.schema(Some(text().build())).example(Some("3fa9c01e".into())).build()]
    }
}

/// The parameters that [`QueryParams::filter`] takes.
pub(super) fn event_filter_params() -> Vec<Parameter> {
    use openapi::{query, time, word};
    let causes = [&DeathCause::ALL.map(DeathCause::word)[..], &HOWS].concat();
    let search = text().max_length(Some(TEXT_CHARS_MAX));
    vec![
        query("source", "Of this source.", text()),
        query("route", "Of this route.", text()),
        query("state", "In this state.", word(&STATES)),
        query("cause", "Why it is dead, or how it is done.", word(&causes)),
        query("since", "Claimed at this time or later.", time()),
        query("until", "Claimed before this time.", time()),
        query("text", "In the delivery id or a field's value, in any letter case, or at the end of its id.", search),
        field_param(),
    ]
}

/// The parameters that [`QueryParams::fields`] takes.
pub(super) fn field_param() -> Parameter {
    let named = openapi::string().pattern(Some("^field\\..+")).build();
    let fields = ObjectBuilder::new().additional_properties(Some(openapi::string())).property_names(Some(named));
    let field = ParameterBuilder::new().name("field").parameter_in(ParameterIn::Query).required(Required::False);
    let field = field.description(Some("`field.NAME=VALUE`: this field has this value. Other fields may be added."));
    let field = field.style(Some(ParameterStyle::Form)).explode(Some(true)).schema(Some(fields.build()));
    field.example(Some(json!({ "field.tag": "latest" }))).build()
}

/// The names and values of a query, each name once.
pub(super) struct QueryParams(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for QueryParams {
    type Rejection = QueryRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, QueryRejection> {
        let read = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Query(pairs) = read.map_err(|_| QueryRejection("the query cannot be read".into()))?;
        let twice =
            pairs.iter().enumerate().find(|(at, (name, _))| pairs[..*at].iter().any(|(other, _)| other == name));
        match twice {
            Some((_, (name, _))) => Err(QueryRejection(format!("{name} is given twice"))),
            None => Ok(Self(pairs)),
        }
    }
}

impl QueryParams {
    /// Takes the value of this name.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(at).1)
    }

    /// Takes one of these words.
    pub(super) fn word(&mut self, name: &str, words: &[&'static str]) -> Result<Option<&'static str>, QueryRejection> {
        let Some(given) = self.take(name) else { return Ok(None) };
        words.iter().find(|word| **word == given).copied().map(Some).ok_or_else(|| misread(name))
    }

    /// Takes some of these words, separated by commas.
    pub(super) fn words(
        &mut self,
        name: &str,
        words: &[&'static str],
    ) -> Result<Option<Vec<&'static str>>, QueryRejection> {
        let find = |given: &str| words.iter().find(|word| **word == given).copied();
        self.parsed(name, |given| given.split(',').map(find).collect())
    }

    /// Takes a flag, which is `1` or absent.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, QueryRejection> {
        self.word(name, &["1"]).map(|flag| flag.is_some())
    }

    /// Takes a value that this function can parse.
    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, QueryRejection> {
        let Some(given) = self.take(name) else { return Ok(None) };
        parse(&given).map(Some).ok_or_else(|| misread(name))
    }

    /// Takes a limit.
    pub(super) fn limit(&mut self, usual: usize, most: usize) -> Result<usize, QueryRejection> {
        let limit = self.parsed("limit", |text| text.parse().ok().filter(|limit| (1..=most).contains(limit)))?;
        Ok(limit.unwrap_or(usual))
    }

    /// Takes a text that is not empty.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, QueryRejection> {
        self.parsed(name, |text| Some(text.to_owned()).filter(|text| !text.is_empty()))
    }

    /// Takes a text to search for.
    pub(super) fn search_text(&mut self, name: &str) -> Result<Option<String>, QueryRejection> {
        let short = |text: &str| (1..=TEXT_CHARS_MAX).contains(&text.chars().count()).then(|| text.to_owned());
        self.parsed(name, short)
    }

    /// Takes a number of seconds, at most this many.
    pub(super) fn seconds(&mut self, name: &str, max: Duration) -> Result<Option<Duration>, QueryRejection> {
        let Some(given) = self.take(name) else { return Ok(None) };
        let seconds = given.parse().ok().filter(|seconds| *seconds <= max.as_secs());
        seconds.map(|seconds| Some(Duration::from_secs(seconds))).ok_or_else(|| misread(name))
    }

    /// Refuses parameters that were not taken.
    pub(super) fn finish(self) -> Result<(), QueryRejection> {
        self.0.first().map_or(Ok(()), |(name, _)| Err(misread(name)))
    }

    /// Takes the filter of events.
    pub(super) fn filter(&mut self) -> Result<EventQuery, QueryRejection> {
        let causes = [&HOWS[..], &DeathCause::ALL.map(DeathCause::word)].concat();
        let mut listing = EventQuery {
            source: self.text("source")?,
            route: self.text("route")?,
            state: self.word("state", &STATES)?.map(str::to_owned),
            cause: self.word("cause", &causes)?.map(str::to_owned),
            since: self.parsed("since", Timestamp::parse)?,
            until: self.parsed("until", Timestamp::parse)?,
            text: self.search_text("text")?,
            ..EventQuery::default()
        };
        listing.fields = self.fields()?;
        Ok(listing)
    }

    /// Takes the values of fields: `field.NAME=VALUE`.
    pub(super) fn fields(&mut self) -> Result<Vec<(String, String)>, QueryRejection> {
        let (mut fields, mut at) = (Vec::new(), 0);
        while at < self.0.len() {
            let field = self.0[at].0.strip_prefix("field.").filter(|name| !name.is_empty()).map(str::to_owned);
            match field {
                Some(name) => fields.push((name, self.0.remove(at).1)),
                None => at += 1,
            }
        }
        if fields.len() > limits::FIELDS_MAX {
            return Err(QueryRejection("too many fields".into()));
        }
        Ok(fields)
    }

    /// Takes one page of events, and nothing else.
    pub(super) fn page(mut self) -> Result<EventQuery, QueryRejection> {
        let listing = self.filter()?;
        let before = self.parsed("before", |text| text.parse().ok())?;
        let limit = self.limit(LIST_USUAL, LIST_MAX)?;
        self.finish()?;
        Ok(EventQuery { before, limit, ..listing })
    }
}

pub(super) fn misread(name: &str) -> QueryRejection {
    QueryRejection(format!("{name} is not understood"))
}

/// A query parameter that is unknown, repeated or unreadable.
pub(super) struct QueryRejection(String);

impl IntoResponse for QueryRejection {
    fn into_response(self) -> Response {
        refuse(StatusCode::BAD_REQUEST, &self.0)
    }
}

impl From<QueryRejection> for Response {
    fn from(misread: QueryRejection) -> Self {
        misread.into_response()
    }
}
