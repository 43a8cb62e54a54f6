//! The address of a client: of its connection, or what trusted proxies say. And what is accepted of it: the addresses
//! that may send, and how many refusals of one address are answered one by one.

use crate::action::forward::ip_filter::IpRange;
use crate::config::ClientRules;
use crate::decide::refusal_limit::RefusalLimiter;
use crate::decide::source::Source;
use crate::decide::time::Duration;
use http::{HeaderMap, header};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The proxies whose word about a client's address counts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedProxies(Arc<[IpRange]>);

impl TrustedProxies {
    /// Those of a config.
    pub(crate) fn of(rules: &ClientRules) -> Self {
        Self(rules.trusted_proxies.clone().into())
    }

    /// The address of the client that a request comes from.
    ///
    /// Each proxy adds the address that it was asked from at the end of the list. So the last address that is not a
    /// trusted proxy's is the client's; what stands before it, the client may have written itself. If there are both
    /// headers and they differ, the proxy has passed one on as the client wrote it: then neither counts.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.trusts(peer) {
            return peer;
        }
        let listed = headers.contains_key(X_FORWARDED_FOR);
        let forwarded = headers.contains_key(header::FORWARDED);
        let by_list = || self.walk(peer, entries(headers, X_FORWARDED_FOR).map(address));
        let by_forwarded = || self.walk(peer, entries(headers, header::FORWARDED.as_str()).map(forwarded_for));
        match (listed, forwarded) {
            (false, false) => peer,
            (true, false) => by_list(),
            (false, true) => by_forwarded(),
            (true, true) => {
                let (one, other) = (by_list(), by_forwarded());
                if one == other { one } else { peer }
            }
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// Goes back from one proxy to the next. An entry that is no address ends it: its proxy's address is the last known.
    fn walk(&self, peer: IpAddr, entries: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for entry in entries {
            let (true, Some(before)) = (self.trusts(client), entry) else { break };
            client = before;
        }
        client
    }
}

/// The entries of all headers with this name, the last one first.
fn entries<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h str> {
    let values: Vec<_> = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("")).collect();
    values.into_iter().rev().flat_map(|value| value.rsplit(',')).map(str::trim)
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    let found = text.parse().ok().or_else(bare).or_else(|| text.parse::<SocketAddr>().ok().map(|at| at.ip()));
    found.map(|address: IpAddr| address.to_canonical())
}

