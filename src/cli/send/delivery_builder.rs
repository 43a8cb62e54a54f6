//! Builds a delivery as its sender would: a body with the requested fields set, signed.

use super::sender_key_pair::SenderKeyPair;
use crate::cli::error::CommandError;
use crate::config::presets;
use crate::decide::field::{Field, FieldIndex, FieldLocation};
use crate::decide::filter::Filter;
use crate::decide::id::Digest;
use crate::decide::nearest_name::nearest;
use crate::decide::source::{Group, Identity, Source};
use crate::decide::time::Timestamp;
use crate::decide::verify::BodyFormat;
use crate::decide::{envelope, form, github_kind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The event kind of a sample, unless the source requires another.
const SAMPLE_KIND: &str = "push";

/// The field that names the caller, and an existing caller.
fn caller(source: &Source) -> Option<(FieldIndex, std::sync::Arc<str>)> {
    let callers = source.verify.callers()?;
    Some((source.fields.ix(&callers.who.name)?, callers.book.anyone()?))
}

/// A delivery, not yet signed.
#[derive(Clone, Debug)]
pub(super) struct DeliveryBuilder {
    pub(super) id: String,
    pub(super) body: Vec<u8>,
    headers: Vec<(String, String)>,
    query: Vec<(String, String)>,
}

impl DeliveryBuilder {
    /// A delivery with exactly this body.
    pub(super) fn of(body: Vec<u8>, id: String) -> Self {
        Self { id, body, headers: Vec::new(), query: Vec::new() }
    }

    /// A new delivery that the source would accept, as far as its filters can be solved.
    pub(super) fn sample(
        source: &Source,
        preset: Option<&str>,
        id: String,
        now: Timestamp,
    ) -> Result<Self, CommandError> {
        let mut body = match preset.and_then(presets::find).and_then(|preset| preset.sample) {
            Some(text) => serde_json::from_str(text).expect("a sample is JSON"),
            None => json!({ "sample": id }),
        };
        if let (Some(each), None) = (source.fields.each(), preset) {
            body = if each.is_empty() { Value::Null } else { body };
            set_at_path(&mut body, each, Some(json!([{ "sample": id }]))).map_err(CommandError::unknown)?;
        }
        if let Some(kind) = &source.kind {
            let shape = kind.any_of.first().map_or(&[][..], |kind| &kind.shape);
            set_at_path(&mut body, shape, None).map_err(CommandError::unknown)?;
        }
        let mut delivery = Self::of(Vec::new(), id);
        let fresh = fresh_fields(source);
        let filters =
            [source.require.as_ref(), source.when.as_ref(), source.routes.first().and_then(|r| r.when.as_ref())];
        let wanted: Vec<_> = filters.into_iter().flatten().flat_map(Filter::required_values).collect();
        let equal: Vec<_> = filters.into_iter().flatten().flat_map(Filter::equal).collect();
        let caller = caller(source);
        let asked_for = |ix: FieldIndex| match &caller {
            Some((who, name)) if *who == ix => Some(&**name),
            _ => wanted.iter().find(|(of, _)| *of == ix).map(|(_, text)| *text),
        };
        // Fields that must be equal get the same value: the required one, if there is one.
        let asked_for = |ix: FieldIndex| {
            let others = equal.iter().filter_map(|(a, b)| [(*a, *b), (*b, *a)].into_iter().find(|(a, _)| *a == ix));
            let mut others = others.map(|(_, other)| asked_for(other).unwrap_or("sample"));
            asked_for(ix).or_else(|| others.next())
        };
        let mut kind = SAMPLE_KIND;
        for (ix, field) in (0..).map(FieldIndex).zip(source.fields.iter()) {
            if source.fields.kind_use().is_some() && field.at == FieldLocation::Header(github_kind::HEADER.into()) {
                kind = asked_for(ix).unwrap_or(SAMPLE_KIND);
                delivery.set_field(source, &mut body, field, kind.into())?;
                continue;
            }
            let found = in_body(source, &body, field).filter(|value| !value.is_null());
            let order = source.once.change.as_ref().and_then(|change| change.order) == Some(ix);
            let asked = asked_for(ix);
            let value = match found {
                _ if asked.is_some() => asked.into(),
                Some(Value::Number(_)) if order => Value::from(now.0 / 1_000_000),
                _ if order => Value::from(seconds(now)),
                Some(found) if fresh.contains(&ix) => fresh_value(found, &delivery.id, now),
                Some(_) => continue,
                None if field.default.is_some() => continue,
                // A sender's own sample has all that this kind of delivery has.
                None if preset.is_some() && field.at.is_in_body() && !is_needed(source, ix) => continue,
                None if fresh.contains(&ix) => format!("sample-{}", &hash(&delivery.id)[..8]).into(),
                None => "sample".into(),
            };
            delivery.set_field(source, &mut body, field, value)?;
        }
        let members = source.fields.kind_use().and_then(|_| github_kind::members(kind)).unwrap_or_default();
        for (path, is_object) in members {
            let there = path.iter().try_fold(&body, |at, part| inside(at, part)).is_some();
            let value = (!is_object).then(|| "sample".into());
            if !there {
                set_at_path(&mut body, &path, value).map_err(CommandError::unknown)?;
            }
        }
        if let Some((path, time)) = source.verify.time_in_body(now) {
            let time = time.parse::<i64>().map_or_else(|_| Value::from(time), Value::from);
            set_at_path(&mut body, path, Some(time)).map_err(CommandError::unknown)?;
        }
        // Where the bytes alone tell events apart, they must be new ones.
        let has_id = matches!(&source.delivery, Some(id) if id.at.is_in_body());
        if source.dedups_by_body() && fresh.is_empty() && !has_id {
            let path = in_first_element(source, &["sample".to_owned()]);
            set_at_path(&mut body, &path, Some(delivery.id.as_str().into())).map_err(CommandError::unknown)?;
        }
        delivery.body = written(source, &body);
        delivery.set_delivery_id(source)?;
        delivery.set_proof(source)?;
        Ok(delivery)
    }

    /// Sets fields: `tag=main`. A number stays a number; otherwise a value that is a JSON scalar is taken as such.
    pub(super) fn set(&mut self, source: &Source, settings: &[String]) -> Result<(), CommandError> {
        if settings.is_empty() {
            return self.set_proof(source);
        }
        let mut body = parsed(source, &self.body)
            .map_err(|why| CommandError::unknown(format!("--set cannot change this body: {why}")))?;
        for setting in settings {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(CommandError::unknown(format!("--set {setting}: expected NAME=VALUE")));
            };
            let Some(field) = source.fields.iter().find(|field| *field.name == *name) else {
                let names: Vec<_> = source.fields.iter().map(|field| &*field.name).collect();
                let meant = nearest(name, names.iter().copied()).map(|name| format!("; did you mean `{name}`?"));
                let (all, meant) = (names.join(", "), meant.unwrap_or_default());
                return Err(CommandError::unknown(format!(
                    "source `{}` has no field `{name}`: {all}{meant}",
                    source.name
                )));
            };
            let was = in_body(source, &body, field).unwrap_or_default();
            self.set_field(source, &mut body, field, parse_as_type(&was, value))?;
        }
        self.body = written(source, &body);
        self.set_proof(source)
    }

    /// Writes the time of now into a body that also has the signature over it.
    pub(super) fn set_time(&mut self, source: &Source, now: Timestamp) -> Result<(), CommandError> {
        let is_signed_there = source.verify.credential_places().iter().any(FieldLocation::is_in_body);
        let Some((path, time)) = source.verify.time_in_body(now).filter(|_| is_signed_there) else { return Ok(()) };
        let time = time.parse::<i64>().map_or_else(|_| Value::from(time), Value::from);
        self.set_in_body(source, vec![(path.to_vec(), time)])
    }

    /// Writes the sender's token and signature into the body, where they are there: everything else in it must be.
    fn set_proof(&mut self, source: &Source) -> Result<(), CommandError> {
        if let Some((path, token)) = source.verify.token_in_body() {
            let places = in_each_element(source, &self.body, path)?;
            let values = places.into_iter().map(|path| (path, Value::from(token.as_ref()))).collect();
            self.set_in_body(source, values)?;
        }
        self.set_signature(source)
    }

    /// Writes these values into the body. Where it has them already, its bytes stay as they are.
    fn set_in_body(&mut self, source: &Source, values: Vec<(Vec<String>, Value)>) -> Result<(), CommandError> {
        let mut body = parsed(source, &self.body).map_err(|why| {
            CommandError::unknown(format!("a value of the sender is in the body, which cannot be read: {why}"))
        })?;
        let was = body.clone();
        for (path, value) in values {
            set_at_path(&mut body, &path, Some(value)).map_err(CommandError::unknown)?;
        }
        if body != was {
            self.body = written(source, &body);
        }
        Ok(())
    }

    /// Writes the signature into the body, where the sender's is there.
    fn set_signature(&mut self, source: &Source) -> Result<(), CommandError> {
        let Some((path, signature)) = source.verify.signature_in_body(&self.body) else { return Ok(()) };
        self.set_in_body(source, vec![(path, signature.into())])
    }

    /// Writes the delivery id to the body, where the source reads it there.
    pub(super) fn set_delivery_id(&mut self, source: &Source) -> Result<(), CommandError> {
        match source.delivery.as_ref().map(|delivery| &delivery.at) {
            Some(FieldLocation::Body(_) | FieldLocation::Form(_)) => {
                let mut body = parsed(source, &self.body).map_err(|why| {
                    CommandError::unknown(format!("the delivery id is in the body, which cannot be read: {why}"))
                })?;
                let path = source.delivery.as_ref().and_then(|delivery| delivery.at.body_path()).unwrap_or_default();
                let path = in_first_element(source, path);
                set_at_path(&mut body, &path, Some(self.id.clone().into())).map_err(CommandError::unknown)?;
                self.body = written(source, &body);
            }
            // Those in a header or in the query are added when it is sent.
            Some(
                FieldLocation::Header(_)
                | FieldLocation::Query(_)
                | FieldLocation::Path
                | FieldLocation::Claim(_)
                | FieldLocation::Outer(_),
            )
            | None => {}
        }
        Ok(())
    }

    /// The headers of a genuine delivery, signed at `now`, with this private key if the sender has one.
    pub(super) fn headers(
        &self,
        source: &Source,
        now: Timestamp,
        key: Option<&SenderKeyPair>,
    ) -> Vec<(String, String)> {
        let mut headers = match key {
            Some(key) => source.verify.sign_by(&self.id, now, &self.body, &|message| key.sign(message)),
            None => source.verify.sign(&self.id, now, &self.body),
        };
        let mut add = |name: &str, value: &str| {
            if !headers.iter().any(|(known, _)| known == name) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        };
        if let Some(kind) = &source.kind {
            let json = envelope::inside(&self.body).unwrap_or_default();
            add(&kind.header, kind.of_body(&json).unwrap_or_else(|| kind.first()));
        }
        if let Some(FieldLocation::Header(name)) = source.delivery.as_ref().map(|delivery| &delivery.at) {
            add(name, &self.id);
        }
        for (name, value) in &self.headers {
            add(name, value);
        }
        if let Some(kind) =
            source.fields.kind_use().and_then(|_| github_kind::of_body(&envelope::inside(&self.body).ok()?))
        {
            add(github_kind::HEADER, &kind);
        }
        headers
    }

    /// The whole delivery, signed at `now`.
    fn signed(self, source: &Source, now: Timestamp) -> SampleDelivery {
        let query: Vec<_> = self.query(source).iter().map(|(name, value)| format!("{name}={value}")).collect();
        SampleDelivery { headers: self.headers(source, now, None), query: query.join("&"), body: self.body }
    }

    /// The parameters of the query string: fields, the delivery id and the sender's token, if they are there.
    pub(super) fn query(&self, source: &Source) -> Vec<(String, String)> {
        let id = match source.delivery.as_ref().map(|delivery| &delivery.at) {
            Some(FieldLocation::Query(name)) => Some((name.clone(), self.id.clone())),
            _ => None,
        };
        let token = source.verify.token_in_query().map(|(name, token)| (name.to_owned(), token.into_owned()));
        let digest = source.verify.digest_in_query(&self.body).map(|(name, digest)| (name.to_owned(), digest));
        let added: Vec<_> = id.into_iter().chain(token).chain(digest).collect();
        let own = self.query.iter().filter(|(known, _)| added.iter().all(|(name, _)| name != known)).cloned();
        own.chain(added.iter().cloned()).collect()
    }

    fn set_field(
        &mut self,
        source: &Source,
        body: &mut Value,
        field: &Field,
        value: Value,
    ) -> Result<(), CommandError> {
        let prefix = field.after.as_deref().unwrap_or("");
        let plain = match &value {
            Value::String(text) => format!("{prefix}{text}"),
            other => format!("{prefix}{other}"),
        };
        let value = match &field.in_base64_json {
            Some(path) => {
                let document = in_body(source, body, &outside(field)).as_ref().and_then(document_in_base64);
                let mut document = document.unwrap_or_default();
                set_at_path(&mut document, path, Some(value)).map_err(CommandError::unknown)?;
                return self.set_field(source, body, &outside(field), STANDARD.encode(document.to_string()).into());
            }
            None => value,
        };
        // Where it is, if it is in the body already.
        let place = field.places().find(|place| at_place(source, body, place).is_some()).unwrap_or(&field.at);
        match place {
            FieldLocation::Body(_) | FieldLocation::Outer(_) => {
                let path = in_document(source, place).unwrap_or_default();
                let value = if prefix.is_empty() { value } else { plain.into() };
                set_at_path(body, &path, Some(value)).map_err(CommandError::unknown)
            }
            FieldLocation::Form(name) => {
                set_at_path(body, std::slice::from_ref(name), Some(plain.into())).map_err(CommandError::unknown)
            }
            FieldLocation::Header(name) => {
                self.headers.retain(|(known, _)| known != name);
                self.headers.push((name.clone(), plain));
                Ok(())
            }
            FieldLocation::Query(name) => {
                self.query.retain(|(known, _)| known != name);
                self.query.push((name.clone(), plain));
                Ok(())
            }
            FieldLocation::Path | FieldLocation::Claim(_) => Ok(()), // fixed by the config, or by the token's issuer
        }
    }
}

