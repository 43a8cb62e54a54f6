//! Registers: what each subject was last changed to, what was last deployed of it, and what was last good. They are
//! listed, shown and corrected here.

use super::events::find_event;
use super::openapi::{
    self, BadRequest, CauseWord, DoneWord, FieldScalar, RegisterConflict, StateWord, StoreDown, UnknownRegister,
    params, query, text, word,
};
use super::query::{LIST_MAX, LIST_USUAL, QueryParams, QueryRejection, field_param, misread};
use super::view::{self, RefusalView};
use super::{AdminState, refuse, unavailable};
use crate::decide::event::{DoneReason, EventState};
use crate::decide::field::FieldValue;
use crate::decide::id::{EventId, Key};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{Deployment, RegisterEdit};
use crate::decide::time::Timestamp;
use crate::store::subjects::{self, NamedRegister, RegisterLookup, RegisterQuery};
use crate::store::{RegisterEditError, StoreError};
use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::info;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::{IntoParams, ToSchema};

/// The register of a subject.
#[derive(Serialize, ToSchema)]
pub(crate) struct RegisterView {
    /// Its key, in hexadecimal digits.
    register: String,
    /// The source of its current event; null: that event is not kept.
    #[schema(required)]
    source: Option<String>,
    /// The route of its current event.
    #[schema(required)]
    route: Option<String>,
    /// The fields that name the subject: those of `change.of`. All fields, where no node has its source.
    #[schema(value_type = BTreeMap<String, FieldScalar>)]
    subject: Map<String, Value>,
    /// The digest of the value that it was last changed to, in hexadecimal digits.
    value_digest: String,
    /// The highest order seen; a time where the order is one.
    #[schema(required, value_type = Option<FieldScalar>)]
    order: Option<Value>,
    /// The field that the order is read from.
    #[schema(required)]
    ordered_by: Option<String>,
    /// An equal order is stale, too: an operator chose the current event.
    strict: bool,
    /// The event that last changed it.
    current: RegisterEventView,
    /// The event that was last deployed; null: none, as far as is known.
    #[schema(required)]
    deployed: Option<RegisterEventView>,
    /// The event that was last good: deployed, and healthy where its route checks that.
    #[schema(required)]
    good: Option<RegisterEventView>,
}

/// An event that a register names.
#[derive(Serialize, ToSchema)]
struct RegisterEventView {
    event: EventId,
    /// The fields of the value that it changed the subject to: those of `change.to`.
    #[schema(value_type = BTreeMap<String, FieldScalar>)]
    value: Map<String, Value>,
    /// What the registry's tag pointed to, where its route looks that up.
    #[schema(required)]
    digest: Option<String>,
    /// When it was received; of the deployed and the good event: when it became that.
    #[schema(required)]
    at: Option<Timestamp>,
    /// null: it is not kept.
    #[schema(required)]
    state: Option<StateWord>,
    /// done: in what way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    how: Option<DoneWord>,
    /// done, superseded: the event that superseded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    superseded_by: Option<EventId>,
    /// dead: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cause: Option<CauseWord>,
    /// deployed; dead, unhealthy: the event that has deployed the good one again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rolled_back_by: Option<EventId>,
}

/// One register.
pub(crate) fn register(named: &NamedRegister) -> RegisterView {
    let register = &named.register;
    let deployment =
        |one: Deployment| RegisterEventView { at: Some(one.at), ..event(named, one.event, one.digest.as_deref()) };
    let current = named.current();
    let resolved = current.and_then(|event| event.resolved.as_deref());
    RegisterView {
        register: hex::encode(named.key.0),
        source: current.map(|event| event.source.to_string()),
        route: current.map(|event| event.route.to_string()),
        subject: fields(&named.subject()),
        value_digest: hex::encode(register.value.0),
        order: register.order.map(|order| order_in_words(named, order)),
        ordered_by: named.names.as_ref().and_then(|names| names.order.clone()),
        strict: register.strict,
        current: event(named, register.event, resolved),
        deployed: register
            .deployed()
            .map(|one| RegisterEventView { rolled_back_by: named.rolled_back_by(), ..deployment(one) }),
        good: register.good().map(deployment),
    }
}

fn fields(all: &[(&str, &FieldValue)]) -> Map<String, Value> {
    all.iter().map(|(name, value)| ((*name).to_owned(), view::field(value))).collect()
}

/// An order that is written as a time is shown as one.
fn order_in_words(named: &NamedRegister, order: i64) -> Value {
    let field = named.names.as_ref().and_then(|names| names.order.as_deref());
    match field.and_then(|name| named.current()?.fields.get(name)) {
        Some(FieldValue::Text(text)) if text.parse::<i64>().is_err() => Timestamp(order).to_string().into(),
        _ => view::field(&FieldValue::Number(order.to_string().into())),
    }
}

