//! The `OpenAPI` document, generated from the handlers' own descriptions and the types that they return.
//!
//! A handler's `#[utoipa::path]` is its route, too: `mod.rs` adds routes with `routes!` only, so a route without a
//! description does not compile. The responses that every guarded handler may give (401 and 403) are added here.

use super::query::{HOWS, STATES};
use super::view::{RefusalView, UnavailableView};
use crate::decide::event::DeathCause;
use crate::decide::id::EventId;
use crate::decide::time::Timestamp;
use crate::observe::metrics::OUTCOMES;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, Deprecated, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr,
    Required, ResponseBuilder,
};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

const DESCRIPTION: &str = "The port for operators and their tools. Times are RFC 3339, UTC, by the store's clock.\n\n\
On loopback without tokens, `Host` must be a loopback name; `Origin`, if present, must be this port; and \
`Sec-Fetch-Site` must not be another site's. Where tokens are configured, a request needs one: \
`Authorization: Bearer …`, or the cookie of a session. A request with the cookie that changes something needs an \
`Origin` equal to its `Host` and the header `Hookonce-Page`. A token that may `read` may GET, and POST /api/explain; one \
that may `forget` may only POST /api/forget.";

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let (mut public, mut guarded) = (super::public_routes().into_openapi(), super::guarded_routes().into_openapi());
    for operation in operations(&mut public) {
        operation.security = Some(Vec::new());
    }
    for operation in operations(&mut guarded) {
        operation.responses.responses.extend([Unauthorized::responses(), Forbidden::responses()].into_iter().flatten());
    }
    for alias in ["/api/tail", "/api/turned-away"] {
        let alias = guarded.paths.paths.get_mut(alias).and_then(|path| path.get.as_mut());
        alias.expect("the alias is a route").deprecated = Some(Deprecated::True);
    }
    let license = LicenseBuilder::new().name("MIT OR Apache-2.0").identifier(Some("MIT OR Apache-2.0")).build();
    let info = InfoBuilder::new().title("Hookonce admin API").version("1").description(Some(DESCRIPTION));
    let cookie = "Where the requested address has a port, the name ends with it: `hookonce-3143`.";
    let mut schemas = Vec::new();
    for (name, schema) in
        [(RefusalView::name(), RefusalView::schema()), (UnavailableView::name(), UnavailableView::schema())]
    {
        schemas.push((name.into_owned(), schema));
    }
    RefusalView::schemas(&mut schemas);
    UnavailableView::schemas(&mut schemas);
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme("token", SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()))
        .security_scheme(
            "session",
            SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::with_description("hookonce", cookie))),
        );
    let security = ["token", "session"].map(|name| SecurityRequirement::new(name, [] as [&str; 0]));
    let mut document = OpenApiBuilder::new()
        .info(info.license(Some(license)).build())
        .security(Some(security.into_iter().chain([SecurityRequirement::default()])))
        .components(Some(components.build()))
        .build();
    document.merge(public);
    document.merge(guarded);
    document.to_json().expect("a document of our own types is JSON")
});

fn operations(document: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
    let methods = document.paths.paths.values_mut().map(|path| [&mut path.get, &mut path.post, &mut path.delete]);
    methods.flatten().flatten()
}

/// The `OpenAPI` document of the admin API, as JSON.
pub fn document() -> &'static str {
    &DOCUMENT
}

/// This document.
#[utoipa::path(
    get,
    path = "/api/openapi.json",
    operation_id = "openapi",
    responses((status = 200, description = "The OpenAPI document.", body = utoipa::openapi::schema::Object))
)]
pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}

/// The schema of a string.
pub(super) fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// The schema of a string that is not empty.
pub(super) fn text() -> ObjectBuilder {
    string().min_length(Some(1))
}

/// The schema of one of these words.
pub(super) fn word(words: &[&str]) -> ObjectBuilder {
    string().enum_values(Some(words.iter().map(|word| (*word).to_owned())))
}

/// The schema of a time.
pub(super) fn time() -> ObjectBuilder {
    string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
}

/// The schema of an event's id.
pub(super) fn event_id() -> ObjectBuilder {
    string().format(Some(SchemaFormat::Custom("uuid".into())))
}

/// The parameter `limit`.
pub(super) fn limit(usual: usize, most: usize) -> Parameter {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(most));
    query("limit", "Maximum number of entries.", number.default(Some(usual.into())))
}

/// A parameter in the query that may be left out.
pub(super) fn query(name: &str, description: &str, schema: ObjectBuilder) -> Parameter {
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).required(Required::False);
    parameter.description(Some(description)).schema(Some(schema.build())).build()
}

/// Names a list of parameters, so that handlers can refer to it.
macro_rules! params {
    ($(#[$doc:meta])* $name:ident, $list:expr) => {
        $(#[$doc])*
        pub(super) enum $name {}

        impl utoipa::IntoParams for $name {
            fn into_params(
                _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
            ) -> Vec<utoipa::openapi::path::Parameter> {
                $list.into()
            }
        }
    };
}
pub(super) use params;

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        time().into()
    }
}

impl ToSchema for Timestamp {}

impl PartialSchema for EventId {
    fn schema() -> RefOr<Schema> {
        event_id().into()
    }
}

impl ToSchema for EventId {}

/// The value of a field: text, a number or a truth value.
pub(crate) enum FieldScalar {}

impl PartialSchema for FieldScalar {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Number, Type::Boolean])).into()
    }
}

impl ToSchema for FieldScalar {}

