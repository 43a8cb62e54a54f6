//! Reads values from a JSON text in one pass, along a trie of paths. No tree is built: what is not on a path is checked
//! for being JSON and skipped.
//!
//! It is stricter than JSON where two parsers could disagree about the content: a lone surrogate anywhere, and a name
//! that occurs twice on a used path, are refused.

use super::limits;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The paths to read, as a trie. A node is identified by its index; the root is 0.
#[derive(Clone, Debug)]
pub(super) struct JsonPathTrie {
    nodes: Vec<TrieNode>,
}

#[derive(Clone, Default, Debug)]
struct TrieNode {
    branches: Vec<TrieBranch>,
    wants: PathInterest,
}

#[derive(Clone, Debug)]
struct TrieBranch {
    name: String,
    /// The array index that this name also denotes, if it is a number.
    position: Option<usize>,
    to: usize,
}

/// The part of a node that is needed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum PathInterest {
    /// Whether it is an object or an array.
    #[default]
    Shape,
    /// Its value too.
    Value,
    /// The texts of its elements, if it is an array. Nothing inside them is looked for.
    Elements,
}

/// The match of a path in a text.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum JsonMatch<'j> {
    /// There is no such path in the text.
    Nowhere,
    /// Null, or a value that is not needed.
    Other,
    /// An object.
    Object,
    /// An array whose elements are not needed.
    Array,
    /// A value.
    Scalar(JsonScalar<'j>),
    /// The texts of an array's elements; one more than [`limits::ELEMENTS_MAX`] where there are more.
    Elements(Vec<&'j str>),
}

/// A value, borrowed from the text where it can be.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum JsonScalar<'j> {
    /// Text, unescaped.
    Text(Cow<'j, str>),
    /// A number, as it was written.
    Number(&'j str),
    /// True or false.
    Bool(bool),
}

impl<'j> JsonMatch<'j> {
    /// The value that was found, if any. Cloned, because several fields may share a path.
    pub(super) fn scalar(&self) -> Option<JsonScalar<'j>> {
        match self {
            Self::Scalar(value) => Some(value.clone()),
            _ => None,
        }
    }
}

impl JsonPathTrie {
    /// A trie with only the root.
    pub(super) fn new() -> Self {
        Self { nodes: vec![TrieNode::default()] }
    }

    /// Adds a path and returns the node that it leads to.
    pub(super) fn add(&mut self, path: &[String], wants: PathInterest) -> usize {
        let mut node = 0;
        for name in path {
            let known = self.nodes[node].branches.iter().find(|branch| branch.name == *name).map(|branch| branch.to);
            node = known.unwrap_or_else(|| {
                let to = self.nodes.len();
                self.nodes[node].branches.push(TrieBranch { name: name.clone(), position: position(name), to });
                self.nodes.push(TrieNode::default());
                to
            });
        }
        // A node whose elements are needed stays one: only its shape is of interest beside them.
        if wants != PathInterest::Shape && self.nodes[node].wants != PathInterest::Elements {
            self.nodes[node].wants = wants;
        }
        node
    }

    /// Walks the text and returns what was found at each node. An error is a sentence.
    pub(super) fn walk<'j>(&self, json: &'j [u8]) -> Result<Vec<JsonMatch<'j>>, String> {
        self.walk_checked(checked(json)?)
    }

    /// The same for a text that is part of one that was walked.
    pub(super) fn walk_checked<'j>(&self, text: &'j str) -> Result<Vec<JsonMatch<'j>>, String> {
        let mut seen = vec![JsonMatch::Nowhere; self.nodes.len()];
        let mut reader = serde_json::Deserializer::from_str(text);
        TrieVisitor { paths: self, node: 0, seen: &mut seen }
            .deserialize(&mut reader)
            .and_then(|()| reader.end())
            .map_err(|error| format!("the body cannot be read as JSON: {error}"))?;
        Ok(seen)
    }
}