/// A sample as its sender would send it, signed.
#[derive(Clone, Debug)]
pub struct SampleDelivery {
    /// The headers, in lower case.
    pub headers: Vec<(String, String)>,
    /// The query string.
    pub query: String,
    /// The body.
    pub body: Vec<u8>,
}

impl SampleDelivery {
    /// A new delivery that a source with this preset would accept. An error is a sentence.
    pub fn new(source: &Source, preset: Option<&str>, id: &str, now: Timestamp) -> Result<Self, String> {
        let made = DeliveryBuilder::sample(source, preset, id.to_owned(), now).map_err(|error| error.to_string())?;
        Ok(made.signed(source, now))
    }
}

/// Whether a delivery without this field is refused: an identity, a subject, an order or a route's action needs it.
fn is_needed(source: &Source, ix: FieldIndex) -> bool {
    let change = source.once.change.iter().flat_map(|change| change.of.iter().chain(&change.to).chain(&change.order));
    let named = source.once.per.iter().flat_map(|identity| match identity {
        Identity::Named(fields) => fields.as_slice(),
        Identity::Delivery | Identity::Message | Identity::Body | Identity::Signed | Identity::SignedText => &[],
    });
    let routes = source.routes.iter().flat_map(|route| match &route.group {
        Some(Group::Fields(fields)) => [fields.as_slice(), &route.needs],
        Some(Group::Fixed(_)) | None => [&[][..], &route.needs],
    });
    change.chain(named).chain(routes.flatten()).any(|needed| *needed == ix)
}

