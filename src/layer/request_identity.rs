//! The identity of requests: the parts of a request that are compared, and the keys made of them.
//!
//! Method, path and query are part of every key: the same key on another path is another request.

use crate::decide::claim::{IdentityKey, MatchedBy};
use crate::decide::delivery::DeliveryRejection;
use crate::decide::delivery::{Delivery, borrow_headers};
use crate::decide::field::{ExtractedFields, Field, FieldIndex, FieldLocation, FieldSet, StoredFields};
use crate::decide::id::{Digest, Key};
use crate::decide::identity::idempotency_key;
use crate::decide::identity::key;
use crate::decide::identity::key::KeyPart;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::decide::verify::VerificationScheme;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, request};
use std::sync::Arc;

/// The header of the IETF draft. Its value is a quoted string; many clients omit the quotes.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Headers that hold secrets: the store gets only their digest.
const SECRET: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];

/// An identity: what makes two requests the same. Created by [`header`], [`query`], [`json`], [`body`] and [`fields`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestIdentity(Vec<IdentityPiece>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum IdentityPiece {
    At(FieldLocation),
    Body,
}

/// The value of a header.
///
/// # Panics
/// If the name is not a valid header name.
pub fn header(name: &str) -> RequestIdentity {
    let name = HeaderName::try_from(name).unwrap_or_else(|_| panic!("`{name}` cannot be the name of a header"));
    RequestIdentity(vec![IdentityPiece::At(FieldLocation::Header(name.as_str().to_owned()))])
}

/// The value of a query parameter.
pub fn query(name: &str) -> RequestIdentity {
    RequestIdentity(vec![IdentityPiece::At(FieldLocation::Query(name.to_owned()))])
}

/// The value at a path in a JSON body, such as `event.hash` or `items.0.id`.
///
/// # Panics
/// If the path is invalid.
pub fn json(path: &str) -> RequestIdentity {
    let place = FieldLocation::parse(&format!("body.{path}"));
    RequestIdentity(vec![IdentityPiece::At(
        place.unwrap_or_else(|why| panic!("`{path}` is not a path in a body: {why}")),
    )])
}

/// The whole body, byte by byte.
pub fn body() -> RequestIdentity {
    RequestIdentity(vec![IdentityPiece::Body])
}

/// A combination: two requests are the same if they agree in each part.
///
/// # Panics
/// If it is empty.
pub fn fields(all: impl IntoIterator<Item = RequestIdentity>) -> RequestIdentity {
    let pieces: Vec<_> = all.into_iter().flat_map(|identity| identity.0).collect();
    assert!(!pieces.is_empty(), "an identity needs at least one field");
    RequestIdentity(pieces)
}

/// All identities of a layer, resolved.
#[derive(Debug)]
pub(super) struct RequestIdentities {
    scope: Arc<str>,
    fields: FieldSet,
    per: Vec<ResolvedIdentity>,
    by: Vec<ResolvedIdentity>,
    /// Whether an identity reads the body.
    reads_body: bool,
}

#[derive(Debug)]
struct ResolvedIdentity {
    pieces: Vec<ResolvedPiece>,
    same: MatchedBy,
    /// Whether it covers the body itself; otherwise another body under the same key is another request.
    minds_body: bool,
}

/// A piece of an identity.
#[derive(Debug)]
enum ResolvedPiece {
    Field(FieldIndex, Arc<str>),
    Raw(HeaderName),
    Body,
}

#[derive(Debug)]
pub(super) struct RequestKeys {
    pub(super) keys: Vec<IdentityKey>,
    pub(super) fields: StoredFields,
    pub(super) name: Option<Arc<str>>,
    pub(super) digest: Digest,
}

impl RequestIdentities {
    pub(super) fn new(scope: &Arc<str>, per: &[RequestIdentity], by: &[RequestIdentity]) -> Self {
        let mut fields: Vec<Field> = Vec::new();
        let mut make = |identity: &RequestIdentity| made(identity, &mut fields);
        let default = [header(IDEMPOTENCY_KEY)];
        let per = if per.is_empty() { &default[..] } else { per };
        let (per, by): (Vec<_>, Vec<_>) = (per.iter().map(&mut make).collect(), by.iter().map(&mut make).collect());
        let reads_body = fields.iter().any(|field| matches!(field.at, FieldLocation::Body(_)));
        Self { scope: scope.clone(), fields: FieldSet::new(fields, None), per, by, reads_body }
    }

    /// Whether another body under this identity is another request.
    pub(super) fn compares_body(&self, same: &MatchedBy) -> bool {
        self.per.iter().any(|made| made.same == *same && made.minds_body)
    }

