//! The report of `explain` as text: one line per step, in order.

use super::delivery_trace::{ContentTrace, DeliveryTrace, FilterResult, SignatureCheck};
use super::prediction::{DeliveryPrediction, PredictedClaim, state_text};
use crate::config::describe::{line, lines};
use crate::config::once_view::change_text;
use crate::config::route::{group_text, redelivery_text};
use crate::decide::claim::{DuplicateTarget, NewEvent, RepeatEffect};
use crate::decide::field::{ExtractedField, FieldValue};
use crate::decide::filter::FilterTerm;
use crate::decide::judge::Verdict;
use crate::decide::source::RedeliveryPolicy;
use crate::decide::verify::TimeDifference;
use std::io::{self, Write};

/// Maximum characters shown of a value.
const SHOWN_MAX: usize = 80;

/// Prints what each step saw, and the prediction.
pub(crate) fn explained(told: &DeliveryTrace, would: &DeliveryPrediction, out: &mut impl Write) -> io::Result<()> {
    line(out, "", "delivery", &format!("{}, {} bytes", told.from, told.bytes))?;
    lines(out, "", "note", &told.notes)?;
    line(out, "", "source", &format!("{} ({})", told.source.name, told.chosen))?;
    line(out, "", "signed by", &format!("{}: {}", told.source.verify.words(), signature(&told.signature)))?;
    if let (Some(kind), Some(named)) = (&told.source.kind, &told.kind) {
        let same = yes(kind.index_of(named).is_some());
        line(out, "", "kind", &format!("{} is {:?}, wanted {}: {same}", kind.header, named, kind.names()))?;
    }
    if let Some(count) = told.elements {
        line(out, "", "elements", &format!("{count}{}", shown_of(told.contents.len(), count)))?;
    }
    for content in &told.contents {
        if let Some(place) = &content.place {
            line(out, "", "element", place)?;
        }
        lines(out, "", "fields", &fields(told, content))?;
        lines(out, "", "requires", &content.require.iter().flat_map(filter).collect::<Vec<_>>())?;
        lines(out, "", "acts when", &content.when.iter().flat_map(filter).collect::<Vec<_>>())?;
        lines(out, "", "routes", &routes(told, content))?;
        let events = events_of(told, content);
        for new in events {
            event(told, new, events.len(), out)?;
            if told.elements.is_some() {
                element_ends(told, would, new, out)?;
            }
        }
        if told.elements.is_some() && events.is_empty() && !events_of_all(told).is_empty() {
            line(out, "", "it would", "be ignored")?;
        }
    }
    ends(told, would, out)
}

fn signature(signature: &SignatureCheck) -> String {
    match signature {
        SignatureCheck::None => "nothing to check".into(),
        SignatureCheck::Unchecked(why) => format!("not checked, {why}; the rest assumes that it is right"),
        SignatureCheck::Right => "right".into(),
        SignatureCheck::Untimely(found, off) => {
            let found = found.as_ref().map(|found| format!(": {found}")).unwrap_or_default();
            let off = match off {
                Some(TimeDifference::Ahead(..)) => "too far in the future",
                Some(TimeDifference::Old(..)) | None => "too old",
            };
            format!("right, but {off} to be accepted now{found}")
        }
        SignatureCheck::Wrong(why) => format!("wrong: {why}; the rest assumes that it is right"),
        SignatureCheck::NotNeeded(why) => format!("not needed, {why}"),
    }
}

/// A field's value, shortened.
pub(crate) fn value(value: &FieldValue) -> String {
    match value {
        FieldValue::Text(text) => match text.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{:?}…", &text[..end]),
            None => format!("{text:?}"),
        },
        FieldValue::Number(raw) => raw.to_string(),
        FieldValue::Bool(flag) => flag.to_string(),
    }
}

/// The events of a delivery.
fn events_of_all(told: &DeliveryTrace) -> &[NewEvent] {
    match &told.verdict {
        Verdict::Events(events) => events,
        Verdict::Refused(_) | Verdict::Ignored(_) => &[],
    }
}

/// The events that were made of this content.
fn events_of<'t>(told: &'t DeliveryTrace, content: &ContentTrace) -> &'t [NewEvent] {
    events_of_all(told).get(content.events.clone()).unwrap_or_default()
}