/// Fields that need a new value so that a sample is no duplicate: what a subject is changed to, and the last field of
/// each identity.
fn fresh_fields(source: &Source) -> Vec<FieldIndex> {
    let changed = source.once.change.iter().flat_map(|change| change.to.iter().copied());
    let named = source.once.per.iter().filter_map(|identity| match identity {
        Identity::Named(fields) => fields.last().copied(),
        Identity::Delivery | Identity::Message | Identity::Body | Identity::Signed | Identity::SignedText => None,
    });
    changed.chain(named).collect()
}

/// A new value of the same type.
fn fresh_value(was: Value, id: &str, now: Timestamp) -> Value {
    match was {
        Value::Number(_) => (now.0 / 1_000).into(),
        Value::String(text) if text.starts_with("sha256:") => format!("sha256:{}", hash(id)).into(),
        Value::String(_) => format!("sample-{}", &hash(id)[..8]).into(),
        other => other,
    }
}

fn hash(text: &str) -> String {
    hex::encode(Digest::of(text.as_bytes()).0)
}

/// RFC 3339, in whole seconds.
fn seconds(at: Timestamp) -> String {
    Timestamp(at.0 - at.0.rem_euclid(1_000_000)).to_string().replace(".000000", "")
}

/// A value from the command line, in the type of the value it replaces.
fn parse_as_type(was: &Value, text: &str) -> Value {
    let scalar = serde_json::from_str::<Value>(text).ok().filter(|read| !read.is_object() && !read.is_array());
    match (was, scalar) {
        (Value::String(_), Some(Value::String(quoted))) => quoted.into(),
        (Value::String(_), _) | (_, None) => text.into(),
        (_, Some(read)) => read,
    }
}