/// An array index: `0`, `1`, …; `01` is only a name.
fn position(name: &str) -> Option<usize> {
    name.parse().ok().filter(|position: &usize| position.to_string() == name)
}

/// One node of the trie, visited with one value of the text.
struct TrieVisitor<'p, 's, 'j> {
    paths: &'p JsonPathTrie,
    node: usize,
    seen: &'s mut [JsonMatch<'j>],
}

impl<'p, 'j> TrieVisitor<'p, '_, 'j> {
    fn node(&self) -> &'p TrieNode {
        &self.paths.nodes[self.node]
    }

    fn to(&mut self, branch: &TrieBranch) -> TrieVisitor<'p, '_, 'j> {
        TrieVisitor { paths: self.paths, node: branch.to, seen: self.seen }
    }
}

impl<'j> DeserializeSeed<'j> for TrieVisitor<'_, '_, 'j> {
    type Value = ();

    fn deserialize<D: Deserializer<'j>>(self, from: D) -> Result<(), D::Error> {
        let node = self.node();
        if node.wants == PathInterest::Elements {
            self.seen[self.node] = from.deserialize_any(ElementsVisitor)?;
            return Ok(());
        }
        if node.wants == PathInterest::Shape && !node.branches.is_empty() {
            self.seen[self.node] = JsonMatch::Other;
            return from.deserialize_any(self);
        }
        let raw = <&'j RawValue as serde::Deserialize>::deserialize(from)?.get();
        let what = look(raw).map_err(D::Error::custom)?;
        let leads_on = !node.branches.is_empty() && matches!(what, JsonMatch::Object | JsonMatch::Array);
        self.seen[self.node] = what;
        if leads_on {
            // Both this value and values inside it are needed: only such a pair of paths costs a second parse.
            return serde_json::Deserializer::from_str(raw).deserialize_any(self).map_err(D::Error::custom);
        }
        Ok(())
    }
}

/// Visits a node whose value is needed only for the paths through it.
impl<'j> Visitor<'j> for TrieVisitor<'_, '_, 'j> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'j>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(branch) = map.next_key_seed(TrieKeySeed(self.node()))? {
            match branch {
                Some(branch) if self.seen[branch.to] != JsonMatch::Nowhere => {
                    return Err(A::Error::custom(format_args!("the name {:?} occurs twice", branch.name)));
                }
                Some(branch) => map.next_value_seed(self.to(branch))?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        self.seen[self.node] = JsonMatch::Object;
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'j>>(mut self, mut seq: A) -> Result<(), A::Error> {
        for place in 0.. {
            let branch = self.node().branches.iter().find(|branch| branch.position == Some(place));
            let more = match branch {
                Some(branch) => seq.next_element_seed(self.to(branch))?.is_some(),
                None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                break;
            }
        }
        self.seen[self.node] = JsonMatch::Array;
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// Visits the array whose elements are needed, without looking into them.
struct ElementsVisitor;

impl<'j> Visitor<'j> for ElementsVisitor {
    type Value = JsonMatch<'j>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut seq: A) -> Result<JsonMatch<'j>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element::<&'j RawValue>()? {
            // The rest is still checked for being JSON.
            if elements.len() <= limits::ELEMENTS_MAX {
                elements.push(element.get());
            }
        }
        Ok(JsonMatch::Elements(elements))
    }

