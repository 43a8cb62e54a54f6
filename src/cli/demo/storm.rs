//! One push of an image for two platforms, as GitHub delivered it to the first user: two manifests without a tag, then
//! the index three times, each with an id and bytes of its own.

/// One delivery of the push.
pub(super) struct DemoDelivery {
    /// The sender's id.
    pub(super) id: &'static str,
    /// The tag it names.
    pub(super) tag: &'static str,
    version: u64,
    sha: &'static str,
    second: u32,
}

const INDEX: &str = "sha256:b97c4e077049470ac32d6b8c418eb536fb9856011ac1d6928b80f74926383aab";

/// The whole push, in the order of its arrival.
pub(super) const STORM: &[DemoDelivery] = &[
    DemoDelivery {
        id: "f168a0a0-0440-11f1-9b3f-a185afe7eea8",
        tag: "",
        version: 675_688_871,
        sha: "sha256:12077d6a2bfbc91fc7246e994d550a9f0c6a72e21db29805667b7e1822e89684",
        second: 40,
    },
    DemoDelivery {
        id: "f1a53470-0440-11f1-87e2-7761621fcece",
        tag: "",
        version: 675_688_873,
        sha: "sha256:3ab167c9d19c55d820a390846db7c730cc858cb95ffe6d2f610050c04aad8787",
        second: 40,
    },
    DemoDelivery {
        id: "f1e8cd20-0440-11f1-8e82-27c317883355",
        tag: "latest",
        version: 675_688_875,
        sha: INDEX,
        second: 40,
    },
    DemoDelivery {
        id: "f27359e0-0440-11f1-99be-4d02550d037a",
        tag: "latest",
        version: 675_688_875,
        sha: INDEX,
        second: 41,
    },
    DemoDelivery {
        id: "f2dc06c0-0440-11f1-92e1-2b19086f97a8",
        tag: "latest",
        version: 675_688_875,
        sha: INDEX,
        second: 42,
    },
];

impl DemoDelivery {
    /// The beginning of its id, as people see it.
    pub(super) fn short(&self) -> &str {
        &self.id[..8]
    }

    /// Its body: what the preset looks at, without the rest.
    pub(super) fn body(&self) -> String {
        let Self { tag, version, sha, second, .. } = self;
        serde_json::json!({
            "action": "published",
            "registry_package": {
                "name": "jamiec_ts",
                "updated_at": format!("2026-02-07T16:20:{second}Z"),
                "package_version": { "id": version, "version": sha, "container_metadata": { "tag": { "name": tag } } },
            },
        })
        .to_string()
    }
}
