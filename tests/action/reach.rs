//! Where a URL with a field may lead, and where it may not, whatever value the sender puts into the field.

use super::forward::TIMEOUT;
use super::receiver::{Fixture, status};
use super::*;
use hookonce::internals::action::plan::ReceiverPlan;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

/// Addresses that no field may lead to.
const CLOSED: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.254",
    "127.0.0.1",
    "127.0.0.53",
    "127.255.255.255",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.168.255.255",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::2",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:10::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a00:1::",
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456:789a::1",
    "fdff:ffff::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "4000::1",
    "8000::1",
    "1::1",
];

/// Other spellings of IP addresses, to be used as `{host}`.
const WRITTEN: &[&str] =
    &["2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "0", "0xA9FEA9FE", "3232235521"];

/// A DNS resolver with fixed names, which counts the lookups of each.
#[derive(Clone, Default)]
struct Names {
    known: Arc<HashMap<String, Vec<IpAddr>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Names {
    fn new(known: impl IntoIterator<Item = (String, Vec<IpAddr>)>) -> Self {
        Self { known: Arc::new(known.into_iter().collect()), ..Self::default() }
    }

    /// Returns the known address the first time; from then on another.
    fn resolver(&self) -> DnsResolver {
        let names = self.clone();
        DnsResolver(Arc::new(move |name| {
            names.asked.lock().unwrap().push(name.clone());
            let again = names.asked.lock().unwrap().iter().filter(|asked| **asked == name).count() > 1;
            let found = if again {
                vec![IpAddr::from([192, 0, 2, 1])]
            } else {
                names.known.get(&name).cloned().unwrap_or_default()
            };
            Box::pin(
                async move { if found.is_empty() { Err(std::io::Error::other("no such name")) } else { Ok(found) } },
            )
        }))
    }
}

/// `{a}`, `{b}`, … are fields.
fn template(url: &str) -> FieldTemplate {
    let piece = |(i, part): (usize, &str)| {
        if i % 2 == 1 { FieldTemplatePart::Field(part.into()) } else { FieldTemplatePart::Text(part.into()) }
    };
    FieldTemplate(url.split(['{', '}']).enumerate().filter(|(_, part)| !part.is_empty()).map(piece).collect())
}

fn forward(url: &str, allow: &[&str], names: &Names) -> Arc<dyn Action> {
    let allow = allow.iter().map(|range| range.parse().unwrap()).collect();
    let receiver = ReceiverPlan { allow, ..ReceiverPlan::new(template(url), TIMEOUT) };
    let environment = ActionEnvironment { resolver: names.resolver(), ..environment(&[], &[]) };
    build_action(ActionPlan::Forward(vec![receiver]), &environment).unwrap()
}

fn check(outcome: &Outcome, what: &str) {
    assert_eq!(outcome.word(), "rejected", "{what}: {}", outcome.why());
    assert!(outcome.why().starts_with("its URL has a field in it and resolves to "), "{what}: {}", outcome.why());
}

#[tokio::test]
async fn no_name_resolves_to_a_forbidden_address() {
    assert!(CLOSED.len() >= 60, "{}", CLOSED.len());
    let addresses: Vec<IpAddr> = CLOSED.iter().map(|text| text.parse().unwrap()).collect();
    let open: IpAddr = "93.184.215.14".parse().unwrap();
    let alone = addresses.iter().enumerate().map(|(i, address)| (format!("n{i}.test"), vec![*address]));
    // A name with an additional public address is refused, too.
    let mixed = addresses.iter().enumerate().map(|(i, address)| (format!("m{i}.test"), vec![open, *address]));
    let names = Names::new(alone.chain(mixed));
    let action = forward("http://{name}.test/", &[], &names);
    for (i, address) in addresses.iter().enumerate() {
        for name in [format!("n{i}"), format!("m{i}")] {
            let outcome = Bench::with([("name", name)]).act(&*action).await;
            check(&outcome, &address.to_string());
            assert!(outcome.why().contains(&format!("resolves to {address}, which is ")), "{}", outcome.why());
        }
    }
    assert_eq!(names.asked.lock().unwrap().len(), 2 * CLOSED.len());
}

#[tokio::test]
async fn no_spelling_of_a_forbidden_address_is_accepted() {
    let names = Names::default();
    for text in WRITTEN.iter().filter(|text| !text.contains('.')) {
        let action = forward("http://{host}/", &[], &names);
        check(&Bench::with([("host", (*text).to_owned())]).act(&*action).await, text);
    }
    for text in WRITTEN.iter().chain(CLOSED).filter(|text| text.contains('.') && !text.contains(':')) {
        let labels: Vec<_> = text.split('.').collect();
        let fields = ["a", "b", "c", "d"];
        let url: Vec<_> = fields.iter().take(labels.len()).map(|name| format!("{{{name}}}")).collect();
        let action = forward(&format!("http://{}/", url.join(".")), &[], &names);
        let bench = Bench::with(fields.into_iter().zip(labels.into_iter().map(str::to_owned)));
        check(&bench.act(&*action).await, text);
    }
    // The host is fixed in the config, but a field is part of the URL.
    for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1]"] {
        let action = forward(&format!("http://{host}/hooks/{{repo}}"), &[], &names);
        check(&Bench::with([("repo", "r".to_owned())]).act(&*action).await, host);
    }
    assert!(names.asked.lock().unwrap().is_empty(), "an IP address is not looked up");
}

