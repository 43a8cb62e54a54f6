//! The sources that receive the load, as a config file says it.

use super::deck::path_of;

/// What differs from one config to the next.
pub struct SourceConfig<'a> {
    /// As the config has it, quotes included.
    pub store: &'a str,
    pub keep_body: &'a str,
    /// The tag that the filter wants: `latest` lets everything through.
    pub tag: &'a str,
    pub respond: &'a str,
    /// What its route does; nothing: it records.
    pub does: &'a str,
}

impl SourceConfig<'_> {
    /// A config that keeps everything in this store, records, and responds at once.
    pub fn recorded<'a>(store: &'a str, keep_body: &'a str) -> SourceConfig<'a> {
        SourceConfig { store, keep_body, tag: "latest", respond: "accepted", does: "" }
    }

    /// The text of `hookonce.toml`: GitHub's signature, five fields, a filter, and the identities `delivery` and `body`.
    pub fn text(&self) -> String {
        self.head() + &self.source("ghcr", super::deck::PATH)
    }

    /// The same with many sources.
    pub fn text_of_many(&self, sources: u64) -> String {
        let source = |number| self.source(&format!("s{number}"), &path_of(number));
        (0..sources).fold(self.head(), |text, number| text + &source(number))
    }

    fn head(&self) -> String {
        let store = self.store;
        format!(
            r#"
listen = "127.0.0.1:0"
store  = {store}
state  = "."
[admin]
listen = "127.0.0.1:0"
"#
        )
    }

    fn source(&self, name: &str, path: &str) -> String {
        let Self { keep_body, tag, respond, does, .. } = self;
        format!(
            r#"
[source.{name}]
path   = "{path}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
when   = 'tag == "{tag}"'
respond = "{respond}"
[source.{name}.fields]
package    = "body.registry_package.name"
tag        = "body.registry_package.package_version.container_metadata.tag.name"
version_id = "body.registry_package.package_version.id"
sha        = "body.registry_package.package_version.version"
updated_at = "body.registry_package.updated_at"
[source.{name}.once]
per       = ["delivery", "body"]
keep_body = "{keep_body}"
[[source.{name}.route]]
name = "recorded"
{does}
"#
        )
    }
}
