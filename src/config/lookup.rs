//! `lookup`: the registry that is asked, before a route acts, what a tag points to now.

use super::describe::{LabelledTexts, labelled};
use super::external_value::SecretRequirement;
use super::fields::SourceFieldScope;
use super::keys::{ConfigKey, ConfigValueType, SectionKeys, key};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::action::ActionPlan;
use crate::action::plan::{FieldTemplate, FieldTemplatePart};
use crate::decide::image_reference::{ImageReferenceError, ImageTag};
use crate::decide::limits::{LOOKUP_TIME, LOOKUP_TIME_MAX};
use crate::decide::registry_address::{RegistryAddress, RegistryTransport};
use crate::decide::source::{DeduplicationPolicy, ResponseMode};
use crate::decide::time::{Duration, duration_text};
use crate::registry::{LookupPlan, RegistryAccess, RegistryCredentials, RegistrySecret, docker_config};
use serde::Serialize;
use utoipa::ToSchema;

pub(super) static LOOKUP_KEYS: SectionKeys = SectionKeys {
    name: "lookup",
    title: "`lookup = { … }`",
    about: "Asks a container registry, before the action begins, what a tag points to now. The action gets the digest.",
    keys: &[
        &[
            REGISTRY_KEY,
            key(
                "image",
                ConfigValueType::Text,
                "required",
                "The name of the image in the registry; may contain {field}. Upper-case letters of fields become lower case.",
            ),
            key("tag", ConfigValueType::Text, "required", "The tag; may contain {field}."),
        ],
        &CREDENTIAL_KEYS,
        &[key(
            "timeout",
            ConfigValueType::Duration,
            "10s",
            "How long the registry may take, at most 1m; after that the attempt has failed.",
        )],
    ],
};

pub(super) const REGISTRY_KEY: ConfigKey = key(
    "registry",
    ConfigValueType::Text,
    "required",
    "The registry: a host such as ghcr.io or docker.io; http://… for one without TLS.",
);

pub(super) static CREDENTIAL_KEYS: [ConfigKey; 3] = [
    key("user", ConfigValueType::Open, "none", "Credentials: a user, with `password`."),
    key("password", ConfigValueType::Secret, "none", "The user's password or access token."),
    key(
        "credentials",
        ConfigValueType::Text,
        "none",
        "Credentials: \"docker\" for the login in docker's config file ($DOCKER_CONFIG, else ~/.docker), or the path of such a file.",
    ),
];

/// The value of `credentials` for docker's own file.
const DOCKER: &str = "docker";

