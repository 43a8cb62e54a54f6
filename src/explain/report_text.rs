//! The report of `explain` as text: one line per step, in order.

use super::delivery_trace::{ContentTrace, DeliveryTrace, ELEMENTS_SHOWN, FilterResult, SignatureCheck};
use super::prediction::{DeliveryPrediction, PredictedClaim, state_text};
use crate::config::describe::{line, lines};
use crate::config::once_view::change_text;
use crate::config::route::{group_text, redelivery_text};
use crate::decide::claim::{DuplicateTarget, NewEvent, RepeatEffect};
use crate::decide::field::{ExtractedField, FieldValue};
use crate::decide::filter::FilterTerm;
use crate::decide::judge::Verdict;
use crate::decide::source::RedeliveryPolicy;
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
    }
    if let Verdict::Events(events) = &told.verdict {
        for new in shown(told, events) {
            event(told, new, events.len(), out)?;
        }
    }
    ends(told, would, out)
}

fn signature(signature: &SignatureCheck) -> String {
    match signature {
        SignatureCheck::None => "nothing to check".into(),
        SignatureCheck::Unchecked(why) => format!("not checked, {why}; the rest assumes that it is right"),
        SignatureCheck::Right => "right".into(),
        SignatureCheck::Old(None) => "right, but too old to be accepted now".into(),
        SignatureCheck::Old(Some(age)) => format!("right, but too old to be accepted now: {age}"),
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

/// Those of the events of a delivery that are shown: of one with several elements only the first few.
fn shown<'a, T>(told: &DeliveryTrace, all: &'a [T]) -> &'a [T] {
    match told.elements {
        Some(_) => &all[..all.len().min(ELEMENTS_SHOWN)],
        None => all,
    }
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
    if of > 1 && told.elements.is_none() {
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

fn ends(told: &DeliveryTrace, would: &DeliveryPrediction, out: &mut impl Write) -> io::Result<()> {
    match would {
        DeliveryPrediction::BeRefused(status, why) => {
            line(out, "", "it would", &format!("be refused with {status}, {why}"))
        }
        DeliveryPrediction::BeIgnored(why) => line(out, "", "it would", &format!("be ignored: {why}")),
        DeliveryPrediction::Events(all, looked) => {
            match looked {
                Ok(store) => line(out, "", "store", &format!("searched {store}"))?,
                Err(why) => line(out, "", "store", &format!("not searched: {why}"))?,
            }
            let events = match &told.verdict {
                Verdict::Events(events) => events.as_slice(),
                Verdict::Refused(_) | Verdict::Ignored(_) => &[],
            };
            for (came, new) in shown(told, all).iter().zip(events) {
                lines(out, "", "it would", &claim_lines(told, came, new))?;
            }
            if let Some(more) = all.len().checked_sub(shown(told, all).len()).filter(|more| *more > 0) {
                line(out, "", "", &format!("and {more} more events, which are not shown"))?;
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