/// The field's value, if its place is in the body.
fn in_body(source: &Source, body: &Value, field: &Field) -> Option<Value> {
    let found = field.places().find_map(|place| at_place(source, body, place))?;
    match &field.in_base64_json {
        Some(path) => path.iter().try_fold(&document_in_base64(found)?, |at, part| inside(at, part)).cloned(),
        None => Some(found.clone()),
    }
}

/// The field that is the whole document in which this one's value is.
fn outside(field: &Field) -> Field {
    Field { in_base64_json: None, ..field.clone() }
}

fn document_in_base64(text: &Value) -> Option<Value> {
    serde_json::from_slice(&STANDARD.decode(text.as_str()?).ok()?).ok()
}

/// The value at this place, if it is in the body and is there.
fn at_place<'v>(source: &Source, body: &'v Value, place: &FieldLocation) -> Option<&'v Value> {
    let found = in_document(source, place)?.iter().try_fold(body, |at, part| inside(at, part));
    found.filter(|value| !value.is_null())
}

/// The path of a place in the whole body; where elements are events, that of the first element.
fn in_document(source: &Source, at: &FieldLocation) -> Option<Vec<String>> {
    match at {
        FieldLocation::Outer(path) => Some(path.clone()),
        _ => at.body_path().map(|path| in_first_element(source, path)),
    }
}

