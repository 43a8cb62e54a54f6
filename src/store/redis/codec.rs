//! Encoding and decoding of stored values. What cannot be decoded is `None`, or a damaged event: never another value.

use super::dictionaries::DictionaryOrigin;
use crate::decide::claim::{MatchedBy, Payload};
use crate::decide::event::Receipt;
use crate::decide::id::{DeliveryIdDigest, Digest, EventId};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{EventRow, KeyOwner, SubjectRegister};
use crate::decide::store_clock::{AgreedClock, LeaseExtension};
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::AttemptRecord;
use crate::store::compression;
use crate::store::compression::{BodyDictionary, CompressedBody, DictionaryId};
use crate::store::inspect::QuarantinedMessage;
use crate::store::optimistic::RecordVersion;
use crate::store::row;
use crate::store::row::{CellValue, EVENT_COLUMNS, EventCell, EventColumn, RowToWrite};
use crate::store::{DuplicateSighting, SourceRetention, StoredValue};
use bytes::Bytes;

const NULL: u8 = 0;
const NUMBER: u8 = 1;
const TEXT: u8 = 2;
const BYTES: u8 = 3;
/// Begins a payload whose body is packed with a dictionary: the dictionary's name follows, then the payload as it is
/// without one. The first release calls such a payload damaged. `write.lua` knows this byte, too.
const WITH_DICTIONARY: u8 = 4;

/// Writes one Redis record: its cells, each with its type, one after another.
#[derive(Default)]
struct RedisRecordEncoder(Vec<u8>);

impl RedisRecordEncoder {
    fn begun(version: RecordVersion) -> Self {
        Self(version.0.to_be_bytes().to_vec())
    }