fn event(named: &NamedRegister, id: EventId, digest: Option<&str>) -> RegisterEventView {
    let event = named.event(id);
    let mut shown = RegisterEventView {
        event: id,
        value: event.map(|event| fields(&named.value_of(event))).unwrap_or_default(),
        digest: digest.map(str::to_owned),
        at: event.map(|event| event.received_at),
        state: event.map(|event| event.state.word().into()),
        how: None,
        superseded_by: None,
        cause: None,
        rolled_back_by: None,
    };
    match event.map(|event| &event.state) {
        Some(EventState::Done { how, .. }) => {
            shown.how = Some(how.word().into());
            if let DoneReason::Superseded { by } = how {
                shown.superseded_by = Some(*by);
            }
        }
        Some(EventState::Dead { cause, .. }) => shown.cause = Some(cause.word().into()),
        Some(EventState::Waiting { .. } | EventState::Running { .. }) | None => {}
    }
    shown
}

/// One page of registers.
#[derive(Serialize, ToSchema)]
pub(super) struct RegisterList {
    /// In the order of their keys.
    registers: Vec<RegisterView>,
    /// Pass it as `after` to continue; null: there are no more. A page may be short, or empty, and still have a next:
    /// 1,000 registers are looked at for each.
    #[schema(required)]
    next: Option<String>,
}

params!(
    /// Which registers, and where the page begins.
    RegisterListParams,
    [
        query("source", "Of this source.", text()),
        field_param(),
        query("after", "Only those after it: `next` of the page before.", key_digits()),
        openapi::limit(LIST_USUAL, LIST_MAX),
    ]
);

fn key_digits() -> utoipa::openapi::schema::ObjectBuilder {
    openapi::string().pattern(Some("^[0-9a-f]{64}$"))
}

/// A key, written as [`RegisterView`] writes it.
fn read_key(digits: &str) -> Option<Key> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(Key(bytes))
}

/// The name of a register in the path.
pub(super) struct RegisterNameParam(String);

impl<S: Send + Sync> FromRequestParts<S> for RegisterNameParam {
    type Rejection = QueryRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, QueryRejection> {
        let read = Path::from_request_parts(parts, state).await;
        read.map(|Path(name)| Self(name)).map_err(|_| misread("the register's name"))
    }
}

impl IntoParams for RegisterNameParam {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let name = ParameterBuilder::new().name("register").parameter_in(ParameterIn::Path).required(Required::True);
        let name = name.description(Some("Its key, a unique beginning of it, or an event that changed its subject."));
        vec![name.schema(Some(text().build())).example(Some("9f86d081".into())).build()]
    }
}

/// What registers are made of: by this node's config, and by the store for sources of other nodes.
async fn recipes(state: &AdminState) -> Result<Vec<IdentityRecipe>, StoreError> {
    let own = state.sources.iter().map(|source| source.recipe());
    Ok(own.chain(state.store.recipes().await?).collect())
}

/// Lists the registers of subjects.
#[utoipa::path(
    get,
    path = "/api/registers",
    operation_id = "registers",
    params(RegisterListParams),
    responses(
        (status = 200, description = "One page.", body = RegisterList,
         example = json!({ "registers": [register_example()], "next": null })),
        BadRequest, StoreDown
    )
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    mut params: QueryParams,
) -> Result<Json<RegisterList>, Response> {
    let query = RegisterQuery {
        source: params.text("source")?,
        fields: params.fields()?,
        after: params.parsed("after", read_key)?,
        limit: params.limit(LIST_USUAL, LIST_MAX)?,
    };
    params.finish()?;
    let recipes = recipes(&state).await.map_err(|error| unavailable(&error))?;
    let page = subjects::page(&*state.store, &recipes, &query).await.map_err(|error| unavailable(&error))?;
    let next = page.next.map(|key| hex::encode(key.0));
    Ok(Json(RegisterList { registers: page.registers.iter().map(register).collect(), next }))
}

/// The single register with this name, or the refusal.
async fn find_register(state: &AdminState, name: &str) -> Result<NamedRegister, Response> {
    let recipes = recipes(state).await.map_err(|error| unavailable(&error))?;
    match subjects::find(&*state.store, &recipes, name).await.map_err(|error| unavailable(&error))? {
        RegisterLookup::Found(named) => Ok(*named),
        RegisterLookup::SeveralRegisters => Err(refuse(StatusCode::CONFLICT, "several_registers")),
        RegisterLookup::SeveralEvents(events) => {
            let refusal = RefusalView::new("several_events").events(&events);
            Err((StatusCode::CONFLICT, Json(refusal)).into_response())
        }
        RegisterLookup::Unknown => Err(unknown_register()),
    }
}

fn unknown_register() -> Response {
    refuse(StatusCode::NOT_FOUND, "unknown_register")
}

/// Shows one register.
#[utoipa::path(
    get,
    path = "/api/registers/{register}",
    operation_id = "register",
    params(RegisterNameParam),
    responses(
        (status = 200, description = "The register.", body = RegisterView, example = json!(register_example())),
        BadRequest, UnknownRegister, RegisterConflict, StoreDown
    )
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    RegisterNameParam(name): RegisterNameParam,
    params: QueryParams,
) -> Result<Json<RegisterView>, Response> {
    params.finish()?;
    Ok(Json(register(&find_register(&state, &name).await?)))
}