fn shown_of(shown: usize, count: usize) -> String {
    match shown {
        _ if shown >= count => String::new(),
        1 => ", of which the last one judged is shown".into(),
        _ => format!(", of which the first {} and the last one judged are shown", shown - 1),
    }
}

fn fields(told: &DeliveryTrace, content: &ContentTrace) -> Vec<String> {
    let Some(slots) = &content.fields else { return Vec::new() };
    let wide = told.source.fields.iter().map(|field| field.name.chars().count()).max().unwrap_or(0);
    let one = |(field, slot): (&crate::decide::field::Field, &ExtractedField)| {
        let found = match slot {
            ExtractedField::Missing => "missing".into(),
            ExtractedField::Present(found) => value(found),
            ExtractedField::Defaulted(found) => format!("{} (the default: the field is missing)", value(found)),
        };
        format!("{:<wide$}  {found}  at {}", field.name, field.places_text())
    };
    told.source.fields.iter().zip(slots).map(one).collect()
}

fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

/// The filter's result; each term, if there are several or the result is no.
fn filter(asked: &FilterResult) -> Vec<String> {
    let Some(text) = &asked.text else { return vec![format!("always: {}", yes(asked.holds))] };
    let mut all = vec![format!("{text}: {}", yes(asked.holds))];
    if asked.terms.len() > 1 || !asked.holds {
        all.extend(asked.terms.iter().map(|term| format!("  {}", term_text(term))));
    }
    all
}

fn term_text(term: &FilterTerm) -> String {
    let saw = if term.saw.is_empty() { String::new() } else { format!(", {}", term.saw.join(", ")) };
    format!("{}: {}{saw}", term.text, term.holds)
}

/// The evaluated routes, and those that were not.
fn routes(told: &DeliveryTrace, content: &ContentTrace) -> Vec<String> {
    let mut all = Vec::new();
    for asked in &content.routes {
        let mut told = filter(asked).into_iter();
        all.extend(told.next().map(|first| format!("{} when {first}", asked.name).replace("when always", "always")));
        all.extend(told);
    }
    if let Some(taken) = told.route(content) {
        let later = told.source.routes.iter().skip(content.routes.len()).map(|route| route.name.to_string());
        let later: Vec<_> = later.collect();
        if !later.is_empty() {
            all.push(format!("{} matches; not evaluated: {}", taken.name, later.join(", ")));
        }
    }
    all
}

fn event(told: &DeliveryTrace, new: &NewEvent, of: usize, out: &mut impl Write) -> io::Result<()> {
    let source = &told.source;
    if of > 1 {
        line(out, "", "receiver", &format!("{} of {of}", new.event.part + 1))?;
    }
    if let Some(id) = &new.event.delivery_id {
        line(out, "", "id", &id.escape_debug().to_string())?;
    }
    let identities: Vec<_> = told.identities(new).flat_map(|(text, key)| [text, format!("  {key:?}")]).collect();
    lines(out, "", "once per", &identities)?;
    if let (Some(change), Some(of)) = (&source.once.change, &new.event.change) {
        let order = of.order.map(|order| format!(", order {order}")).unwrap_or_default();
        let register =
            [change_text(source, change), format!("  {:?}", of.subject), format!("  to {:?}{order}", of.value)];
        lines(out, "", "register", &register)?;
    }
    if let (Some(group), Some(route)) = (&new.event.group, told.route_of(new)) {
        lines(out, "", "group", &[group_text(source, route), format!("  {group:?}")])?;
    }
    Ok(())
}

/// What would become of one event of an element.
fn element_ends(
    told: &DeliveryTrace,
    would: &DeliveryPrediction,
    new: &NewEvent,
    out: &mut impl Write,
) -> io::Result<()> {
    let (when, would) = match would {
        DeliveryPrediction::BeUntimely(_, when, timely) => (format!("{when}: "), &**timely),
        other => (String::new(), other),
    };
    let DeliveryPrediction::Events(all, _) = would else { return Ok(()) };
    let index = events_of_all(told).iter().position(|event| event.event.id == new.event.id);
    let Some(came) = index.and_then(|index| all.get(index)) else { return Ok(()) };
    let mut said = claim_lines(told, came, new);
    if let Some(first) = said.first_mut() {
        first.insert_str(0, &when);
    }
    lines(out, "", "it would", &said)
}