/// Strings that are one of the words in a list, and are described as such.
macro_rules! word_types {
    ($($(#[$doc:meta])* $name:ident = $words:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Serialize, Debug)]
        pub(crate) struct $name(Cow<'static, str>);

        impl<T: Into<Cow<'static, str>>> From<T> for $name {
            fn from(word: T) -> Self {
                Self(word.into())
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                word(&$words).into()
            }
        }

        impl ToSchema for $name {}
    )* };
}

word_types! {
    /// The state of an event.
    StateWord = STATES;
    /// How an event was done.
    DoneWord = HOWS;
    /// Why an event is dead.
    CauseWord = DeathCause::ALL.map(DeathCause::word);
    /// The verdict on a delivery that made no event of its own.
    VerdictWord = super::deliveries::WITHOUT_EVENT.map(crate::observe::delivery_log::DeliveryVerdict::word);
    /// The outcome of an attempt.
    OutcomeWord = OUTCOMES;
    /// A window of time.
    WindowWord = super::overview::WINDOWS.map(|(name, ..)| name);
    /// The store's kind.
    StoreWord = crate::store::open::StoreUrl::WORDS;
    /// What a waiting event waits for, other than its time.
    WaitingForWord = super::view::WAITING_FOR;
    /// What a budget is counted for.
    BudgetScopeWord = ["route", "group"];
    /// What happens to an event beyond its budget.
    BudgetExceededWord = ["wait", "drop"];
    /// What a client may do.
    PermissionWord = ["read", "forget", "all"];
    /// How a client was authenticated.
    AuthWord = ["loopback", "token", "cookie"];
    /// The status of a refusal.
    RefusedWord = ["refused"];
    /// The status while something is unavailable.
    UnavailableWord = ["unavailable"];
    /// The status of a success.
    OkWord = ["ok"];
}

/// The error responses of handlers.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident: $status:literal $word:literal $reason:literal, $description:literal;)*) => { $(
        $(#[$doc])*
        pub(super) enum $name {}

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
                refusal($status, $description, &json!({ "status": $word, "reason": $reason }))
            }
        }
    )* };
}

refusals! {
    /// 400.
    BadRequest: "400" "refused" "sort is not understood", "A part of the request is unknown, repeated or unreadable.";
    /// 401.
    Unauthorized: "401" "refused" "bad_token", "A token is needed.";
    /// 403.
    Forbidden: "403" "refused" "not_allowed",
        "This token may not do that; or, on loopback, `Host` or `Origin` is not this port's.";
    /// 404.
    UnknownEvent: "404" "refused" "unknown_event", "There is no such event.";
    /// 404 of a source.
    UnknownSource: "404" "refused" "unknown_source", "The store has no event of this source.";
    /// 404 of a handshake.
    UnknownHandshake: "404" "refused" "unknown_source", "This node has no such source.";
    /// 404 of a register.
    UnknownRegister: "404" "refused" "unknown_register", "There is no such register, or no such event.";
    /// 409 of a register.
    RegisterConflict: "409" "refused" "several_registers",
        "The name means several registers or events; or an event belongs to another register, or has not ended.";
    /// 409.
    Conflict: "409" "refused" "it is running",
        "The name means several events, or the event's state does not allow it, or its body is damaged.";
    /// 409 of a set.
    SetChanged: "409" "refused" "changed", "Other events match than when they were counted.";
    /// 409 of a source.
    SourceInUse: "409" "refused" "a running node has this source", "A running node has this source.";
    /// 409 of a handshake.
    HandoverRefused: "409" "refused" "secret_exists",
        "Its handshakes bring nothing (`brings_nothing`), its secret is not a file (`no_secret_file`) or exists \
         (`secret_exists`), or somebody else waits (`awaited`).";
    /// 410.
    BodyGone: "410" "refused" "its body is no longer kept", "Its body is no longer kept.";
    /// 413.
    TooLarge: "413" "refused" "too_large", "The body is larger than a body may be.";
    /// 415.
    WrongMediaType: "415" "refused" "content_type", "The body is neither a form nor JSON.";
    /// 503 of the store.
    StoreDown: "503" "unavailable" "the store is out of reach: …", "The store does not respond.";
    /// 503 of the stream.
    TooManyStreams: "503" "unavailable" "too many live streams are open (limit 64)", "Too many live streams are open.";
    /// 503 of the node.
    NotReady: "503" "unavailable" "store_not_writable",
        "The store does not respond (`store_unreachable`) or cannot be written (`store_not_writable`), or the node is \
         about to stop (`draining`).";
}

fn refusal(status: &str, text: &str, body: &Value) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let name = if status == "503" { UnavailableView::name() } else { RefusalView::name() };
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(name))).example(Some(body.clone())).build();
    let response = ResponseBuilder::new().description(text).content("application/json", content).build();
    BTreeMap::from([(status.to_owned(), response.into())])
}

/// An event, as an example.
pub(super) fn event_example() -> Value {
    json!({
        "event": "019c3fa9-c01e-7a11-8c2e-4f6b3fa9c01e", "source": "ghcr", "route": "jamiec_ts",
        "delivery": "f168a0a0-0440-11f1-9b3f-a185afe7eea8", "fields": { "package": "jamiec_ts", "tag": "latest" },
        "state": "waiting", "received_at": "2026-02-07T15:20:40.500000Z", "life": 2, "attempt": 0, "doubts": 0,
        "due": "2026-02-07T15:30:00.000000Z",
    })
}

#[cfg(test)]
mod tests {
    /// `routes!` accepts described handlers only. The dashboard's files are not part of the API.
    #[test]
    fn no_route_of_the_api_is_added_without_its_description() {
        let router = include_str!("mod.rs");
        assert!(router.contains("routes!(") && !router.contains(".route(") && !router.contains(".nest("));
        let document: serde_json::Value = serde_json::from_str(super::document()).expect("it is JSON");
        assert!(document["paths"]["/api/quarantine"]["get"]["summary"].is_string());
    }
}