#[tokio::test]
async fn an_invalid_host_label_is_never_looked_up() {
    let names = Names::default();
    let action = forward("http://{name}.test/", &[], &names);
    for bad in ["", "a.b", "localhost:22", "a@b", "[::1]", "a/b", "a#", "a?b", "-a", "a b", "a\\b", "a%00", "é"] {
        let outcome = Bench::with([("name", bad.to_owned())]).act(&*action).await;
        let why = "the field `name` is not allowed at its position in the URL";
        assert_eq!((outcome.word(), outcome.why()), ("rejected", why), "{bad}");
    }
    let outcome = Bench::with([("name", "unknown".to_owned())]).act(&*action).await;
    assert_eq!((outcome.word(), outcome.why()), ("failed", "not connected: no such name"));
    assert_eq!(*names.asked.lock().unwrap(), ["unknown.test"]);
}

#[tokio::test]
async fn an_allowed_host_is_connected_to_at_the_address_that_was_checked() {
    let fixture = Fixture::serve(vec![status("200 OK", "")]).await;
    let port = fixture.url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let names = Names::new([("tenant.test".to_owned(), vec!["127.0.0.1".parse().unwrap()])]);
    let url = format!("http://{{name}}.test:{port}/hooks/{{repo}}?ref={{ref}}");
    let fields = [("name", "tenant"), ("repo", "octo/../cat"), ("ref", "a&b=c")];
    let bench = Bench::with(fields.map(|(name, value)| (name, value.to_owned())));
    check(&bench.act(&*forward(&url, &["10.0.0.0/8", "::/0"], &names)).await, "another range");
    assert_eq!(fixture.requests().len(), 0);

    names.asked.lock().unwrap().clear();
    let action = forward(&url, &["127.0.0.0/8"], &names);
    let outcome = bench.act(&*action).await;
    assert_eq!(outcome.word(), "delivered", "{}", outcome.why());
    let request = String::from_utf8(fixture.requests().remove(0)).unwrap();
    assert!(request.starts_with("POST /hooks/octo%2F..%2Fcat?ref=a%26b%3Dc HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: tenant.test:{port}\r\n")), "{request}");
    assert_eq!(names.asked.lock().unwrap().len(), 1, "a second lookup would have returned another address");
}

#[tokio::test]
async fn a_redirect_from_a_url_with_a_field_is_not_followed() {
    let inner = Fixture::serve(vec![status("200 OK", "")]).await;
    let outer = Fixture::serve(vec![status("302 Found", &format!("Location: {}\r\n", inner.url()))]).await;
    let url = outer.url().replace("/in", "/{repo}");
    let bench = Bench::with([("repo", "r".to_owned())]);
    let outcome = bench.act(&*forward(&url, &["127.0.0.1"], &Names::default())).await;
    assert_eq!((outcome.word(), outcome.why()), ("rejected", "the receiver responded with 302"));
    assert_eq!((outer.requests().len(), inner.requests().len()), (1, 0));
}

#[tokio::test]
async fn a_url_without_fields_is_trusted_wherever_it_leads() {
    let fixture = Fixture::serve(vec![status("200 OK", "")]).await;
    assert_eq!(Bench::new().act(&*forward(&fixture.url(), &[], &Names::default())).await.word(), "delivered");
}