    fn length(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn null(&mut self) {
        self.0.push(NULL);
    }

    fn number(&mut self, number: impl Into<i64>) {
        let number: i64 = number.into();
        self.0.push(NUMBER);
        self.length(((number << 1) ^ (number >> 63)).cast_unsigned()); // zigzag: small numbers of either sign are short
    }

    fn run(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.length(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.run(TEXT, text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.run(BYTES, bytes);
    }

    fn cell(&mut self, cell: &EventCell<'_>) {
        match cell {
            EventCell::Null => self.null(),
            EventCell::Number(number) => self.number(*number),
            EventCell::Text(text) => self.text(text),
            EventCell::Bytes(bytes) => self.bytes(bytes),
        }
    }

    fn payload(&mut self, headers_digest: &[u8], headers: &str, body: &CompressedBody<'_>) {
        self.bytes(headers_digest);
        self.text(headers);
        self.maybe(body.unpacked(), Self::number);
        self.bytes(body.bytes());
    }

    fn maybe<T>(&mut self, cell: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match cell {
            Some(cell) => write(self, cell),
            None => self.null(),
        }
    }
}

/// Decodes cells. After an invalid one, nothing more is read.
struct CellDecoder<'b>(&'b [u8]);

impl<'b> CellDecoder<'b> {
    fn length(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn run(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.length()?).ok()?;
        let (run, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(run)
    }

    fn cell(&mut self) -> Option<CellValue<'b>> {
        let (tag, rest) = self.0.split_first()?;
        self.0 = rest;
        match *tag {
            NULL => Some(CellValue::Null),
            NUMBER => {
                let number = self.length()?;
                Some(CellValue::Number((number >> 1).cast_signed() ^ -(number & 1).cast_signed()))
            }
            TEXT => Some(std::str::from_utf8(self.run()?).map_or(CellValue::Other, CellValue::Text)),
            BYTES => self.run().map(CellValue::Bytes),
            _ => None,
        }
    }

    fn number<T: TryFrom<i64>>(&mut self) -> Option<T> {
        match self.cell()? {
            CellValue::Number(number) => T::try_from(number).ok(),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<&'b str> {
        match self.cell()? {
            CellValue::Text(text) => Some(text),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        match self.cell()? {
            CellValue::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// An empty cell, or this.
    #[expect(clippy::option_option, reason = "an empty cell is not a damaged one")]
    fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.0.first() == Some(&NULL) {
            self.0 = &self.0[1..];
            return Some(None);
        }
        read(self).map(Some)
    }
}

fn counter(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// An event's row: its version, then its cells. Trailing cells with the default value of their column are left out:
/// this is how the first release wrote its rows.
pub(super) fn row(row: &EventRow, version: RecordVersion) -> Vec<u8> {
    let cells: Vec<_> = RowToWrite::from(row).cells(EVENT_COLUMNS).collect();
    let left_out = |(column, cell): &(&EventColumn, &EventCell<'_>)| column.absent == Some(cell.value());
    let left_out = EVENT_COLUMNS.iter().zip(&cells).rev().take_while(left_out).count();
    let mut out = RedisRecordEncoder::begun(version);
    cells[..cells.len() - left_out].iter().for_each(|cell| out.cell(cell));
    out.0
}

struct RedisRowCells<'b>(Vec<CellValue<'b>>);

impl row::StoredRow for RedisRowCells<'_> {
    fn cell(&self, place: usize) -> CellValue<'_> {
        let absent = || EVENT_COLUMNS.get(place).and_then(|column| column.absent);
        self.0.get(place).copied().or_else(absent).unwrap_or(CellValue::Other)
    }
}

/// The event with this id, and its version. A row that holds another id is damaged too.
pub(super) fn read_row(id: EventId, bytes: &[u8]) -> (row::DecodedRow, RecordVersion) {
    let (version, rest) =
        bytes.split_first_chunk::<8>().map_or((0, &[][..]), |(v, rest)| (u64::from_be_bytes(*v), rest));
    let mut cells = CellDecoder(rest);
    let mut all: Vec<_> = std::iter::from_fn(|| cells.cell()).collect();
    if all.first() != Some(&CellValue::Bytes(&id.0)) {
        all = vec![CellValue::Bytes(&id.0)];
    }
    (row::read(&RedisRowCells(all)), RecordVersion(version))
}

/// Flag: the key is an alias.
const ALIAS: u8 = 1;
/// Flag: the digest of a delivery id follows.
const ID_DIGEST: u8 = 2;

/// Encodes a key's owner.
pub(super) fn held(held: &KeyOwner) -> Vec<u8> {
    let digest = held.id_digest.map(|digest| digest.0);
    let flags = if held.alias { ALIAS } else { 0 } | if digest.is_some() { ID_DIGEST } else { 0 };
    let digest = digest.as_ref().map_or(&[][..], |digest| digest);
    [&held.event.0[..], &[flags], digest, held.same.word().as_bytes()].concat()
}

/// Decodes a key's owner.
pub(super) fn read_held(bytes: &[u8]) -> Option<KeyOwner> {
    let (event, rest) = bytes.split_first_chunk::<16>()?;
    let (flags, rest) = rest.split_first()?;
    let (id_digest, word) = match rest.split_first_chunk::<8>() {
        Some((digest, word)) if flags & ID_DIGEST != 0 => (Some(DeliveryIdDigest(*digest)), word),
        _ => (None, rest),
    };
    let same = MatchedBy::parse(std::str::from_utf8(word).unwrap_or_default()); // for display only
    Some(KeyOwner { event: EventId(*event), same, alias: flags & ALIAS != 0, id_digest })
}

/// Encodes a recipe: what a scope's identities are made of, and since when.
pub(super) fn recipe(recipe: &IdentityRecipe) -> Vec<u8> {
    let since = recipe.since.map(|at| format!("\n{}", at.0)).unwrap_or_default();
    format!("{}{since}", recipe.once).into_bytes()
}

/// Decodes the recipe of this scope.
pub(super) fn read_recipe(scope: &[u8], bytes: &[u8]) -> IdentityRecipe {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (scope, all) = (text(scope), text(bytes));
    match all.split_once('\n').map(|(once, since)| (once, since.parse())) {
        Some((once, Ok(since))) => IdentityRecipe { scope, once: once.to_owned(), since: Some(Timestamp(since)) },
        _ => IdentityRecipe { scope, once: all, since: None },
    }
}

/// Encodes the retention of a source.
pub(super) fn retention(row: &SourceRetention) -> Vec<u8> {
    let (keep, body, seen_at) = row.numbers();
    let mut out = RedisRecordEncoder::default();
    out.maybe(keep, RedisRecordEncoder::number);
    out.number(body);
    out.number(seen_at);
    out.0
}

/// Decodes the retention of this source. An invalid one is `None`: nothing is forgotten by it.
pub(super) fn read_retention(source: &[u8], bytes: &[u8]) -> Option<SourceRetention> {
    let mut cells = CellDecoder(bytes);
    let numbers = (cells.maybe(CellDecoder::number)?, cells.number()?, cells.number()?);
    Some(SourceRetention::of_numbers(std::str::from_utf8(source).ok()?, numbers))
}

/// Encodes the nodes' agreement on the store's clock.
pub(super) fn agreed_clock(agreed: AgreedClock) -> Vec<u8> {
    let micros = |length: Duration| i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    let mut out = RedisRecordEncoder::default();
    out.number(micros(agreed.ahead));
    out.number(agreed.reached.0);
    out.maybe(agreed.held.map(|held| held.last.0), RedisRecordEncoder::number);
    out.maybe(agreed.held.map(|held| micros(held.by)), RedisRecordEncoder::number);
    out.maybe(agreed.held.map(|held| held.until.0), RedisRecordEncoder::number);
    out.0
}

/// Decodes it.
pub(super) fn read_agreed_clock(bytes: &[u8]) -> Option<AgreedClock> {
    let mut cells = CellDecoder(bytes);
    let (ahead, reached): (u64, _) = (cells.number()?, Timestamp(cells.number()?));
    let (last, by, until) = (
        cells.maybe(CellDecoder::number)?,
        cells.maybe(CellDecoder::number::<u64>)?,
        cells.maybe(CellDecoder::number)?,
    );
    let held = last.zip(by).zip(until).map(|((last, by), until)| LeaseExtension {
        last: Timestamp(last),
        by: Duration::from_micros(by),
        until: Timestamp(until),
    });
    Some(AgreedClock { ahead: Duration::from_micros(ahead), reached, held })
}

/// Encodes a register.
pub(super) fn register(register: &SubjectRegister, version: RecordVersion) -> Vec<u8> {
    let mut out = RedisRecordEncoder::begun(version);
    out.bytes(&register.value.0);
    out.maybe(register.order, RedisRecordEncoder::number);
    out.number(u8::from(register.strict));
    out.bytes(&register.event.0);
    if let Some(note) = &register.note {
        out.text(note);
    }
    out.0
}

/// Decodes a register.
pub(super) fn read_register(bytes: &[u8]) -> Option<(SubjectRegister, RecordVersion)> {
    let (version, rest) = bytes.split_first_chunk::<8>()?;
    let mut cells = CellDecoder(rest);
    let register = SubjectRegister {
        value: Digest(cells.bytes()?.try_into().ok()?),
        order: cells.maybe(CellDecoder::number)?,
        strict: cells.number::<u8>()? == 1,
        event: EventId(cells.bytes()?.try_into().ok()?),
        note: cells.text().map(Into::into),
    };
    Some((register, RecordVersion(u64::from_be_bytes(*version))))
}

/// Encodes a slot.
pub(super) fn slot(holder: EventId, version: RecordVersion) -> Vec<u8> {
    [&version.0.to_be_bytes()[..], &holder.0].concat()
}

/// Decodes a slot's holder.
pub(super) fn read_slot(bytes: &[u8]) -> Option<(EventId, RecordVersion)> {
    let (version, rest) = bytes.split_first_chunk::<8>()?;
    Some((EventId(rest.try_into().ok()?), RecordVersion(u64::from_be_bytes(*version))))
}

/// Encodes headers and body.
pub(super) fn payload(headers: &[(String, String)], packed: &CompressedBody<'_>) -> Vec<u8> {
    let headers = row::headers_cell(headers);
    let mut out = RedisRecordEncoder(Vec::with_capacity(headers.len() + packed.bytes().len() + 64));
    if let Some(dictionary) = packed.dictionary() {
        out.0.push(WITH_DICTIONARY);
        out.0.extend(dictionary_name(dictionary));
    }
    out.payload(&Digest::of(headers.as_bytes()).0, &headers, packed);
    out.0
}

/// A dictionary's name as bytes: the first of its digest.
pub(super) fn dictionary_name(id: DictionaryId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// Splits a payload into its dictionary and what it is without one.
fn split_dictionary(bytes: &[u8]) -> (Option<DictionaryId>, &[u8]) {
    match bytes.split_first().and_then(|(first, rest)| Some((first, rest.split_first_chunk::<8>()?))) {
        Some((&WITH_DICTIONARY, (name, rest))) => (Some(DictionaryId(i64::from_be_bytes(*name))), rest),
        _ => (None, bytes),
    }
}

/// The dictionary without which the body of this payload, or of one that begins so, cannot be read.
pub(super) fn dictionary_of(payload: &[u8]) -> Option<DictionaryId> {
    split_dictionary(payload).0
}

/// A payload whose body, of this digest, is packed without the dictionary of which these are the copies. What is damaged
/// stays so: without its dictionary it cannot become what the digest says.
pub(super) fn packed_anew(payload: &[u8], digest: Option<Digest>, copies: &[BodyDictionary]) -> Vec<u8> {
    let (_, rest) = split_dictionary(payload);
    let mut cells = CellDecoder(rest);
    let mut unpacked = || {
        let (of_headers, text) = (cells.bytes()?, cells.text()?);
        let (length, body) = (cells.maybe(CellDecoder::number)?, cells.bytes()?);
        let with = |copy: &BodyDictionary| compression::unpack_with(body, length, Some(&copy.bytes));
        let body = copies.iter().filter_map(with).find(|body| Some(Digest::of(body)) == digest)?;
        let mut out = RedisRecordEncoder::default();
        out.payload(of_headers, text, &CompressedBody::of(&body));
        Some(out.0)
    };
    unpacked().unwrap_or_else(|| rest.to_vec())
}

/// Encodes a copy of a dictionary, preceded by its digest.
pub(super) fn dictionary(dictionary: &BodyDictionary) -> Vec<u8> {
    [&dictionary.digest.0[..], &dictionary.bytes].concat()
}

/// Decodes a copy of this dictionary of this source, if it is as it was written.
pub(super) fn read_dictionary(id: DictionaryId, source: &str, bytes: &[u8]) -> Option<BodyDictionary> {
    let (digest, bytes) = bytes.split_first_chunk::<32>()?;
    BodyDictionary::stored(source, bytes, Digest(*digest)).filter(|dictionary| dictionary.id == id)
}

/// Encodes what is known of a dictionary besides its bytes.
pub(super) fn dictionary_origin(origin: &DictionaryOrigin) -> Vec<u8> {
    let mut out = RedisRecordEncoder::default();
    out.text(&origin.source);
    out.bytes(&origin.event.0);
    out.number(origin.arrived.0);
    out.0
}

/// Decodes it.
pub(super) fn read_dictionary_origin(bytes: &[u8]) -> Option<DictionaryOrigin> {
    let mut cells = CellDecoder(bytes);
    let origin = DictionaryOrigin {
        source: cells.text()?.into(),
        event: EventId(cells.bytes()?.try_into().ok()?),
        arrived: Timestamp(cells.number()?),
    };
    cells.0.is_empty().then_some(origin)
}

/// Encodes headers alone.
pub(super) fn headers(headers: &[(String, String)]) -> Vec<u8> {
    let headers = row::headers_cell(headers);
    let mut out = RedisRecordEncoder(Vec::with_capacity(headers.len() + 64));
    out.bytes(&Digest::of(headers.as_bytes()).0);
    out.text(&headers);
    out.0
}

/// Decodes headers, if their digest matches.
pub(super) fn read_headers(bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let mut cells = CellDecoder(bytes);
    let (digest, text) = (cells.bytes()?, cells.text()?);
    let whole = Digest::of(text.as_bytes()).0 == *digest && cells.0.is_empty();
    row::headers(text).filter(|_| whole)
}

/// Decodes a payload, if it matches this digest, with its dictionary if it needs one.
pub(super) fn read_payload(
    bytes: &[u8],
    digest: Option<Digest>,
    dictionary: Option<&BodyDictionary>,
) -> StoredValue<Payload> {
    let (needed, rest) = split_dictionary(bytes);
    let dictionary = dictionary.filter(|dictionary| Some(dictionary.id) == needed);
    if needed.is_some() && dictionary.is_none() {
        return StoredValue::Damaged;
    }
    let mut cells = CellDecoder(rest);
    let mut read = || {
        let (of_headers, text) = (cells.bytes()?, cells.text()?);
        let unpacked = cells.maybe(CellDecoder::number)?;
        let with = dictionary.map(|dictionary| &*dictionary.bytes);
        let body = compression::unpack_with(cells.bytes()?, unpacked, with)?;
        let whole = Digest::of(text.as_bytes()).0 == *of_headers && Some(Digest::of(&body)) == digest;
        let whole = whole && cells.0.is_empty();
        Some(Payload { headers: row::headers(text)?, body: body.into() }).filter(|_| whole)
    };
    read().map_or(StoredValue::Damaged, StoredValue::Whole)
}

/// Encodes a receipt, preceded by its digest.
pub(super) fn receipt(receipt: &Receipt) -> Vec<u8> {
    let mut out = RedisRecordEncoder::default();
    out.number(receipt.status);
    out.number(u8::from(receipt.truncated));
    out.text(&row::headers_cell(&receipt.headers));
    out.bytes(&receipt.body);
    [&Digest::of(&out.0).0[..], &out.0].concat()
}

/// Decodes a receipt, if its digest matches.
pub(super) fn read_receipt(bytes: &[u8]) -> Option<Receipt> {
    let (digest, rest) = bytes.split_first_chunk::<32>()?;
    let mut cells = CellDecoder(rest);
    let (status, cut) = (cells.number()?, cells.number::<u8>()? == 1);
    let headers = row::headers(cells.text()?)?;
    let body = cells.bytes()?.to_vec();
    Some(Receipt { status, headers, body, truncated: cut }).filter(|_| Digest::of(rest).0 == *digest)
}

/// Encodes an attempt, without its output.
pub(super) fn tried(tried: &AttemptRecord) -> Vec<u8> {
    let mut out = RedisRecordEncoder::default();
    out.number(tried.life);
    out.number(tried.attempt);
    out.number(tried.started_at.0);
    out.number(tried.ended_at.0);
    out.text(&tried.outcome);
    out.text(&tried.why);
    out.0
}

/// Decodes an attempt.
pub(super) fn read_tried(bytes: &[u8]) -> Option<AttemptRecord> {
    let mut cells = CellDecoder(bytes);
    Some(AttemptRecord {
        life: cells.number()?,
        attempt: cells.number()?,
        started_at: Timestamp(cells.number()?),
        ended_at: Timestamp(cells.number()?),
        outcome: cells.text()?.into(),
        why: cells.text()?.into(),
        output: Vec::new(),
    })
}

/// The name of an attempt's output in its event's hash.
pub(super) fn output_name(tried: &AttemptRecord) -> Vec<u8> {
    let mut out = RedisRecordEncoder::default();
    out.number(tried.life);
    out.number(tried.attempt);
    out.number(tried.started_at.0);
    out.0
}

/// Encodes a sighting of a duplicate.
pub(super) fn sighting(sighting: &DuplicateSighting) -> Vec<u8> {
    let mut out = RedisRecordEncoder::default();
    out.number(sighting.at.0);
    out.maybe(sighting.delivery_id.as_deref(), RedisRecordEncoder::text);
    out.text(sighting.same.word());
    out.0
}

/// Decodes a sighting.
pub(super) fn read_sighting(bytes: &[u8]) -> Option<DuplicateSighting> {
    let mut cells = CellDecoder(bytes);
    Some(DuplicateSighting {
        at: Timestamp(cells.number()?),
        delivery_id: cells.maybe(CellDecoder::text)?.map(Into::into),
        same: MatchedBy::parse(cells.text()?),
    })
}

pub(super) fn quarantined(one: &QuarantinedMessage) -> Vec<u8> {
    let mut out = RedisRecordEncoder::default();
    for text in [&*one.source, &one.message, &one.subject, &one.why] {
        out.text(text);
    }
    out.number(one.at.0);
    out.number(counter(one.bytes));
    out.bytes(&one.head);
    out.0
}

/// Decodes a quarantined message.
pub(super) fn read_quarantined(bytes: &[u8]) -> Option<QuarantinedMessage> {
    let mut cells = CellDecoder(bytes);
    let mut text = || cells.text().map(str::to_owned);
    let (source, message, subject, why) = (text()?, text()?, text()?, text()?);
    Some(QuarantinedMessage {
        source: source.into(),
        message,
        subject,
        at: Timestamp(cells.number()?),
        why,
        bytes: cells.number()?,
        head: Bytes::copy_from_slice(cells.bytes()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::making;
    use proptest::prelude::*;

    fn whole(found: row::DecodedRow) -> Option<EventRow> {
        match found {
            row::DecodedRow::Whole(row) => Some(row),
            row::DecodedRow::Damaged(..) => None,
        }
    }

    fn example() -> EventRow {
        let made = making().delivery("d\0é").group("g").change("s", "v", Some(i64::MIN)).recorded();
        EventRow { event: made.made(Timestamp(1_750_000_000_000_000)).event, keep_from: Some(Timestamp(-1)) }
    }

    #[test]
    fn a_row_survives_a_round_trip_and_a_truncated_or_foreign_one_is_damaged() {
        let row = example();
        let bytes = super::row(&row, RecordVersion(7));
        let (found, version) = read_row(row.event.id, &bytes);
        assert_eq!((whole(found), version), (Some(row.clone()), RecordVersion(7)));
        for cut in 0..bytes.len() {
            let (found, _) = read_row(row.event.id, &bytes[..cut]);
            assert!(whole(found).is_none(), "{cut}");
        }
        assert!(whole(read_row(EventId([9; 16]), &bytes).0).is_none());
    }

    #[test]
    fn a_damaged_value_is_none() {
        assert_eq!(read_payload(b"rot", None, None), StoredValue::Damaged);
        assert_eq!(read_payload(&[WITH_DICTIONARY; 40], None, None), StoredValue::Damaged);
        assert_eq!(read_dictionary(DictionaryId(0), "source", &[0; 40]), None);
        assert_eq!(read_dictionary_origin(&[TEXT]), None);
        assert_eq!(read_receipt(&[0; 40]), None);
        assert_eq!(read_held(b"short"), None);
        assert_eq!(read_register(&[0; 60]), None);
        assert_eq!(read_slot(&[0; 9]), None);
        assert_eq!(read_retention(b"source", &[NULL, NUMBER]), None);
    }

    #[test]
    fn a_payload_names_its_dictionary_and_is_packed_anew_without_it() {
        let body = |n: u32| {
            let word = |i: u32| format!("{:08x}", i.wrapping_mul(2_654_435_761) ^ n);
            (0..400).map(word).collect::<String>()
        };
        let dictionary = BodyDictionary::of("source", body(0).as_bytes());
        let arrived = body(0) + "and its end";
        let digest = Some(Digest::of(arrived.as_bytes()));
        let headers = [("a".to_owned(), "b".to_owned())];
        let packed = CompressedBody::with(arrived.as_bytes(), &dictionary);
        let stored = payload(&headers, &packed);
        assert!(stored.len() < 300, "{}", stored.len());
        assert_eq!(dictionary_of(&stored), Some(dictionary.id));
        let read = |stored: &[u8], with: Option<&BodyDictionary>| match read_payload(stored, digest, with) {
            StoredValue::Whole(payload) => Some((payload.headers, payload.body.to_vec())),
            StoredValue::Damaged | StoredValue::Forgotten => None,
        };
        let whole = Some((headers.to_vec(), arrived.clone().into_bytes()));
        assert_eq!(read(&stored, Some(&dictionary)), whole);
        assert_eq!(read(&stored, None), None);
        assert_eq!(read(&stored, Some(&BodyDictionary::of("another", body(0).as_bytes()))), None);
        let copy = super::dictionary(&dictionary);
        assert_eq!(read_dictionary(dictionary.id, "source", &copy), Some(dictionary.clone()));
        assert_eq!(read_dictionary(dictionary.id, "source", &copy[..copy.len() - 1]), None);
        let anew = packed_anew(&stored, digest, std::slice::from_ref(&dictionary));
        assert_eq!((dictionary_of(&anew), read(&anew, None)), (None, whole));
        let damaged = packed_anew(&stored, digest, &[]);
        assert_eq!((dictionary_of(&damaged), read(&damaged, Some(&dictionary))), (None, None));
    }

    proptest! {
        #![proptest_config(crate::seed::cases(256))]

        #[test]
        fn every_number_survives_a_round_trip(number: i64) {
            let mut out = RedisRecordEncoder::default();
            out.number(number);
            prop_assert_eq!(CellDecoder(&out.0).number::<i64>(), Some(number));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
            let _ = read_row(EventId([1; 16]), &bytes);
            let _ = (read_tried(&bytes), read_sighting(&bytes), read_receipt(&bytes), read_register(&bytes));
            let _ = (read_payload(&bytes, None, None), packed_anew(&bytes, None, &[]), read_dictionary_origin(&bytes));
        }
    }
}
