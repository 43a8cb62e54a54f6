//! The addresses that a port listens on: one, or those that a name stands for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
const EVERYWHERE: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// The addresses of one port. All have the same port number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenAddress {
    /// The one by which the port is shown.
    pub first: SocketAddr,
    /// The others. One that this machine does not have is left out.
    pub others: Vec<SocketAddr>,
}

impl From<SocketAddr> for ListenAddress {
    fn from(first: SocketAddr) -> Self {
        Self { first, others: Vec::new() }
    }
}

impl ListenAddress {
    /// Parses `127.0.0.1:3142`, `[::1]:3142`, `:3142` (every address, of IPv4 and IPv6), or a name with a port.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let expected = || "expected an address and a port, such as \"127.0.0.1:3142\", \":3142\" or \"localhost:3142\"";
        let (name, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port: u16 = port.parse().ok().filter(|_| digits).ok_or_else(expected)?;
        let with_port = |ips: &[IpAddr]| ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect::<Vec<_>>();
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
        let found = match name {
            "" => with_port(&EVERYWHERE),
            // Never another machine, whatever a resolver says.
            "localhost" => with_port(&LOCALHOST),
            name if is_name(name) => {
                let found =
                    (name, port).to_socket_addrs().map_err(|error| format!("{name} has no address: {error}"))?;
                found.collect()
            }
            _ => return Err(expected().to_owned()),
        };
        let mut all: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        // IPv4 first: it is what people know their machine by.
        all.sort_by_key(SocketAddr::is_ipv6);
        let mut all = all.into_iter();
        let first = all.next().ok_or_else(|| format!("{name} has no address"))?;
        Ok(Self { first, others: all.collect() })
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = SocketAddr> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// Whether only this machine can reach it.
    pub(crate) fn is_loopback(&self) -> bool {
        self.all().all(|address| address.ip().is_loopback())
    }

    /// Whether both cannot be opened together.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let same = |one: SocketAddr, two: SocketAddr| {
            let shared = one.ip() == two.ip() || one.ip().is_unspecified() || two.ip().is_unspecified();
            one.port() != 0 && one.port() == two.port() && shared
        };
        self.all().any(|one| other.all().any(|two| same(one, two)))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.others.iter().try_for_each(|other| write!(f, " and {other}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_every_address_and_a_name_is_its_addresses() {
        for (text, expected) in [
            ("127.0.0.1:3142", "127.0.0.1:3142"),
            ("[::1]:3142", "[::1]:3142"),
            ("[::]:0", "[::]:0"),
            (":3142", "0.0.0.0:3142 and [::]:3142"),
            ("localhost:3142", "127.0.0.1:3142 and [::1]:3142"),
        ] {
            assert_eq!(ListenAddress::parse(text).map(|found| found.to_string()), Ok(expected.to_owned()));
        }
        for text in ["", ":", "here", "3142", ":x", ":+1", ":70000", "a b:1", "a/b:1", "localhost:", "::1:3142"] {
            assert!(ListenAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ports_overlap_where_they_have_an_address_in_common() {
        let overlap = |one: &str, two: &str| {
            let parse = |text| ListenAddress::parse(text).unwrap();
            parse(one).overlaps(&parse(two))
        };
        assert!(
            overlap(":1", "127.0.0.1:1") && overlap("localhost:1", "[::1]:1") && overlap("10.0.0.1:1", "10.0.0.1:1")
        );
        assert!(!overlap(":1", ":2") && !overlap("127.0.0.1:1", "10.0.0.1:1") && !overlap(":0", ":0"));
    }
}
