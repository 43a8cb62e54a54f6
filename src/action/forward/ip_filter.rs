//! SSRF protection: which addresses a URL with a field in it may reach. None that are not on the public internet,
//! unless `allow` lists them.
//!
//! A name is resolved once, and exactly the checked addresses are connected to, so DNS rebinding has no effect.

use std::error::Error;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, io};

/// A future of a name's addresses.
pub(crate) type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names: with the system's resolver, or a test's.
#[derive(Clone)]
pub struct DnsResolver(pub Arc<dyn Fn(String) -> ResolveFuture + Send + Sync>);

impl Default for DnsResolver {
    fn default() -> Self {
        Self(Arc::new(|name| {
            Box::pin(async move {
                let found = tokio::net::lookup_host((name, 0)).await?;
                Ok(found.map(|address| address.ip()).collect())
            })
        }))
    }
}

impl fmt::Debug for DnsResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// A range of IP addresses, such as `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpRange {
    first: IpAddr,
    bits: u8,
}

impl IpRange {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(a: u16, b: u16, c: u16, d: u16, bits: u8) -> Self {
        Self { first: IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)), bits }
    }

    /// Whether it is every address of its kind.
    pub fn is_everything(&self) -> bool {
        self.bits == 0
    }

    /// Whether this address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same =
            |one: u128, other: u128, of: u32| (one ^ other).checked_shr(of - u32::from(self.bits)).unwrap_or(0) == 0;
        match (self.first, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => same(one.to_bits().into(), other.to_bits().into(), 32),
            (IpAddr::V6(one), IpAddr::V6(other)) => same(one.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for IpRange {
    type Err = String;

    /// Parses a range; a single address is a range of one.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected a range of addresses, such as \"10.0.0.0/8\"".to_owned();
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| expected())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let digits = |bits: &str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|n| *n <= most && digits(bits)).ok_or_else(expected)?,
        };
        let range = Self { first, bits };
        let begins = match first {
            IpAddr::V4(first) => first.to_bits().checked_shl(bits.into()).unwrap_or(0) == 0,
            IpAddr::V6(first) => first.to_bits().checked_shl(bits.into()).unwrap_or(0) == 0,
        };
        if begins { Ok(range) } else { Err(format!("{address} is not the first address of a /{bits} range")) }
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// IPv4 ranges that are not on the public internet (IANA's special-purpose registry), each with a description.
const CLOSED_V4: [(IpRange, &str); 17] = [
    (IpRange::v4(0, 0, 0, 0, 8), "this network"),
    (IpRange::v4(10, 0, 0, 0, 8), "private"),
    (IpRange::v4(100, 64, 0, 0, 10), "shared by a carrier"),
    (IpRange::v4(127, 0, 0, 0, 8), "loopback"),
    (IpRange::v4(169, 254, 0, 0, 16), "link-local"),
    (IpRange::v4(172, 16, 0, 0, 12), "private"),
    (IpRange::v4(192, 0, 0, 0, 24), "reserved"),
    (IpRange::v4(192, 0, 2, 0, 24), "for documentation"),
    (IpRange::v4(192, 31, 196, 0, 24), "reserved"),
    (IpRange::v4(192, 52, 193, 0, 24), "reserved"),
    (IpRange::v4(192, 88, 99, 0, 24), "a 6to4 relay"),
    (IpRange::v4(192, 168, 0, 0, 16), "private"),
    (IpRange::v4(198, 18, 0, 0, 15), "for benchmarks"),
    (IpRange::v4(198, 51, 100, 0, 24), "for documentation"),
    (IpRange::v4(203, 0, 113, 0, 24), "for documentation"),
    (IpRange::v4(224, 0, 0, 0, 4), "multicast"),
    (IpRange::v4(240, 0, 0, 0, 4), "reserved"),
];

/// IPv6 ranges that are not on the public internet. Outside of them, only `2000::/3` is.
const CLOSED_V6: [(IpRange, &str); 15] = [
    (IpRange::v6(0, 0, 0, 0, 96), "loopback, or an address of IPv4"),
    (IpRange::v6(0, 0, 0, 0, 64), "an address of IPv4"),
    (IpRange::v6(0x64, 0xff9b, 0, 0, 96), "an address of IPv4 (NAT64)"),
    (IpRange::v6(0x64, 0xff9b, 1, 0, 48), "an address of IPv4 (NAT64)"),
    (IpRange::v6(0x100, 0, 0, 0, 64), "discarded"),
    (IpRange::v6(0x2001, 0, 0, 0, 23), "reserved, or an address of IPv4 (Teredo)"),
    (IpRange::v6(0x2001, 0xdb8, 0, 0, 32), "for documentation"),
    (IpRange::v6(0x2002, 0, 0, 0, 16), "an address of IPv4 (6to4)"),
    (IpRange::v6(0x2620, 0x4f, 0x8000, 0, 48), "reserved"),
    (IpRange::v6(0x3fff, 0, 0, 0, 20), "for documentation"),
    (IpRange::v6(0x5f00, 0, 0, 0, 16), "reserved"),
    (IpRange::v6(0xfc00, 0, 0, 0, 7), "private"),
    (IpRange::v6(0xfe80, 0, 0, 0, 10), "link-local"),
    (IpRange::v6(0xfec0, 0, 0, 0, 10), "private"),
    (IpRange::v6(0xff00, 0, 0, 0, 8), "multicast"),
];
const OPEN_V6: IpRange = IpRange::v6(0x2000, 0, 0, 0, 3);