    /// Whether the request has no key; never true if the key may be in the body.
    pub(super) fn lacks_key(&self, request: &request::Parts, at: Timestamp) -> bool {
        let head = || self.recognise(request, &Bytes::new(), at);
        !self.reads_body && matches!(head(), Err(DeliveryRejection::MissingField(_)))
    }

    pub(super) fn recognise(
        &self,
        request: &request::Parts,
        body: &Bytes,
        at: Timestamp,
    ) -> Result<RequestKeys, DeliveryRejection> {
        let headers = self.headers(&request.headers)?;
        let (path, query) = (request.uri.path(), request.uri.query().unwrap_or(""));
        let delivery = Delivery { path, query, headers: &borrow_headers(&headers), body, at, wall: at };
        let found = self.fields.read(&VerificationScheme::none().verify(&delivery)?)?;
        let digest = Digest::of(body);
        let seen = KeyPartSource { found: &found, headers: &request.headers, digest: &digest };
        let caller = self.caller(&seen)?;
        let where_to = [
            KeyPart::text("method", request.method.as_str()),
            KeyPart::text("path", path),
            KeyPart::text("query", query),
        ];
        let mut keys = Vec::with_capacity(self.per.len());
        for made in &self.per {
            let mut parts = where_to.to_vec();
            parts.extend(caller.as_ref().map(|caller| KeyPart::bytes("caller", &caller.0)));
            made.pieces.iter().try_for_each(|piece| seen.is_there(piece))?;
            let digests = made.pieces.iter().map(|piece| seen.raw(piece)).collect::<Result<Vec<_>, _>>()?;
            for (piece, digest) in made.pieces.iter().zip(&digests) {
                parts.push(seen.part(piece, digest)?);
            }
            keys.push(IdentityKey::new(made.same.clone(), key::key(&self.scope, "once", &parts)));
        }
        Ok(RequestKeys { keys, fields: self.kept(&found), name: self.name(&found), digest })
    }

    /// Only the parts that an identity uses, and the content type if it reads the body.
    fn headers(&self, headers: &HeaderMap) -> Result<Vec<(String, Vec<u8>)>, DeliveryRejection> {
        let used = |name: &HeaderName| {
            (self.reads_body && name == http::header::CONTENT_TYPE)
                || self.fields.iter().any(|field| matches!(&field.at, FieldLocation::Header(at) if at == name.as_str()))
        };
        let used = headers.iter().filter(|(name, _)| used(name));
        used.map(|(name, value)| Ok((name.to_string(), plain(name, value.as_bytes())?))).collect()
    }

    /// The caller as a digest: one caller never gets another's response, and no credential reaches the store.
    fn caller(&self, seen: &KeyPartSource<'_>) -> Result<Option<Digest>, DeliveryRejection> {
        if self.by.is_empty() {
            return Ok(None);
        }
        let pieces: Vec<_> = self.by.iter().flat_map(|made| &made.pieces).collect();
        let digests: Vec<_> = pieces.iter().map(|piece| seen.raw(piece).unwrap_or(Digest([0; 32]))).collect();
        let parts = pieces.iter().zip(&digests).map(|(piece, digest)| {
            // Requests without credentials are one caller of their own.
            seen.part(piece, digest).or_else(|refusal| match refusal {
                DeliveryRejection::MissingField(_) => Ok(KeyPart::bytes("nobody", &[])),
                refusal => Err(refusal),
            })
        });
        Ok(Some(key::value(&parts.collect::<Result<Vec<_>, _>>()?)))
    }

    /// The fields to show to operators: those of `per` that hold no secret.
    fn kept(&self, found: &ExtractedFields) -> StoredFields {
        let pieces = self.per.iter().flat_map(|made| &made.pieces);
        let mut kept: Vec<_> = pieces
            .filter_map(|piece| match piece {
                ResolvedPiece::Field(ix, name) => Some((name.clone(), found.value(*ix)?.clone())),
                ResolvedPiece::Raw(_) | ResolvedPiece::Body => None,
            })
            .collect();
        kept.dedup_by(|a, b| a.0 == b.0);
        kept.into_iter().collect()
    }

    /// The client's id of the request: the first header of `per`, if it is short enough.
    fn name(&self, found: &ExtractedFields) -> Option<Arc<str>> {
        let ix = self.per.iter().flat_map(|made| &made.pieces).find_map(|piece| match piece {
            ResolvedPiece::Field(ix, _) if matches!(self.fields.get(*ix).at, FieldLocation::Header(_)) => Some(*ix),
            _ => None,
        })?;
        match found.value(ix)? {
            crate::decide::field::FieldValue::Text(text) if text.len() <= limits::DELIVERY_ID_BYTES_MAX => {
                Some(text.clone())
            }
            _ => None,
        }
    }
}

