//! Private modules for the binary and for this crate's own tests and benchmarks. Not part of the public interface: it
//! may change without notice.

pub use crate::action::run::guard::run as run_guard;
pub use crate::cli::run as run_command_line;

pub mod action {
    pub use crate::action::forward::ip_filter::DnsResolver;
    pub mod plan {
        pub use crate::action::ActionPlan;
        pub use crate::action::plan::*;
    }
    #[cfg(feature = "nats")]
    pub use crate::action::publish::nats_connection::NatsConnections;
    pub use crate::action::{
        Action, ActionEnvironment, ActionFuture, Attempt, AttemptOutput, CircuitBreakers, GuardProgram, NodeEnvVars,
        OutputChunk, SharedSucceededBlocks, build_action,
    };
    pub use crate::lease::{Lease, LeaseEnd, boottime};
}

pub mod admin {
    pub use crate::admin::openapi::document as openapi_document;
}

pub mod cli {
    pub use crate::cli::import::{generated_config, steakpie_config, yaml};
    pub use crate::cli::send::delivery_builder::SampleDelivery;
    pub use crate::cli::{check, migrate};
}

pub mod config {
    pub use crate::config::diagnostic::{self, ColorChoice, ConfigError, ConfigErrorKind};
    pub use crate::config::external_value::SecretRequirement;
    pub use crate::config::stream_source::AckTiming;
    pub use crate::config::{
        AdminPermission, Config, StateFolder, StoreAddress, TlsFiles, TlsFilesError, find, json_schema, load,
        load_with, parse, presets, reference,
    };
}

pub mod engine {
    pub use crate::engine::dispatcher::{Dispatcher, Lane};
    pub use crate::engine::gateway::Gateway;
}

pub mod ingress {
    pub use crate::ingress::accept::{self, ConnectionLimits, PeerAddress, raise_file_limit, serve};
    pub use crate::ingress::client_address::ClientGuard;
    pub use crate::ingress::http::IngestState;
    pub use crate::ingress::http_response::{self, no_body};
    pub use crate::ingress::port_listener::PortListener;
    pub use crate::ingress::readiness::Readiness;
    pub use crate::ingress::request_body::{BodiesInFlight, BodyError, BodyLimits, read};
    pub use crate::ingress::tls::PortTls;
}

pub mod key_fetch {
    pub use crate::key_fetch::FetchedKeys;
}

pub mod node {
    pub use crate::node::NodeHandle;
}

pub mod observe {
    pub use crate::observe::delivery_log::{DeliveryRecord, DeliveryVerdict};
    pub use crate::observe::log_layer::{LogFormat, Logger};
    pub use crate::observe::metrics::{Metrics, StoreOp};
}