/// The kind of address, if it is not on the public internet.
pub(crate) fn special_purpose(address: IpAddr) -> Option<&'static str> {
    let closed = match address {
        IpAddr::V4(_) => &CLOSED_V4[..],
        IpAddr::V6(_) => &CLOSED_V6[..],
    };
    let word = closed.iter().find(|(range, _)| range.contains(address)).map(|(_, word)| *word);
    word.or_else(|| (address.is_ipv6() && !OPEN_V6.contains(address)).then_some("reserved"))
}

/// An address that must not be connected to, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ForbiddenAddressError {
    address: IpAddr,
    word: &'static str,
}

impl ForbiddenAddressError {
    /// What is wrong with the address.
    pub(crate) fn why(&self) -> String {
        format!("{} is {}", self.address, self.word)
    }
}

impl fmt::Display for ForbiddenAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, word } = self;
        write!(
            f,
            "its URL has a field in it and resolves to {address}, which is {word}; add it to `allow` to permit it"
        )
    }
}

impl Error for ForbiddenAddressError {}

/// Whether a URL with a field in it may reach this address.
pub(crate) fn check_address(address: IpAddr, allow: &[IpRange]) -> Result<(), ForbiddenAddressError> {
    match special_purpose(address) {
        Some(word) if !allow.iter().any(|range| range.contains(address)) => {
            Err(ForbiddenAddressError { address, word })
        }
        _ => Ok(()),
    }
}

/// The HTTP client's resolver: returns all of a name's addresses, or an error if one of them is not allowed.
pub(crate) struct FilteringResolver {
    pub(crate) resolver: DnsResolver,
    pub(crate) allow: Arc<[IpRange]>,
}

impl reqwest::dns::Resolve for FilteringResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let (found, allow) = ((self.resolver.0)(name.as_str().to_owned()), self.allow.clone());
        Box::pin(async move {
            let found = found.await?;
            for address in &found {
                check_address(*address, &allow)?;
            }
            // The port is the URL's.
            let found: reqwest::dns::Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(special_purpose(text.parse().unwrap()), expected, "{text}");
    }

    #[test]
    fn the_edges_of_every_range_are_where_the_registry_has_them() {
        for (first, last, word) in [
            ("0.0.0.0", "0.255.255.255", "this network"),
            ("10.0.0.0", "10.255.255.255", "private"),
            ("100.64.0.0", "100.127.255.255", "shared by a carrier"),
            ("127.0.0.0", "127.255.255.255", "loopback"),
            ("169.254.0.0", "169.254.255.255", "link-local"),
            ("172.16.0.0", "172.31.255.255", "private"),
            ("192.0.0.0", "192.0.0.255", "reserved"),
            ("192.0.2.0", "192.0.2.255", "for documentation"),
            ("192.88.99.0", "192.88.99.255", "a 6to4 relay"),
            ("192.168.0.0", "192.168.255.255", "private"),
            ("198.18.0.0", "198.19.255.255", "for benchmarks"),
            ("198.51.100.0", "198.51.100.255", "for documentation"),
            ("203.0.113.0", "203.0.113.255", "for documentation"),
            ("224.0.0.0", "239.255.255.255", "multicast"),
            ("240.0.0.0", "255.255.255.255", "reserved"),
            ("::", "::ffff", "loopback, or an address of IPv4"),
            ("::1", "::127.0.0.1", "loopback, or an address of IPv4"),
            ("::ffff:0.0.0.0", "::ffff:255.255.255.255", "an address of IPv4"),
            ("::ffff:8.8.8.8", "::ffff:0:127.0.0.1", "an address of IPv4"),
            ("64:ff9b::", "64:ff9b::255.255.255.255", "an address of IPv4 (NAT64)"),
            ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "an address of IPv4 (NAT64)"),
            ("100::", "100::ffff:ffff:ffff:ffff", "discarded"),
            ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved, or an address of IPv4 (Teredo)"),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "for documentation"),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "an address of IPv4 (6to4)"),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "for documentation"),
            ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private"),
            ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local"),
            ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private"),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"),
            ("4000::", "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"),
            ("1::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"),
        ] {
            check(first, Some(word));
            check(last, Some(word));
        }
        for open in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2000::",
            "2001:200::",
            "2001:4860:4860::8888",
            "2001:db9::",
            "2003::",
            "2606:4700:4700::1111",
            "3fff:1000::",
        ] {
            check(open, None);
        }
    }

    #[test]
    fn a_range_is_read_as_it_is_written() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.168.7.7/32", "::/0", "fd00::/8", "::1/128"] {
            assert_eq!(text.parse::<IpRange>().unwrap().to_string(), text);
        }
        assert_eq!("127.0.0.1".parse::<IpRange>().unwrap().to_string(), "127.0.0.1/32");
        for bad in ["", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/", "10.0.0.0/+8", "a/8", "::/129", "fd00::1/8", "10/8"] {
            assert!(bad.parse::<IpRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_allowed_may_be_reached_and_nothing_else() {
        let allow = ["10.1.0.0/16".parse().unwrap(), "::1".parse().unwrap()];
        for (address, may) in
            [("10.1.2.3", true), ("10.2.0.0", false), ("::1", true), ("::2", false), ("8.8.8.8", true)]
        {
            assert_eq!(check_address(address.parse().unwrap(), &allow).is_ok(), may, "{address}");
        }
        let everything: IpRange = "0.0.0.0/0".parse().unwrap();
        assert!(check_address("127.0.0.1".parse().unwrap(), &[everything]).is_ok());
        assert!(check_address("::1".parse().unwrap(), &[everything]).is_err());
    }
}