fn made(identity: &RequestIdentity, fields: &mut Vec<Field>) -> ResolvedIdentity {
    let mut names = Vec::new();
    let pieces = identity.0.iter().map(|piece| match piece {
        IdentityPiece::Body => {
            names.push("body".to_owned());
            ResolvedPiece::Body
        }
        IdentityPiece::At(FieldLocation::Header(name)) if SECRET.contains(&name.as_str()) => {
            names.push(format!("header.{name}"));
            ResolvedPiece::Raw(HeaderName::try_from(name).expect("the name was checked by `header`"))
        }
        IdentityPiece::At(place) => {
            let name: Arc<str> = place.to_string().into();
            names.push(name.to_string());
            ResolvedPiece::Field(index(fields, place, &name), name)
        }
    });
    let pieces: Vec<_> = pieces.collect();
    let same =
        if identity.0 == [IdentityPiece::Body] { MatchedBy::Body } else { MatchedBy::Fields(names.join("+").into()) };
    let in_body =
        |piece: &IdentityPiece| matches!(piece, IdentityPiece::Body | IdentityPiece::At(FieldLocation::Body(_)));
    ResolvedIdentity { pieces, same, minds_body: !identity.0.iter().any(in_body) }
}

fn index(fields: &mut Vec<Field>, place: &FieldLocation, name: &Arc<str>) -> FieldIndex {
    let at = fields.iter().position(|field| field.name == *name).unwrap_or_else(|| {
        fields.push(Field { trim: true, ..Field::at(name, place.clone()) });
        fields.len() - 1
    });
    FieldIndex(u16::try_from(at).expect("fewer than 65,536 locations"))
}

/// The source of a key's parts.
struct KeyPartSource<'r> {
    found: &'r ExtractedFields,
    headers: &'r HeaderMap,
    digest: &'r Digest,
}

impl KeyPartSource<'_> {
    /// The digest of a header that holds a secret; `None` for other parts.
    fn raw(&self, piece: &ResolvedPiece) -> Result<Digest, DeliveryRejection> {
        let ResolvedPiece::Raw(name) = piece else { return Ok(Digest([0; 32])) };
        let values: Vec<_> = self.headers.get_all(name).iter().collect();
        if values.is_empty() {
            return Err(DeliveryRejection::MissingField(name.as_str().into()));
        }
        let parts: Vec<_> = values.iter().map(|value| KeyPart::bytes("value", value.as_bytes())).collect();
        Ok(key::value(&parts))
    }

    /// Rejects a blank header of an identity, which all clients that leave it empty would share. [`part`](Self::part)
    /// does so for other parts.
    fn is_there(&self, piece: &ResolvedPiece) -> Result<(), DeliveryRejection> {
        match piece {
            ResolvedPiece::Raw(name)
                if self.headers.get_all(name).iter().all(|value| value.as_bytes().trim_ascii().is_empty()) =>
            {
                Err(DeliveryRejection::MissingField(name.as_str().into()))
            }
            ResolvedPiece::Raw(_) | ResolvedPiece::Field(..) | ResolvedPiece::Body => Ok(()),
        }
    }

    fn part<'a>(&'a self, piece: &'a ResolvedPiece, raw: &'a Digest) -> Result<KeyPart<'a>, DeliveryRejection> {
        match piece {
            ResolvedPiece::Body => Ok(KeyPart::bytes("body", &self.digest.0)),
            ResolvedPiece::Raw(name) if self.headers.contains_key(name) => Ok(KeyPart::bytes(name.as_str(), &raw.0)),
            ResolvedPiece::Raw(name) => Err(DeliveryRejection::MissingField(name.as_str().into())),
            ResolvedPiece::Field(ix, name) => {
                let value = self.found.value(*ix).ok_or_else(|| DeliveryRejection::MissingField(name.clone()))?;
                Ok(KeyPart::field(name, value))
            }
        }
    }
}

/// The value of a header; `Idempotency-Key` is unquoted first.
fn plain(name: &HeaderName, value: &[u8]) -> Result<Vec<u8>, DeliveryRejection> {
    if name.as_str() != IDEMPOTENCY_KEY {
        return Ok(value.to_vec());
    }
    match idempotency_key::read(value) {
        Ok(key) => Ok(key.as_bytes().to_vec()),
        Err(DeliveryRejection::KeyMissing) => Ok(Vec::new()),
        Err(refusal) => Err(refusal),
    }
}

/// The key of [`Once::run`](super::Once::run).
pub(super) fn named(scope: &str, name: &str) -> Key {
    key::key(scope, "run", &[KeyPart::text("key", name)])
}