fn ends(told: &DeliveryTrace, would: &DeliveryPrediction, out: &mut impl Write) -> io::Result<()> {
    let (now, would) = match would {
        DeliveryPrediction::BeUntimely(why, when, timely) => {
            let is_told = told.elements.is_some() && matches!(**timely, DeliveryPrediction::Events(..));
            let when = if is_told { String::new() } else { format!("; {when}: ") };
            (format!("be refused now with 401: {why}{when}"), &**timely)
        }
        other => (String::new(), other),
    };
    let ending = |text: String| format!("{now}{text}");
    match would {
        DeliveryPrediction::BeRefused(status, why) => {
            line(out, "", "it would", &ending(format!("be refused with {status}, {why}")))
        }
        DeliveryPrediction::BeIgnored(why) => line(out, "", "it would", &ending(format!("be ignored: {why}"))),
        // A prediction about a right time has no other in it.
        DeliveryPrediction::BeUntimely(..) => line(out, "", "it would", &now),
        DeliveryPrediction::Events(all, looked) => {
            match looked {
                Ok(store) => line(out, "", "store", &format!("searched {store}"))?,
                Err(why) => line(out, "", "store", &format!("not searched: {why}"))?,
            }
            if told.elements.is_some() {
                let shown: usize = told.contents.iter().map(|content| content.events.len()).sum();
                if let Some(more) = all.len().checked_sub(shown).filter(|more| *more > 0) {
                    line(out, "", "", &format!("and {more} more events, which are not shown"))?;
                }
                return if now.is_empty() { Ok(()) } else { line(out, "", "it would", &now) };
            }
            for (came, new) in all.iter().zip(events_of_all(told)) {
                let mut said = claim_lines(told, came, new);
                if let Some(first) = said.first_mut() {
                    *first = ending(std::mem::take(first));
                }
                lines(out, "", "it would", &said)?;
            }
            Ok(())
        }
    }
}

fn claim_lines(told: &DeliveryTrace, came: &PredictedClaim, new: &NewEvent) -> Vec<String> {
    let route = &new.event.route;
    match came {
        PredictedClaim::New => vec![format!("be a new event, and act on route {route}")],
        PredictedClaim::Parked => {
            vec![format!("be a new event on route {route}, and wait: another one holds its group's slot")]
        }
        PredictedClaim::Recorded => vec![format!("be a new event that is only recorded: route {route} has no action")],
        PredictedClaim::DuplicateOfElement(same) => {
            vec![format!("be a duplicate by its {}, of an element before it", same.word())]
        }
        PredictedClaim::Imported(same) => {
            vec![format!("be a duplicate, by its {}, of an imported event", same.word())]
        }
        PredictedClaim::Stale(of) => vec![format!("be stale: its subject was changed later, by event {of}")],
        PredictedClaim::Undecided => vec!["have to be claimed again: the store could not decide".into()],
        PredictedClaim::Duplicate(event, same, stands, repeat) => {
            let mut all = vec![format!("be a duplicate by its {}, of event {}", same.word(), event.id)];
            if *stands == DuplicateTarget::ViaSuccessor {
                all.push("  which superseded the event that matched".into());
            }
            all.push(format!("  which is {}", state_text(event)));
            all.push(match (repeat, told.route_of(new)) {
                (RepeatEffect::PublishesAgain, _) => "  and publish it again; the worker decides".into(),
                (RepeatEffect::Rearms, _) => "  and give it another attempt".into(),
                (RepeatEffect::Resumes, _) => "  and give it another attempt, although it may have acted".into(),
                (RepeatEffect::ReportOnly, Some(route))
                    if event.state.word() == "done" && matches!(route.redelivery, RedeliveryPolicy::Again { .. }) =>
                {
                    format!("  and not publish it again ({})", redelivery_text(route.redelivery))
                }
                (RepeatEffect::ReportOnly, Some(route)) if event.state.word() == "dead" => {
                    format!("  and not revive it ({})", redelivery_text(route.redelivery))
                }
                (RepeatEffect::ReportOnly, _) => "  and do nothing".into(),
            });
            all
        }
    }
}