/// The address of `for=` in an entry of `Forwarded`. A value with a comma in quotes is cut and is no address.
fn forwarded_for(entry: &str) -> Option<IpAddr> {
    let mut found = entry.split(';').filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then(|| value.trim())
    });
    let (value, None) = (found.next()?, found.next()) else { return None };
    address(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

/// The network that a client counts as: an IPv6 client can use a whole /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

/// What a node knows and accepts of the addresses of those who send.
#[derive(Debug)]
pub struct ClientGuard {
    proxies: TrustedProxies,
    rules: ClientRules,
    /// By the name of the source; `None` is for paths without one.
    limiters: HashMap<Option<Arc<str>>, Mutex<RefusalLimiter<IpAddr>>>,
    since: Instant,
}

impl Default for ClientGuard {
    fn default() -> Self {
        Self::new(&ClientRules::default())
    }
}

impl ClientGuard {
    /// A guard with the rules of a config.
    pub(crate) fn new(rules: &ClientRules) -> Self {
        let sources = rules.sources.iter().map(|(name, source)| (Some(name.clone()), source.rate_limit));
        let all = sources.chain([(None, rules.rate_limit)]);
        let limiters = all.filter_map(|(name, rate)| Some((name, Mutex::new(RefusalLimiter::new(rate?)))));
        Self {
            proxies: TrustedProxies::of(rules),
            limiters: limiters.collect(),
            rules: rules.clone(),
            since: Instant::now(),
        }
    }

    /// The guard for a config that was loaded later. With the same rules it is this one, and what it has counted stays.
    pub(crate) fn reconfigured(self: &Arc<Self>, rules: &ClientRules) -> Arc<Self> {
        if self.rules == *rules { self.clone() } else { Arc::new(Self::new(rules)) }
    }

    /// The address of the client that a request comes from.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.proxies.client(peer, headers)
    }

    /// Whether this address may send to this source.
    pub(crate) fn allows(&self, source: &Source, from: IpAddr) -> bool {
        let rules = self.rules.sources.get(&source.name);
        let ranges = rules.and_then(|rules| rules.allow_from.as_ref());
        ranges.is_none_or(|ranges| ranges.iter().any(|range| range.contains(from)))
    }

    fn limiter(&self, source: Option<&Source>) -> Option<MutexGuard<'_, RefusalLimiter<IpAddr>>> {
        let limiter = self.limiters.get(&source.map(|source| source.name.clone()))?;
        Some(limiter.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Until when the refusals of this address are not answered one by one; `None`: they are.
    pub(crate) fn limited_for(&self, source: Option<&Source>, from: IpAddr) -> Option<Duration> {
        self.limiter(source)?.exceeded_for(&network(from), self.since.elapsed())
    }

    /// Counts a refusal against this address.
    pub(crate) fn count_refusal(&self, source: Option<&Source>, from: IpAddr) {
        if let Some(mut limiter) = self.limiter(source) {
            limiter.count(&network(from), self.since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn check(peer: &str, headers: &[(&str, &str)], expected: &str) {
        let proxies = ["10.0.0.0/8", "127.0.0.1", "2001:db8:1::/48"].map(|range| range.parse().unwrap());
        let proxies = TrustedProxies(proxies.into());
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()))
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            });
        let found = proxies.client(peer.parse().unwrap(), &map);
        assert_eq!(found.to_string(), expected, "{peer} {headers:?}");
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
        let list = "x-forwarded-for";
        check("127.0.0.1", &[], "127.0.0.1");
        check("127.0.0.1", &[(list, "203.0.113.9")], "203.0.113.9");
        check("::ffff:127.0.0.1", &[(list, "203.0.113.9")], "203.0.113.9");
        check("127.0.0.1", &[(list, "1.1.1.1, 203.0.113.9")], "203.0.113.9");
        check("127.0.0.1", &[(list, "203.0.113.9, 10.0.0.7")], "203.0.113.9");
        check("127.0.0.1", &[(list, "203.0.113.9"), (list, "10.0.0.7")], "203.0.113.9");
        check("127.0.0.1", &[(list, "1.1.1.1"), (list, "203.0.113.9")], "203.0.113.9");
        check("127.0.0.1", &[(list, "10.0.0.9, 10.0.0.7")], "10.0.0.9");
        for written in ["203.0.113.9:4711", "[2001:db8::9]:4711", "[2001:db8::9]", "2001:db8::9", "::ffff:203.0.113.9"]
        {
            let expected = if written.contains("db8") { "2001:db8::9" } else { "203.0.113.9" };
            check("127.0.0.1", &[(list, written)], expected);
        }
        check("2001:db8:1::5", &[("forwarded", "for=\"[2001:db8::9]:80\";proto=https")], "2001:db8::9");
        check("127.0.0.1", &[("forwarded", "for=1.1.1.1, For=203.0.113.9;by=10.0.0.1, for=10.0.0.7")], "203.0.113.9");
    }

    #[test]
    fn an_address_is_never_believed_from_others_or_by_half() {
        let list = "x-forwarded-for";
        for header in [(list, "192.30.252.1"), ("forwarded", "for=192.30.252.1")] {
            check("203.0.113.9", &[header], "203.0.113.9");
        }
        // What is no address hides what stands before it.
        for odd in ["unknown", "_hidden", "", "1.1.1", "1.1.1.1 1.1.1.1", "\"1.1.1.1\"", "1.1.1.1:x", "localhost"] {
            check("127.0.0.1", &[(list, &format!("192.30.252.1, {odd}"))], "127.0.0.1");
            check("127.0.0.1", &[(list, &format!("192.30.252.1, {odd}, 10.0.0.7"))], "10.0.0.7");
        }
        for odd in ["for=_secret", "by=1.1.1.1", "for=1.1.1.1;for=1.1.1.2", "", "1.1.1.1", "for=\"1.1.1.1"] {
            check("127.0.0.1", &[("forwarded", &format!("for=192.30.252.1, {odd}"))], "127.0.0.1");
        }
        // A proxy that writes one header passes the other on as the client wrote it.
        check("127.0.0.1", &[(list, "203.0.113.9"), ("forwarded", "for=192.30.252.1")], "127.0.0.1");
        check("127.0.0.1", &[(list, "203.0.113.9"), ("forwarded", "for=203.0.113.9")], "203.0.113.9");
    }

    #[test]
    fn an_ipv6_network_and_a_mapped_address_count_as_one() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(network(address).to_string(), expected);
        }
    }
}
