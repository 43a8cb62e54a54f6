//! The kinds of GitHub's webhooks, and the shape of each kind's body.
//!
//! The header that names the kind is not signed: anyone who captured a delivery can send it again under another kind.
//! The body is signed, so a kind may decide something only if the body has its shape. A shape names the members that
//! every body of the kind has, and where one kind's members are among another's, also those that it does not have. So no
//! body has the shape of two kinds.
pub(crate) mod shapes;
#[cfg(test)]
pub(crate) mod tests;

use super::delivery::{Delivery, HeaderLookup};
use super::json_walk::{JsonMatch, JsonPathTrie, JsonScalar, PathInterest};
use super::limits;
use std::collections::{BTreeMap, BTreeSet};

/// The header in which GitHub names the kind of event, in lower case.
pub const HEADER: &str = "x-github-event";

/// What the kind of event is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKindUse {
    /// It is passed on with the body: a kind that is not in the table is passed on unchecked.
    PassedOn,
    /// It decides something here, such as a route or a subject: a kind that is not in the table is refused.
    Decides,
}

/// Whether bodies of many kinds have this member, so that it identifies none.
pub fn is_common(member: &str) -> bool {
    shapes::COMMON.contains(&member)
}

/// Whether this can be the name of a kind.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !text.is_empty() && text.len() <= limits::KIND_BYTES_MAX && text.bytes().all(allowed)
}

/// What a body of one kind looks like.
struct PayloadShape {
    /// The kind, as the header names it.
    kind: &'static str,
    /// Paths that every body of the kind has.
    has: &'static [ShapeMember],
    /// Members of another kind's bodies, which would otherwise have this shape, too.
    lacks: AbsentMembers,
    /// The allowed values of `action`; empty: any, or none.
    actions: &'static [&'static str],
}

/// A path in a body, with dots between its names.
#[derive(Clone, Copy)]
enum ShapeMember {
    /// An object is there.
    Object(&'static str),
    /// Any value, including null.
    Any(&'static str),
}

/// Members that a kind does not have.
enum AbsentMembers {
    /// These.
    These(&'static [&'static str]),
    /// All members that identify another kind, and these: the kind has no member of its own.
    Others(&'static [&'static str]),
}

impl ShapeMember {
    fn path(self) -> &'static str {
        match self {
            Self::Object(path) | Self::Any(path) => path,
        }
    }

    /// The first name of its path.
    fn top(self) -> &'static str {
        self.path().split('.').next().unwrap_or_default()
    }
}

/// The shapes of kinds, as nodes of the trie that a body is walked along.
#[derive(Clone, Debug)]
pub(super) struct EventKindMatcher {
    used: EventKindUse,
    shapes: BTreeMap<String, ShapeNodes>,
    /// The kinds that the config describes.
    own: BTreeSet<String>,
    action: usize,
}

/// A shape, by the trie nodes of its members.
#[derive(Clone, Debug)]
struct ShapeNodes {
    objects: Vec<usize>,
    present: Vec<usize>,
    lacks: Vec<usize>,
    actions: &'static [&'static str],
}

impl EventKindMatcher {
    /// Every known kind, and the kinds that the config describes by a path that their bodies have. A kind that is in
    /// both is taken from the config.
    pub(super) fn new(used: EventKindUse, own: &[(String, Vec<String>)], paths: &mut JsonPathTrie) -> Self {
        let mut add = |path: &str| {
            let path: Vec<_> = path.split('.').map(str::to_owned).collect();
            paths.add(&path, PathInterest::Shape)
        };
        let mut shapes: BTreeMap<_, _> =
            shapes::SHAPES.iter().map(|shape| (shape.kind.to_owned(), shape.nodes(&mut add))).collect();
        let action = add("action");
        for (_, path) in own {
            let member = paths.add(path, PathInterest::Shape);
            // A kind without a member of its own lacks these members, too.
            for shape in shapes::SHAPES.iter().filter(|shape| matches!(shape.lacks, AbsentMembers::Others(_))) {
                shapes.entry(shape.kind.to_owned()).and_modify(|nodes| nodes.lacks.push(member));
            }
        }
        for (kind, path) in own {
            let present = vec![paths.add(path, PathInterest::Shape)];
            let nodes = ShapeNodes { objects: Vec::new(), present, lacks: Vec::new(), actions: &[] };
            shapes.insert(kind.clone(), nodes);
        }
        let own = own.iter().map(|(kind, _)| kind.clone()).collect();
        Self { used, shapes, own, action }
    }

    /// What the kind is used for.
    pub(super) fn used(&self) -> EventKindUse {
        self.used
    }