/// The body as JSON; a form is an object of texts. An error is a sentence.
fn parsed(source: &Source, body: &[u8]) -> Result<Value, String> {
    if *source.verify.format() != BodyFormat::Form {
        return serde_json::from_slice(body).map_err(|error| format!("this is not JSON: {error}"));
    }
    let pairs = form::pairs(body).ok_or("this is not a form: it is not percent-encoded properly, or it is too long")?;
    let text = |bytes: Cow<'_, [u8]>| String::from_utf8(bytes.into_owned()).map_err(|_| "the form is not UTF-8");
    let mut members = Map::new();
    for (name, value) in pairs {
        let (name, value) = (text(name)?, text(value)?);
        if members.contains_key(&name) {
            return Err(format!("the form has `{name}` twice"));
        }
        members.insert(name, value.into());
    }
    Ok(members.into())
}

/// The bytes of this body, as the sender of this source writes them.
fn written(source: &Source, body: &Value) -> Vec<u8> {
    if *source.verify.format() != BodyFormat::Form {
        return body.to_string().into_bytes();
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let members = body.as_object().into_iter().flatten();
    let pairs: Vec<_> = members.map(|(name, value)| (name.as_str(), text(value))).collect();
    form::encode(pairs.iter().map(|(name, value)| (*name, value.as_str()))).into_bytes()
}

/// The path of a value in the first element, where elements are events; otherwise that in the body.
fn in_first_element(source: &Source, path: &[String]) -> Vec<String> {
    let Some(each) = source.fields.each() else { return path.to_vec() };
    [each, &["0".to_owned()], path].concat()
}

/// The path of a value in each element of this body, where elements are events; otherwise that in the body.
fn in_each_element(source: &Source, body: &[u8], path: &[String]) -> Result<Vec<Vec<String>>, CommandError> {
    let Some(each) = source.fields.each() else { return Ok(vec![path.to_vec()]) };
    let body = parsed(source, body).map_err(|why| {
        CommandError::unknown(format!("the sender's token is in the body, which cannot be read: {why}"))
    })?;
    let elements = each.iter().try_fold(&body, |at, part| inside(at, part)).and_then(Value::as_array);
    let indexes = 0..elements.map_or(0, Vec::len);
    Ok(indexes.map(|index| [each, &[index.to_string()], path].concat()).collect())
}

fn inside<'v>(at: &'v Value, part: &str) -> Option<&'v Value> {
    match at {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    }
}

