//! `lookup`: which image and tag an event is about, and the question what that tag points to now.

use super::{LookupError, LookupFailure, RegistryAccess, RegistryClient, RegistryCredentials};
use crate::action::plan::FieldTemplate;
use crate::action::{ActionBuildError, LiveCheck, failed_check};
use crate::decide::field::StoredFields;
use crate::decide::image_reference::{ImageName, ImageTag, ManifestDigest};
use crate::decide::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

/// The lookup of a route, as resolved from the config.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookupPlan {
    /// The registry and the credentials for it.
    pub registry: RegistryAccess,
    /// The name of the image.
    pub image: FieldTemplate,
    /// The tag.
    pub tag: FieldTemplate,
    /// The time in which the registry must answer.
    pub timeout: Duration,
}

impl LookupPlan {
    /// The fields that it needs.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Arc<str>> {
        self.image.fields().chain(self.tag.fields())
    }

    /// The image and the tag of an event. No image has upper-case letters, but the owner of one may: GitHub's do.
    fn reference(&self, fields: &StoredFields) -> Result<(ImageName, ImageTag), String> {
        let Self { registry, image, tag, .. } = self;
        let name = image.fill(fields).map_err(|error| error.to_string())?.to_ascii_lowercase();
        let name = registry.address.image(&name).map_err(|error| format!("`image` ({image}): {error}"))?;
        let filled = tag.fill(fields).map_err(|error| error.to_string())?;
        let tag = ImageTag::parse(&filled).map_err(|error| format!("`tag` ({tag}): {error}"))?;
        Ok((name, tag))
    }
}

/// A lookup with the client of its registry.
pub(crate) struct RegistryLookup {
    plan: LookupPlan,
    client: Arc<RegistryClient>,
}

/// The clients of a node, one for each registry and its credentials, so that routes share tokens and connections.
#[derive(Default)]
pub(crate) struct RegistryClients(HashMap<RegistryAccess, Arc<RegistryClient>>);

impl RegistryClients {
    /// The lookup of a plan.
    pub(crate) fn lookup(&mut self, plan: &LookupPlan) -> Result<RegistryLookup, ActionBuildError> {
        let client = match self.0.get(&plan.registry) {
            Some(client) => client.clone(),
            None => Arc::new(RegistryClient::new(plan.registry.clone())?),
        };
        self.0.insert(plan.registry.clone(), client.clone());
        Ok(RegistryLookup { plan: plan.clone(), client })
    }
}

impl RegistryLookup {
    /// Asks what the tag of an event points to now. The error is a whole sentence that names the registry.
    pub(crate) async fn resolve(&self, fields: &StoredFields) -> Result<ManifestDigest, LookupError> {
        let address = &self.plan.registry.address;
        let (image, tag) = self.plan.reference(fields).map_err(|why| {
            let why = format!("the registry {address} cannot be asked about this event: {why}");
            LookupError::new(LookupFailure::Reference, why)
        })?;
        let found = self.client.resolve(&image, &tag, self.plan.timeout).await;
        found.map_err(|LookupError { kind, why }| {
            LookupError::new(kind, format!("the registry {address} did not say what {image}:{tag} is: {why}"))
        })
    }

    /// Asks the registry once whether it answers with these credentials; about the image itself, if that is the same
    /// for every event.
    async fn check(&self) -> LiveCheck {
        let LookupPlan { registry, image, tag, timeout } = &self.plan;
        let fixed = self.plan.fields().next().is_none();
        let found = match self.plan.reference(&StoredFields::default()) {
            Ok((image, tag)) if fixed => {
                let found = self.client.resolve(&image, &tag, *timeout).await;
                found.map(|digest| format!("{image}:{tag} is {digest}"))
            }
            _ => self.client.check(*timeout).await,
        };
        let name = if fixed { format!("{}/{image}:{tag}", registry.address) } else { registry.address.to_string() };
        LiveCheck::new("registry", name, found.map_err(|error| (error.why, String::new())))
    }
}

/// Asks all registries at once, each once, without those whose credentials are not known.
pub(crate) async fn check_live(plans: impl Iterator<Item = &LookupPlan>) -> Vec<LiveCheck> {
    let known = plans.filter(|plan| plan.registry.credentials != RegistryCredentials::Unknown);
    let mut clients = RegistryClients::default();
    let lookups: Vec<_> = known.map(|plan| (plan, clients.lookup(plan))).collect();
    let all = lookups.iter().map(|(plan, lookup)| async move {
        match lookup {
            Ok(lookup) => lookup.check().await,
            Err(error) => {
                LiveCheck::new("registry", plan.registry.address.to_string(), failed_check(error.to_string(), ""))
            }
        }
    });
    futures_util::future::join_all(all).await
}