    /// Whether the body of this delivery must be checked.
    pub(super) fn needs_body_check(&self, delivery: &Delivery<'_>) -> bool {
        self.used == EventKindUse::Decides || delivery.header(HEADER) != HeaderLookup::Missing
    }

    /// Compares the kind that the header names with the body. An error is a sentence.
    pub(super) fn compare(&self, delivery: &Delivery<'_>, seen: &[JsonMatch<'_>]) -> Result<(), String> {
        let named = match (delivery.header(HEADER), delivery.text(HEADER)) {
            (HeaderLookup::Missing, _) if self.used == EventKindUse::PassedOn => return Ok(()),
            (HeaderLookup::Missing, _) => {
                return Err(format!("there is no {HEADER} header, which names the kind of event"));
            }
            // Compared exactly, in GitHub's spelling: `Push` would pass a filter for `push`.
            (_, named) => named.filter(|named| is_name(named)),
        };
        let Some(named) = named else {
            return Err(format!("{HEADER} is not a kind of event, or occurs more than once"));
        };
        match self.shapes.get(named) {
            // One member does not identify this kind for certain, so no other kind may fit as well.
            Some(_) if self.own.contains(named) && self.unique_match(seen) == Some(named) => Ok(()),
            Some(nodes) if !self.own.contains(named) && nodes.fit(seen, self.action) => Ok(()),
            Some(_) => Err(format!("{HEADER} says {named:?}, but the body does not have the shape of that kind")),
            None if self.used == EventKindUse::PassedOn => Ok(()),
            None => Err(format!(
                "{HEADER} says {named:?}, a kind whose shape is not known; name a member of its body in the config: \
                 kinds = {{ {named} = \"body.…\" }}"
            )),
        }
    }

    /// The kind whose shape a body has, if it has exactly one.
    fn unique_match(&self, seen: &[JsonMatch<'_>]) -> Option<&str> {
        let mut fit = self.shapes.iter().filter(|(_, nodes)| nodes.fit(seen, self.action));
        let (kind, _) = fit.next()?;
        fit.next().is_none().then_some(kind)
    }
}

impl ShapeNodes {
    fn fit(&self, seen: &[JsonMatch<'_>], action: usize) -> bool {
        let acts = match &seen[action] {
            JsonMatch::Scalar(JsonScalar::Text(action)) => self.actions.contains(&&**action),
            _ => false,
        };
        self.objects.iter().all(|node| seen[*node] == JsonMatch::Object)
            && self.present.iter().all(|node| seen[*node] != JsonMatch::Nowhere)
            && self.lacks.iter().all(|node| seen[*node] == JsonMatch::Nowhere)
            && (self.actions.is_empty() || acts)
    }
}

impl PayloadShape {
    fn nodes(&self, add: &mut impl FnMut(&str) -> usize) -> ShapeNodes {
        let mut nodes =
            ShapeNodes { objects: Vec::new(), present: Vec::new(), lacks: Vec::new(), actions: self.actions };
        for member in self.has {
            match member {
                ShapeMember::Object(path) => nodes.objects.push(add(path)),
                ShapeMember::Any(path) => nodes.present.push(add(path)),
            }
        }
        nodes.lacks = self.lacks().into_iter().map(add).collect();
        nodes
    }

    fn lacks(&self) -> Vec<&'static str> {
        match self.lacks {
            AbsentMembers::These(these) => these.to_vec(),
            AbsentMembers::Others(besides) => {
                let own = |name: &str| self.has.iter().any(|member| member.top() == name);
                let others = shapes::SHAPES.iter().flat_map(|shape| shape.has).map(|member| member.top());
                let others = others.filter(|name| !shapes::COMMON.contains(name) && !own(name));
                others.chain(besides.iter().copied()).collect()
            }
        }
    }
}

/// The kind of this JSON body, if it has the shape of exactly one.
pub fn of_body(json: &[u8]) -> Option<String> {
    let mut paths = JsonPathTrie::new();
    let kinds = EventKindMatcher::new(EventKindUse::Decides, &[], &mut paths);
    let seen = paths.walk(json).ok()?;
    kinds.unique_match(&seen).map(str::to_owned)
}

/// The minimum that a body of this kind has: paths, and whether an object (or any value) is there. `None`: an unknown
/// kind.
pub fn members(kind: &str) -> Option<Vec<(Vec<String>, bool)>> {
    let shape = shapes::SHAPES.iter().find(|shape| shape.kind == kind)?;
    let member = |member: &ShapeMember| {
        let path = member.path().split('.').map(str::to_owned).collect();
        (path, matches!(member, ShapeMember::Object(_)))
    };
    Some(shape.has.iter().map(member).collect())
}
