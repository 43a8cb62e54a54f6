//! The address of a container registry, as a config names it: a host, or `http://` and a host for one without TLS.

use super::image_reference::{ImageName, ImageReferenceError};
use core::net::{IpAddr, Ipv6Addr}; // only the types: nothing here has a socket
use std::fmt;

/// Names of Docker Hub; its API is at the last of them.
const HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
/// Maximum length of a host name (RFC 1035).
const HOST_BYTES_MAX: usize = 253;

/// The address of a container registry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RegistryAddress {
    /// The host in lower case, with its port if it has one.
    authority: String,
    transport: RegistryTransport,
}

/// How a registry is reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegistryTransport {
    /// HTTPS.
    Tls,
    /// HTTP without TLS, because the address says so.
    Plain,
}

/// Why a text is not the address of a registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistryAddressError(&'static str);

impl fmt::Display for RegistryAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for RegistryAddressError {}

impl RegistryAddress {
    /// Parses `ghcr.io`, `registry.example.com:5000`, `https://…` or `http://…`.
    pub fn parse(text: &str) -> Result<Self, RegistryAddressError> {
        let (transport, authority) = match text.split_once("://") {
            None => (RegistryTransport::Tls, text),
            Some(("https", rest)) => (RegistryTransport::Tls, rest),
            Some(("http", rest)) => (RegistryTransport::Plain, rest),
            Some(_) => return Err(RegistryAddressError("it is neither http nor https")),
        };
        if authority.contains('@') {
            return Err(RegistryAddressError("credentials do not belong in the address"));
        }
        if authority.contains('/') {
            return Err(RegistryAddressError("it is a host without a path; the name of the image belongs in `image`"));
        }
        let (host, port) = split_port(authority);
        if !is_host(host) {
            return Err(RegistryAddressError("it is not the name or address of a host"));
        }
        if port.is_some_and(|port| !is_port(port)) {
            return Err(RegistryAddressError("its port is not a number from 1 to 65535"));
        }
        Ok(Self { authority: authority.to_ascii_lowercase(), transport })
    }

    /// The beginning of its URLs: scheme, host and port.
    pub fn base_url(&self) -> String {
        let host = if self.is_docker_hub() { HUB[2] } else { &self.authority };
        match self.transport {
            RegistryTransport::Tls => format!("https://{host}"),
            RegistryTransport::Plain => format!("http://{host}"),
        }
    }

    /// Its host, without the port.
    pub fn host(&self) -> &str {
        split_port(&self.authority).0
    }

    /// How it is reached.
    pub fn transport(&self) -> RegistryTransport {
        self.transport
    }

    /// Whether it is on this machine.
    pub fn is_loopback(&self) -> bool {
        let host = self.host();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
    }

    /// Whether it is Docker Hub.
    pub fn is_docker_hub(&self) -> bool {
        HUB.contains(&&*self.authority)
    }

    /// The name of an image in this registry. On Docker Hub `nginx` is `library/nginx`.
    pub fn image(&self, name: &str) -> Result<ImageName, ImageReferenceError> {
        if self.is_docker_hub() && !name.contains('/') {
            ImageName::parse(&format!("library/{name}"))
        } else {
            ImageName::parse(name)
        }
    }

    /// What follows the name of this registry in the name of an image, where someone has written it there, too.
    pub fn without_own_name<'t>(&self, image: &'t str) -> Option<&'t str> {
        let (first, rest) = image.split_once('/')?;
        self.has_login_key(first).then_some(rest)
    }

    /// Whether this key of docker's config file is for this registry. A key is a host, or a URL such as
    /// `https://index.docker.io/v1/`.
    pub fn has_login_key(&self, key: &str) -> bool {
        let authority = key.split_once("://").map_or(key, |(_, rest)| rest);
        let authority = authority.split('/').next().unwrap_or(authority).to_ascii_lowercase();
        authority == self.authority || (self.is_docker_hub() && HUB.contains(&&*authority))
    }
}

/// As a config writes it.
impl fmt::Display for RegistryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            RegistryTransport::Tls => f.write_str(&self.authority),
            RegistryTransport::Plain => write!(f, "http://{}", self.authority),
        }
    }
}

