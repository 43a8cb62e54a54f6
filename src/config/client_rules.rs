//! What a node believes and accepts of its clients' addresses: `trusted_proxies`, `allow_from`, `rate_limit`.

use super::keys::{ConfigKey, ConfigValueType, key};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::{ListenAddress, units};
use crate::action::forward::ip_filter::IpRange;
use crate::decide::limits;
use crate::decide::refusal_limit::RefusalRate;
use std::collections::HashMap;
use std::sync::Arc;

/// The keys of the top level.
pub(super) const CLIENT_KEYS: &[ConfigKey] = &[
    key(
        "trusted_proxies",
        ConfigValueType::Texts,
        "none",
        "Addresses of proxies in front, such as [\"10.0.0.0/8\"]: what they say of a client's address in X-Forwarded-For or \
         Forwarded is believed, of both ports.",
    ),
    key(
        "rate_limit",
        ConfigValueType::Rate,
        "none",
        "How many refused deliveries of one address are answered one by one, such as \"60/m\"; an IPv6 network /64 counts \
         as one address. A delivery that verifies is never limited.",
    ),
];

/// The keys of a source.
pub(super) const SOURCE_CLIENT_KEYS: &[ConfigKey] = &[
    key(
        "allow_from",
        ConfigValueType::Texts,
        "every address",
        "The addresses that may send, such as [\"192.30.252.0/22\"]; others are refused with 403 before the body is read.",
    ),
    key("rate_limit", ConfigValueType::Rate, "the top level's", "The same for this source."),
];

/// What a node believes and accepts of its clients' addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientRules {
    /// The proxies whose word about a client's address counts.
    pub trusted_proxies: Vec<IpRange>,
    /// The rate of refusals for paths without a source.
    pub rate_limit: Option<RefusalRate>,
    /// The rules of each source, by its name.
    pub sources: HashMap<Arc<str>, SourceClientRules>,
}

/// The rules of one source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceClientRules {
    /// The addresses that may send; `None`: all.
    pub allow_from: Option<Vec<IpRange>>,
    /// The rate of refusals of each address.
    pub rate_limit: Option<RefusalRate>,
}

impl ConfigResolver<'_> {
    /// The rules of the top level.
    pub(super) fn client_rules(&mut self, top: &ConfigSection<'_>) -> ClientRules {
        let trusted_proxies = self.ranges(top, "trusted_proxies").unwrap_or_default();
        if let Some(all) = trusted_proxies.iter().find(|range| range.is_everything()) {
            self.diagnostics
                .warning("`trusted_proxies` trusts every client to say where it is")
                .at(top.place("trusted_proxies"), format!("{all} is every address"))
                .hint("name the addresses of your proxies only");
        }
        ClientRules { trusted_proxies, rate_limit: top.rate("rate_limit"), sources: HashMap::new() }
    }

    /// The rules of a source that listens on a path, beside those of the top level.
    pub(super) fn source_client_rules(
        &mut self,
        source: &ConfigSection<'_>,
        listens: bool,
        top: &ClientRules,
        listen: &ListenAddress,
    ) -> SourceClientRules {
        for name in ["allow_from", "rate_limit"] {
            if !listens && source.has(name) {
                self.diagnostics
                    .error(format!("`{name}` has no effect"))
                    .at(source.key_place(name), "nobody sends to this source over HTTP");
            }
        }
        let allow_from = self.ranges(source, "allow_from");
        let local = |ranges: &Vec<IpRange>| listen.all().any(|own| ranges.iter().any(|range| range.contains(own.ip())));
        if let Some(ranges) = &allow_from
            && listen.is_loopback()
            && top.trusted_proxies.is_empty()
            && !local(ranges)
        {
            self.diagnostics
                .warning("`allow_from` refuses every delivery")
                .at(source.place("allow_from"), format!("only this machine can send to {listen}"))
                .hint("if a proxy on this machine passes deliveries on: trusted_proxies = [\"127.0.0.1\", \"::1\"]");
        }
        SourceClientRules { allow_from, rate_limit: source.rate("rate_limit").or(top.rate_limit) }
    }

    /// The ranges of addresses in a list; `None` if the key is absent.
    fn ranges(&mut self, section: &ConfigSection<'_>, name: &str) -> Option<Vec<IpRange>> {
        let node = section.node(name)?;
        let list = node.list().unwrap_or(&[]);
        if list.len() > limits::ADDRESS_RANGES_MAX {
            let most = limits::ADDRESS_RANGES_MAX;
            self.diagnostics.error(format!("`{name}` has more than {most} ranges")).at(node.at, "");
        }
        if list.is_empty() && name == "allow_from" {
            self.diagnostics.error("`allow_from` is empty, so nobody could send").at(node.at, "");
        }
        let mut ranges = Vec::new();
        for item in list {
            match item.text().map(str::parse::<IpRange>) {
                Some(Ok(range)) => ranges.push(range),
                Some(Err(why)) => {
                    self.diagnostics.error(format!("`{name}` cannot be read")).at(item.at, why);
                }
                None => {}
            }
        }
        Some(ranges)
    }
}

/// A rate as it is written in the config.
pub(crate) fn rate_text(rate: RefusalRate) -> String {
    units::rate_text(rate.count, rate.within)
}