impl ConfigResolver<'_> {
    /// The lookup of a route; `None` if it has none or it is invalid.
    pub(super) fn lookup(
        &mut self,
        route: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        once: &DeduplicationPolicy,
        respond: ResponseMode,
        plan: Option<&ActionPlan>,
    ) -> Option<LookupPlan> {
        let section = route.section("lookup")?;
        self.can_look_up(route, once, respond, plan);
        self.question(&section, Some(names))
    }

    /// The question to a registry; `None` if it is invalid. Without `names`, its image and tag are fixed.
    pub(super) fn question(
        &mut self,
        section: &ConfigSection<'_>,
        names: Option<&SourceFieldScope<'_>>,
    ) -> Option<LookupPlan> {
        let address = self.registry_address(section);
        let image = self.reference("image", ["{namespace}/{package}", "octocat/app"], section, names);
        if let Some((address, image)) = address.as_ref().zip(image.as_ref()) {
            let written = section.text("image").unwrap_or_default();
            if let Some(rest) = address.without_own_name(written) {
                self.diagnostics
                    .error("`image` begins with the name of the registry")
                    .at(
                        section.place("image"),
                        "the registry has no image of that name; it is asked as `registry` says",
                    )
                    .hint(format!("image = \"{rest}\""));
            } else {
                self.check_reference("image", section, image, |sample| address.image(sample).err());
            }
        }
        let tag = self.reference("tag", ["{tag}", "latest"], section, names);
        if let Some(tag) = &tag {
            self.check_reference("tag", section, tag, |sample| ImageTag::parse(sample).err());
        }
        let timeout = self.lookup_timeout(section);
        let address = address?;
        let credentials = self.registry_credentials(section, &address)?;
        if address.transport() == RegistryTransport::Plain && !address.is_loopback() {
            self.diagnostics
                .warning("the registry is asked without TLS")
                .at(section.place("registry"), "anyone on the way can read the credentials and change the answer")
                .hint("use https, unless the network is trusted");
        }
        Some(LookupPlan { registry: RegistryAccess { address, credentials }, image: image?, tag: tag?, timeout })
    }

    /// Reports routes on which a lookup can never work.
    fn can_look_up(
        &mut self,
        route: &ConfigSection<'_>,
        once: &DeduplicationPolicy,
        respond: ResponseMode,
        plan: Option<&ActionPlan>,
    ) {
        let acts = ["run", "forward", "publish", "sql"].into_iter().find(|key| route.has(key));
        let misspelt = ["run", "forward"].into_iter().any(|key| route.misspells(key));
        let problem = match acts {
            None => Some(("this route has no action", "add `run` or `forward`, which gets the digest")),
            Some("publish") => Some((
                "a message is published at once, and what it points to when a worker reads it is not known here",
                "let the worker ask the registry, or use `run` or `forward`",
            )),
            Some("sql") => Some((
                "a statement deploys nothing, so there is no digest that was last deployed",
                "use `run` or `forward`",
            )),
            Some(_) if plan.is_some_and(|plan| plan.events() > 1) => Some((
                "`forward` has several receivers, and each could be at another digest",
                "use a route of its own for each receiver",
            )),
            Some(_) => None,
        };
        let at = route.key_place("lookup");
        if let Some((why, hint)) = problem {
            let title = "`lookup` cannot work on this route";
            self.diagnostics.error(title).unless(acts.is_none() && misspelt).at(at, why).hint(hint);
        }
        if once.change.is_none() {
            self.diagnostics
                .error("`lookup` needs `change`")
                .unless(self.unread.preset)
                .at(at, "without it, it is not known which deliveries are about the same image")
                .hint(
                    "once = { per = [\"delivery\"], change = { of = [\"package\", \"tag\"], to = [\"version_id\"] } }",
                );
        }
        if respond != ResponseMode::Accepted {
            self.diagnostics
                .error("`lookup` and `respond = \"done\"` cannot be combined")
                .at(at, "the sender would wait for the registry, and get its failures")
                .hint("remove `respond`: the sender gets 202 once the event is stored");
        }
    }

    fn registry_address(&mut self, section: &ConfigSection<'_>) -> Option<RegistryAddress> {
        let Some(node) = section.node("registry") else {
            self.diagnostics
                .error(format!("`{}` has no `registry`", section.name()))
                .unless(section.misspells("registry"))
                .at(section.at, "")
                .hint("registry = \"ghcr.io\"");
            return None;
        };
        match RegistryAddress::parse(node.text()?) {
            Ok(address) => Some(address),
            Err(error) => {
                if node.text().is_some_and(|text| text.contains('@')) {
                    self.diagnostics.conceal(node.at);
                }
                self.diagnostics
                    .error("`registry` is not the address of a registry")
                    .at(node.at, error.to_string())
                    .hint("registry = \"ghcr.io\", or \"http://127.0.0.1:5000\" for one without TLS");
                None
            }
        }
    }

    fn reference(
        &mut self,
        key: &str,
        [of_fields, fixed]: [&str; 2],
        section: &ConfigSection<'_>,
        names: Option<&SourceFieldScope<'_>>,
    ) -> Option<FieldTemplate> {
        let Some(node) = section.node(key) else {
            self.diagnostics
                .error(format!("`{}` has no `{key}`", section.name()))
                .unless(section.misspells(key))
                .at(section.at, "")
                .hint(format!("{key} = \"{}\"", if names.is_some() { of_fields } else { fixed }));
            return None;
        };
        let text = node.text()?;
        Some(match names {
            Some(names) => FieldTemplate(self.pieces(node, names)),
            None => FieldTemplate(vec![FieldTemplatePart::Text(text.to_owned())]),
        })
    }

    /// Checks what the config writes around the fields.
    fn check_reference(
        &mut self,
        key: &str,
        section: &ConfigSection<'_>,
        template: &FieldTemplate,
        parse: impl Fn(&str) -> Option<ImageReferenceError>,
    ) {
        let plain = |part: &FieldTemplatePart| match part {
            FieldTemplatePart::Text(text) => text.clone(),
            FieldTemplatePart::Field(_) => "x".to_owned(),
        };
        if let Some(error) = parse(&template.0.iter().map(plain).collect::<String>()) {
            self.diagnostics.error(format!("`{key}` cannot be asked for")).at(section.place(key), error.to_string());
        }
    }

    fn lookup_timeout(&mut self, section: &ConfigSection<'_>) -> Duration {
        let timeout = self.positive(section, "timeout").unwrap_or(LOOKUP_TIME);
        if timeout > LOOKUP_TIME_MAX {
            self.diagnostics
                .error("`timeout` is too long")
                .at(section.place("timeout"), format!("at most {}", duration_text(LOOKUP_TIME_MAX)))
                .hint("a registry that does not answer in time is asked again later");
        }
        timeout
    }

    /// The credentials; `None` if they are invalid.
    fn registry_credentials(
        &mut self,
        section: &ConfigSection<'_>,
        address: &RegistryAddress,
    ) -> Option<RegistryCredentials> {
        let named = ["user", "password"].into_iter().find(|key| section.has(key));
        match (section.text("credentials"), named) {
            (Some(_), Some(key)) => {
                self.diagnostics
                    .error(format!("`{key}` and `credentials` are both credentials"))
                    .at(section.key_place("credentials"), "one of them, not both");
                None
            }
            (Some(""), None) => {
                self.diagnostics
                    .error("`credentials` is empty")
                    .at(section.place("credentials"), "expected \"docker\", or the path of a file of docker's format")
                    .hint("leave it out to ask without credentials");
                None
            }
            (Some(file), None) => self.docker_login(section, file, address),
            (None, Some(_)) => self.registry_password(section),
            (None, None) => Some(RegistryCredentials::Anonymous),
        }
    }

    fn registry_password(&mut self, section: &ConfigSection<'_>) -> Option<RegistryCredentials> {
        let (Some(user), Some(password)) = (section.node("user"), section.node("password")) else {
            self.diagnostics
                .error("`user` and `password` belong together")
                .unless(section.misspells("user") || section.misspells("password"))
                .at(section.key_place(if section.has("user") { "user" } else { "password" }), "the other is missing");
            return None;
        };
        let at = password.at;
        let user = self.text_or_external("user", user);
        let password = self.credential("password", password).map(|secret| String::from_utf8(secret.expose().to_vec()));
        if let Some(Err(_)) = password {
            self.diagnostics.error("`password` is not text").at(at, "it is not UTF-8");
            return None;
        }
        let unknown = (self.secrets == SecretRequirement::Optional).then_some(RegistryCredentials::Unknown);
        let (Some(user), Some(Ok(password))) = (user, password) else { return unknown };
        if user.text.contains(':') {
            self.diagnostics.error("`user` has a colon in it").at(user.at, "no registry can be asked with such a name");
            return None;
        }
        let shown = user.shown.unwrap_or_else(|| user.text.clone());
        Some(RegistryCredentials::Password { user: user.text, shown, password: RegistrySecret(password) })
    }

    /// The login in docker's config file, or in another of that format. The file is read again when it is needed.
    fn docker_login(
        &mut self,
        section: &ConfigSection<'_>,
        file: &str,
        address: &RegistryAddress,
    ) -> Option<RegistryCredentials> {
        let at = section.place("credentials");
        let path = if file == DOCKER {
            let Some(path) = docker_config::default_path(self.env) else {
                self.diagnostics
                    .error("docker's config file cannot be found")
                    .at(at, "neither DOCKER_CONFIG nor HOME is set")
                    .hint("write its path: credentials = \"/root/.docker/config.json\"");
                return None;
            };
            path
        } else {
            self.base.join(file)
        };
        let checked = docker_config::check(&path, address);
        let found = self.record_login(path.display().to_string(), at, checked);
        if found.is_none() {
            return (self.secrets == SecretRequirement::Optional).then_some(RegistryCredentials::Unknown);
        }
        self.warn_if_world_readable(&path, at);
        Some(RegistryCredentials::DockerConfig(path))
    }
}

/// The registry that a route asks before it acts.
#[derive(Serialize, ToSchema)]
pub(super) struct LookupView {
    registry: String,
    image: String,
    tag: String,
    /// In words; never a secret.
    credentials: String,
    timeout: String,
}

/// A lookup as resolved.
pub(super) fn view(plan: &LookupPlan) -> LookupView {
    LookupView {
        registry: plan.registry.address.to_string(),
        image: plan.image.to_string(),
        tag: plan.tag.to_string(),
        credentials: plan.registry.credentials.words(),
        timeout: duration_text(plan.timeout),
    }
}

/// A lookup in words.
pub(super) fn text(plan: &LookupPlan) -> LabelledTexts {
    labelled("asks for", words(plan))
}

/// The question to a registry in words.
pub(super) fn words(plan: &LookupPlan) -> String {
    let LookupPlan { registry, image, tag, timeout } = plan;
    let asked = format!("{image}:{tag} in the registry {}, {}", registry.address, registry.credentials.words());
    format!("{asked}, within {}", duration_text(*timeout))
}