/// The host and the port of an authority. An IPv6 address is in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        let letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        letters && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.len() <= HOST_BYTES_MAX && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, url: &str, shown: &str) {
        let address = RegistryAddress::parse(text).unwrap();
        assert_eq!((&*address.base_url(), &*address.to_string()), (url, shown));
        assert_eq!(RegistryAddress::parse(shown), Ok(address), "what is shown can be written");
    }

    #[test]
    fn an_address_is_a_host_and_perhaps_a_port() {
        check("ghcr.io", "https://ghcr.io", "ghcr.io");
        check("GHCR.io", "https://ghcr.io", "ghcr.io");
        check("https://registry.example.com:5000", "https://registry.example.com:5000", "registry.example.com:5000");
        check("http://127.0.0.1:5000", "http://127.0.0.1:5000", "http://127.0.0.1:5000");
        check("[::1]:5000", "https://[::1]:5000", "[::1]:5000");
        check("docker.io", "https://registry-1.docker.io", "docker.io");
    }

    #[test]
    fn nothing_else_is_an_address() {
        for text in [
            "",
            "a b",
            "ghcr.io/",
            "ghcr.io/o/app",
            "user:pass@ghcr.io",
            "ftp://ghcr.io",
            "ghcr.io:",
            "ghcr.io:0",
            "ghcr.io:+1",
            "ghcr.io:65536",
            "-a",
            "a..b",
            "[::1",
            "::1",
            "ghcr.io?x",
            "ghcr.io#x",
            "{host}",
            "é.io",
        ] {
            assert!(RegistryAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_an_address_of_this_machine_is_loopback() {
        for (text, expected) in [
            ("http://127.0.0.1:5000", true),
            ("localhost:5000", true),
            ("http://[::1]:5000", true),
            ("ghcr.io", false),
            ("127.0.0.1.example.com", false),
            ("10.0.0.1:5000", false),
        ] {
            assert_eq!(RegistryAddress::parse(text).unwrap().is_loopback(), expected, "{text}");
        }
    }

    #[test]
    fn an_official_image_of_docker_hub_is_in_library() {
        let name =
            |registry: &str, image: &str| RegistryAddress::parse(registry).unwrap().image(image).unwrap().to_string();
        assert_eq!(name("docker.io", "nginx"), "library/nginx");
        assert_eq!(name("registry-1.docker.io", "nginx"), "library/nginx");
        assert_eq!(name("docker.io", "octocat/app"), "octocat/app");
        assert_eq!(name("ghcr.io", "nginx"), "nginx");
    }

    #[test]
    fn only_its_own_name_is_found_in_the_name_of_an_image() {
        for (registry, image, expected) in [
            ("ghcr.io", "ghcr.io/octocat/app", Some("octocat/app")),
            ("ghcr.io", "GHCR.io/{namespace}/{package}", Some("{namespace}/{package}")),
            ("docker.io", "index.docker.io/nginx", Some("nginx")),
            ("http://127.0.0.1:5000", "127.0.0.1:5000/app", Some("app")),
            ("ghcr.io", "octocat/app", None),
            ("ghcr.io", "ghcr.io", None),
            ("ghcr.io", "docker.io/nginx", None),
        ] {
            assert_eq!(RegistryAddress::parse(registry).unwrap().without_own_name(image), expected, "{image}");
        }
    }

    #[test]
    fn a_login_is_for_its_own_registry_however_docker_writes_it() {
        for (registry, key, expected) in [
            ("docker.io", "https://index.docker.io/v1/", true),
            ("registry-1.docker.io", "docker.io", true),
            ("ghcr.io", "ghcr.io", true),
            ("ghcr.io", "https://GHCR.io/v2/", true),
            ("ghcr.io", "ghcr.io:443", false),
            ("ghcr.io", "ghcr.io.example.com", false),
            ("ghcr.io", "https://index.docker.io/v1/", false),
            ("http://127.0.0.1:5000", "127.0.0.1:5000", true),
            ("http://127.0.0.1:5000", "127.0.0.1:5001", false),
        ] {
            assert_eq!(RegistryAddress::parse(registry).unwrap().has_login_key(key), expected, "{registry} {key}");
        }
    }
}