/// Sets the value at a path, creating objects on the way; without a value it only creates the objects.
fn set_at_path(body: &mut Value, path: &[String], value: Option<Value>) -> Result<(), String> {
    let mut at = body;
    for part in path {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        at = match at {
            Value::Object(members) => members.entry(part.as_str()).or_insert(Value::Null),
            Value::Array(list) => match part.parse::<usize>() {
                Ok(index) if index < list.len() => &mut list[index],
                Ok(index) if index == list.len() => {
                    list.push(Value::Null);
                    &mut list[index]
                }
                _ => return Err(format!("the body has a list where `{part}` should be")),
            },
            _ => return Err(format!("the body has no place for `{part}`: a value is in the way")),
        };
    }
    match value {
        Some(value) => *at = value,
        None if at.is_null() => *at = Value::Object(Map::new()),
        None => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id of the samples: some senders' ids must be UUIDs.
    const SAMPLE_ID: &str = "e76c6bd4-55c9-4987-8304-da1588d8988b";

    fn check(was: &str, path: &[&str], value: Value, expected: &str) {
        let mut body: Value = serde_json::from_str(was).unwrap();
        let path: Vec<_> = path.iter().map(|&part| part.to_owned()).collect();
        let put = set_at_path(&mut body, &path, Some(value)).map(|()| body.to_string());
        assert_eq!(put.unwrap_or_else(|error| error), expected);
    }

    #[test]
    fn a_value_is_set_at_its_path_and_the_way_is_made() {
        check("{}", &["a", "b"], 1.into(), r#"{"a":{"b":1}}"#);
        check(r#"{"a":[{"b":1}]}"#, &["a", "0", "b"], 2.into(), r#"{"a":[{"b":2}]}"#);
        check(r#"{"a":[1]}"#, &["a", "1"], 2.into(), r#"{"a":[1,2]}"#);
        check(r#"{"a":null}"#, &["a", "b"], true.into(), r#"{"a":{"b":true}}"#);
        check(r#"{"a":"x"}"#, &["a", "b"], 1.into(), "the body has no place for `b`: a value is in the way");
        check(r#"{"a":[]}"#, &["a", "x"], 1.into(), "the body has a list where `x` should be");
    }

    #[test]
    fn a_value_is_of_the_kind_that_was_there() {
        for (was, text, expected) in [
            (json!("latest"), "5", json!("5")),
            (json!("latest"), "\"5\"", json!("5")),
            (json!(1), "5", json!(5)),
            (json!(1), "v5", json!("v5")),
            (Value::Null, "5", json!(5)),
            (Value::Null, "true", json!(true)),
            (Value::Null, "main", json!("main")),
            (Value::Null, "{}", json!("{}")),
        ] {
            assert_eq!(parse_as_type(&was, text), expected, "{was} {text}");
        }
    }

    fn source(text: &str) -> (std::sync::Arc<Source>, Option<std::sync::Arc<str>>) {
        // Schemes differ in what a secret looks like: the first one that the config accepts. The first is a key in base64
        // and in hex, too.
        let secrets = ["5ec4e7c05ec4e7c05ec4e7c05ec4e7c0", "whsec_c2VjcmV0", "user:password"];
        let configs = secrets.map(|secret| {
            let env = |name: &str| Some(if name.ends_with("_PATH") { format!("/{secret}") } else { secret.to_owned() });
            crate::config::parse(text, "hookonce.toml", std::path::Path::new("/"), &env)
        });
        let config = configs.into_iter().reduce(Result::or).unwrap().unwrap();
        let source = config.sources[0].clone();
        let preset = config.notes[&source.name].preset.clone();
        (source, preset)
    }

    #[test]
    fn every_preset_has_a_sample_that_is_judged_to_be_an_event() {
        // The key of a sender that signs with a private one is not here.
        let private = |key: &String| ["public_key", "audience", "topic", "webhook_id"].contains(&key.as_str());
        let signed_here = |preset: &&presets::Preset| !preset.sender().needs.iter().any(private);
        for preset in presets::PRESETS.iter().filter(signed_here) {
            let file = format!("{{ file = \"{}.secret\" }}", preset.name);
            check_accepted(&preset.example().replace(&file, "{ env = \"S\" }"), &[]);
        }
    }

    #[test]
    fn a_sample_is_sent_as_a_caller_there_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("acme"), "a secret of theirs\n").unwrap();
        let folder = dir.path().display();
        check_accepted(&format!("[source.x]\npreset = \"ci-ingestion\"\nsecret = {{ dir = \"{folder}\" }}"), &[]);
    }

    #[test]
    fn a_sample_has_what_its_first_route_asks_for() {
        let route = "[[source.x.route]]\nwhen = 'package == \"my-app\" && \"latest\" == tag && exists(sha)'";
        check_accepted(&format!("[source.x]\npreset = \"github-package\"\nsecret = {{ env = \"S\" }}\n{route}"), &[]);
    }

    #[test]
    fn a_sample_is_made_from_the_fields_of_any_source() {
        let text = "[source.x]\nverify = { scheme = \"bearer\", secret = { env = \"S\" } }\ndelivery = \"body.meta.id\"\n\
            when = 'tag == \"main\" && who == \"me\" && n == \"5\"'\n\
            fields = { tag = \"body.a.tag\", who = { at = \"header.x-who\", after = \"user \" }, n = \"query.n\", hash = \"body.hash\" }\n\
            once = { per = [\"delivery\", [\"tag\", \"hash\"]] }";
        check_accepted(text, &["tag=main", "who=me", "n=5"]);
    }

    #[test]
    fn a_sample_of_a_source_with_elements_has_one_that_it_would_accept() {
        let source = |each: &str| {
            format!(
                "[source.x]\nverify = {{ scheme = \"token\", secret = {{ env = \"S\" }}, at = \"body.token\" }}\n\
                 each = \"{each}\"\ndelivery = \"body.id\"\nwhen = 'tag == \"main\"'\nfields = {{ tag = \"body.tag\" }}"
            )
        };
        check_accepted(&source("body"), &[]);
        check_accepted(&source("body.a.b"), &["tag=main"]);
    }

    fn check_accepted(text: &str, settings: &[&str]) {
        use crate::decide::judge::{Verdict, judge};
        let (source, preset) = source(text);
        let now = Timestamp::parse("2026-02-07T16:20:40Z").unwrap();
        let settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut delivery = DeliveryBuilder::sample(&source, preset.as_deref(), SAMPLE_ID.into(), now).unwrap();
        delivery.set(&source, &settings).unwrap();
        let SampleDelivery { headers, query, body } = delivery.signed(&source, now);
        let headers: Vec<_> = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        let body = body.into();
        let delivery = crate::decide::delivery::Delivery {
            path: source.path.shown(),
            query: &query,
            headers: &crate::decide::delivery::borrow_headers(&headers),
            body: &body,
            at: now,
            wall: now,
        };
        let verdict = judge(&source, &delivery, &mut || crate::decide::id::EventId([1; 16]));
        let Verdict::Events(events) = verdict else { panic!("{verdict:?}: {}", String::from_utf8_lossy(&body)) };
        assert_eq!(events[0].event.delivery_id.as_deref(), source.delivery.as_ref().map(|_| SAMPLE_ID));
    }
}