params!(
    /// The events that a register is to name.
    RegisterSetParams,
    [
        query("current", "The event that is to be its current one: its id, a unique end of it, or a delivery's id.", text()),
        query("deployed", "The event that is to be the last deployed one.", text()),
        query("good", "The event that is to be the last good one.", text()),
    ]
);

/// Corrects a register: it names other events of its subject, which have ended. Nothing runs because of it.
#[utoipa::path(
    post,
    path = "/api/registers/{register}",
    operation_id = "setRegister",
    params(RegisterNameParam, RegisterSetParams),
    responses(
        (status = 200, description = "The register as it is now.", body = RegisterView,
         example = json!(register_example())),
        BadRequest, UnknownRegister, RegisterConflict, StoreDown
    )
)]
pub(super) async fn set(
    State(state): State<AdminState>,
    RegisterNameParam(name): RegisterNameParam,
    mut params: QueryParams,
) -> Result<Json<RegisterView>, Response> {
    let given = [params.text("current")?, params.text("deployed")?, params.text("good")?];
    params.finish()?;
    if given.iter().all(Option::is_none) {
        return Err(refuse(StatusCode::BAD_REQUEST, "current, deployed or good is missing"));
    }
    let named = find_register(&state, &name).await?;
    let mut events = [None; 3];
    for (event, given) in events.iter_mut().zip(given) {
        if let Some(name) = given {
            *event = Some(find_event(&state, name).await?.id);
        }
    }
    let [current, deployed, good] = events;
    edit(&state, named.key, RegisterEdit::Set { current, deployed, good }).await?;
    log_edit(&named, "set");
    Ok(Json(register(&find_register(&state, &hex::encode(named.key.0)).await?)))
}

params!(
    /// How much is cleared.
    RegisterClearParams,
    [query("deployed", "Only what was deployed and good; the current event stays.", word(&["1"]))]
);

/// The register that was cleared.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClearedRegisterView {
    /// Its key.
    register: String,
    /// What is left of it; null: nothing, as if its subject had never been changed.
    #[schema(required)]
    left: Option<RegisterView>,
}

/// The register that was cleared, and what is left of it.
pub(crate) fn cleared(key: Key, left: Option<&NamedRegister>) -> ClearedRegisterView {
    ClearedRegisterView { register: hex::encode(key.0), left: left.map(register) }
}

/// Clears a register: the next delivery of its subject is new, whatever its value and order. Nothing runs because of it.
#[utoipa::path(
    delete,
    path = "/api/registers/{register}",
    operation_id = "clearRegister",
    params(RegisterNameParam, RegisterClearParams),
    responses(
        (status = 200, description = "It is cleared.", body = ClearedRegisterView, example = json!({
            "register": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "left": null,
        })),
        BadRequest, UnknownRegister, RegisterConflict, StoreDown
    )
)]
pub(super) async fn clear(
    State(state): State<AdminState>,
    RegisterNameParam(name): RegisterNameParam,
    mut params: QueryParams,
) -> Result<Json<ClearedRegisterView>, Response> {
    let only_deployed = params.flag("deployed")?;
    params.finish()?;
    let named = find_register(&state, &name).await?;
    let way = if only_deployed { RegisterEdit::ClearDeployed } else { RegisterEdit::Clear };
    edit(&state, named.key, way).await?;
    log_edit(&named, if only_deployed { "clear deployed" } else { "clear" });
    let left = if only_deployed { Some(find_register(&state, &hex::encode(named.key.0)).await?) } else { None };
    Ok(Json(cleared(named.key, left.as_ref())))
}

async fn edit(state: &AdminState, key: Key, edit: RegisterEdit) -> Result<(), Response> {
    match state.store.edit_register(key, edit).await.map_err(|error| unavailable(&error))? {
        Ok(_) => Ok(()),
        Err(RegisterEditError::NoRegister) => Err(unknown_register()),
        Err(RegisterEditError::NoEvent(_)) => Err(refuse(StatusCode::NOT_FOUND, "unknown_event")),
        Err(error) => Err(refuse(StatusCode::CONFLICT, &error.to_string())),
    }
}

fn log_edit(named: &NamedRegister, edit: &str) {
    let (register, source) = (hex::encode(&named.key.0[..4]), named.current().map_or("", |event| &*event.source));
    info!(target: "hookonce", register, source, edit, "register");
}

/// A register, as an example.
fn register_example() -> Value {
    let event = serde_json::json!({
        "event": "019c3fa9-c01e-7a11-8c2e-4f6b3fa9c01e", "value": { "version_id": 689_512_123, "sha": "sha256:b97c4e" },
        "digest": null, "at": "2026-02-07T15:20:41.329000Z", "state": "done", "how": "acted",
    });
    serde_json::json!({
        "register": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "source": "ghcr", "route": "jamiec_ts", "subject": { "package": "jamiec_ts", "tag": "latest" },
        "value_digest": "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c",
        "order": "2026-02-07T15:20:40.000000Z", "ordered_by": "updated_at", "strict": false,
        "current": event, "deployed": event, "good": event,
    })
}