    fn visit_map<A: MapAccess<'j>>(self, mut map: A) -> Result<JsonMatch<'j>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(JsonMatch::Object)
    }

    fn visit_unit<E>(self) -> Result<JsonMatch<'j>, E> {
        Ok(JsonMatch::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<JsonMatch<'j>, E> {
        Ok(JsonMatch::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<JsonMatch<'j>, E> {
        Ok(JsonMatch::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<JsonMatch<'j>, E> {
        Ok(JsonMatch::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<JsonMatch<'j>, E> {
        Ok(JsonMatch::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<JsonMatch<'j>, E> {
        Ok(JsonMatch::Other)
    }
}

/// Deserializes a member's name to the branch of the trie that it leads to, if any, without keeping the name.
struct TrieKeySeed<'p>(&'p TrieNode);

impl<'j, 'p> DeserializeSeed<'j> for TrieKeySeed<'p> {
    type Value = Option<&'p TrieBranch>;

    fn deserialize<D: Deserializer<'j>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'p> Visitor<'_> for TrieKeySeed<'p> {
    type Value = Option<&'p TrieBranch>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.branches.iter().find(|branch| branch.name == name))
    }
}

/// Classifies one JSON value.
fn look(raw: &str) -> Result<JsonMatch<'_>, serde_json::Error> {
    Ok(match raw.as_bytes().first() {
        Some(b'{') => JsonMatch::Object,
        Some(b'[') => JsonMatch::Array,
        _ => scalar(raw)?.map_or(JsonMatch::Other, JsonMatch::Scalar),
    })
}

/// The scalar of this JSON text, if it is one. The text is known to be valid JSON.
pub(super) fn scalar(raw: &str) -> Result<Option<JsonScalar<'_>>, serde_json::Error> {
    Ok(Some(match raw.as_bytes() {
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => JsonScalar::Text(Cow::Borrowed(&raw[1..raw.len() - 1])),
        [b'"', ..] => JsonScalar::Text(Cow::Owned(serde_json::from_str(raw)?)),
        [b't', ..] => JsonScalar::Bool(true),
        [b'f', ..] => JsonScalar::Bool(false),
        [b'-' | b'0'..=b'9', ..] => JsonScalar::Number(raw),
        _ => return Ok(None),
    }))
}

/// Checks what serde does not check in skipped parts. Each exact check runs only where a quick one finds cause.
fn checked(json: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(json).map_err(|_| "the body is not UTF-8".to_owned())?;
    if opened(json) > limits::JSON_DEPTH_MAX && deepest(json) > limits::JSON_DEPTH_MAX {
        return Err(format!("the body has more than {} objects and arrays inside each other", limits::JSON_DEPTH_MAX));
    }
    if may_have_surrogates(json) && has_lone_surrogate(json) {
        return Err("the body has half a surrogate pair".to_owned());
    }
    Ok(text)
}

/// The number of `[` and `{`, including those inside texts: never less than the depth. Sums of bytes, so that the
/// compiler can vectorise it.
fn opened(json: &[u8]) -> usize {
    let of = |part: &[u8]| usize::from(part.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>());
    json.chunks(255).map(of).sum()
}

fn deepest(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = json.iter();
    let mut in_text = false;
    while let Some(byte) = bytes.next() {
        match (in_text, byte) {
            (true, b'\\') => drop(bytes.next()),
            (_, b'"') => in_text = !in_text,
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Whether there is any `\ud` or `\uD`. Without an early exit, so that the compiler can vectorise it.
fn may_have_surrogates(json: &[u8]) -> bool {
    let (seconds, thirds) = (json.get(1..).unwrap_or_default(), json.get(2..).unwrap_or_default());
    let triples = json.iter().zip(seconds).zip(thirds);
    let is = |byte: u8, wanted: u8| u8::from(byte == wanted);
    triples.fold(0, |found, ((&a, &b), &c)| found | (is(a, b'\\') & is(b, b'u') & is(c | 0x20, b'd'))) == 1
}

fn has_lone_surrogate(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        rest = &rest[at..];
        rest = match utf16_unit(rest) {
            Some(0xD800..=0xDBFF) if matches!(utf16_unit(&rest[6..]), Some(0xDC00..=0xDFFF)) => &rest[12..],
            Some(0xD800..=0xDFFF) => return true,
            Some(_) => &rest[6..],
            None => rest.get(2..).unwrap_or_default(),
        };
    }
    false
}

/// The UTF-16 unit of the `\uXXXX` at the beginning of a text.
fn utf16_unit(text: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(text.strip_prefix(b"\\u")?.get(..4)?).ok()?;
    // `from_str_radix` would also take a sign.
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}
