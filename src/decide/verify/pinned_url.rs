//! Which URLs of a delivery may be fetched: those of a pinned host, which the config knows. Nothing in a delivery chooses
//! the host.

use crate::decide::limits;

/// The host that URLs of deliveries must be at, and where its certificates are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PinnedHost {
    origin: String,
    /// What the paths of certificates begin and end with.
    certificates: (&'static str, &'static str),
}

impl PinnedHost {
    /// The host of an SNS topic, which is that of its region. An error is a sentence.
    pub fn of_topic(arn: &str) -> Result<Self, &'static str> {
        let parts: Vec<_> = arn.split(':').collect();
        let ["arn", partition, "sns", region, account, name] = parts[..] else {
            return Err("expected an ARN such as arn:aws:sns:eu-west-1:123456789012:name");
        };
        let word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !word(region) || !word(account) || name.is_empty() {
            return Err("the ARN of a topic has a region, an account and a name");
        }
        match partition {
            "aws" | "aws-us-gov" => Ok(Self::sns(format!("https://sns.{region}.amazonaws.com"))),
            "aws-cn" => Ok(Self::sns(format!("https://sns.{region}.amazonaws.com.cn"))),
            _ => Err("the host of this partition is not known; set `certificates`"),
        }
    }

    /// A host of SNS: a scheme, a host, and its port if it has one.
    pub fn sns(origin: String) -> Self {
        Self { origin, certificates: ("/", ".pem") }
    }

    /// A host of PayPal: a scheme, a host, and its port if it has one.
    pub fn paypal(origin: String) -> Self {
        Self { origin, certificates: ("/v1/notifications/certs/", "") }
    }

    /// Its scheme, its name, and its port if it has one.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The URL of a certificate of this name.
    pub fn certificate_url(&self, name: &str) -> String {
        let (begin, end) = self.certificates;
        format!("{}{begin}{name}{end}", self.origin)
    }

    /// Whether a certificate may be fetched from this URL.
    pub fn allows_certificate(&self, url: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let (begin, end) = self.certificates;
        let name = self.path(url).and_then(|path| path.strip_prefix(begin));
        // One name, which is not `.` or `..`: a certificate has one URL, so that others do not fill the cache with it.
        name.is_some_and(|name| {
            name.ends_with(end) && name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        })
    }

    /// Whether a subscription may be confirmed at this URL.
    pub fn allows_confirmation(&self, url: &str) -> bool {
        let plain = |c: char| c.is_ascii_graphic() && c != '#';
        self.path(url).is_some_and(|path| path.starts_with("/?") && path.chars().all(plain))
    }

    /// The path of a URL at this host, and what follows it.
    fn path<'u>(&self, url: &'u str) -> Option<&'u str> {
        let path = url.strip_prefix(self.origin.as_str())?;
        (path.starts_with('/') && url.len() <= limits::KEY_URL_BYTES_MAX).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(partition: &str, region: &str) -> PinnedHost {
        PinnedHost::of_topic(&format!("arn:{partition}:sns:{region}:123456789012:jobs")).expect("a topic")
    }

    #[test]
    fn the_host_is_that_of_the_topics_region() {
        assert_eq!(topic("aws", "eu-west-1").origin(), "https://sns.eu-west-1.amazonaws.com");
        assert_eq!(topic("aws-us-gov", "us-gov-west-1").origin(), "https://sns.us-gov-west-1.amazonaws.com");
        assert_eq!(topic("aws-cn", "cn-north-1").origin(), "https://sns.cn-north-1.amazonaws.com.cn");
        for bad in [
            "",
            "jobs",
            "arn:aws:sqs:eu-west-1:123456789012:jobs",
            "arn:aws:sns:eu-west-1:123456789012",
            "arn:aws:sns:eu-west-1:123456789012:jobs:4e6e6e6e",
            "arn:aws:sns::123456789012:jobs",
            "arn:aws:sns:evil.org/:123456789012:jobs",
            "arn:aws:sns:eu-west-1:123456789012:",
            "arn:aws-iso:sns:us-iso-east-1:123456789012:jobs",
        ] {
            assert!(PinnedHost::of_topic(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_urls_under_the_pinned_host_are_allowed() {
        let sns = topic("aws", "eu-west-1");
        assert!(sns.allows_certificate("https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem"));
        for bad in [
            "http://sns.eu-west-1.amazonaws.com/a.pem",
            "https://sns.us-east-1.amazonaws.com/a.pem",
            "https://sns.eu-west-1.amazonaws.com.example.com/a.pem",
            "https://sns.eu-west-1.amazonaws.com@example.com/a.pem",
            "https://example.com/sns.eu-west-1.amazonaws.com/a.pem",
            "https://sns.eu-west-1.amazonaws.com:444/a.pem",
            "https://sns.eu-west-1.amazonaws.com/a.pem?x=/b.pem",
            "https://sns.eu-west-1.amazonaws.com/a%2e%2e/b.pem",
            "https://sns.eu-west-1.amazonaws.com/../a.pem",
            "https://sns.eu-west-1.amazonaws.com/./a.pem",
            "https://sns.eu-west-1.amazonaws.com//a.pem",
            "https://sns.eu-west-1.amazonaws.com/b/a.pem",
            "https://sns.eu-west-1.amazonaws.com/.pem",
            "https://sns.eu-west-1.amazonaws.com/a",
            "https://sns.eu-west-1.amazonaws.com",
            "https://sns.eu-west-1.amazonaws.com\\@example.com/a.pem",
            "HTTPS://sns.eu-west-1.amazonaws.com/a.pem",
            "sns.eu-west-1.amazonaws.com/a.pem",
            "",
        ] {
            assert!(!sns.allows_certificate(bad), "{bad}");
        }
        let long = format!("https://sns.eu-west-1.amazonaws.com/{}.pem", "a".repeat(limits::KEY_URL_BYTES_MAX));
        assert!(!sns.allows_certificate(&long));
        let paypal = PinnedHost::paypal("https://api.paypal.com".into());
        assert!(paypal.allows_certificate("https://api.paypal.com/v1/notifications/certs/CERT-1-2"));
        for bad in [
            "https://api.paypal.com.example.com/v1/notifications/certs/CERT-1",
            "http://api.paypal.com/v1/notifications/certs/CERT-1",
            "https://api.paypal.com:1/v1/notifications/certs/CERT-1",
            "https://api.paypal.com/v1/oauth2/token",
        ] {
            assert!(!paypal.allows_certificate(bad), "{bad}");
        }
        let confirm = "/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:x&Token=1";
        assert!(sns.allows_confirmation(&format!("https://sns.eu-west-1.amazonaws.com{confirm}")));
        for host in ["https://sns.eu-west-1.amazonaws.com.evil.org", "https://evil.org", "http://169.254.169.254"] {
            assert!(!sns.allows_confirmation(&format!("{host}{confirm}")), "{host}");
        }
        assert!(!sns.allows_confirmation("https://sns.eu-west-1.amazonaws.com/latest/meta-data"));
    }
}
