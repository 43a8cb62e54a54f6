//! `examples/ghcr-compose` does what its README says.

use crate::support::{House, free_port};
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ghcr-compose")
}

/// A folder with the example in it, for this package of the registry at this address, with short waits.
pub(crate) fn house(registry: &str, package: &str) -> House {
    let text = |name: &str| {
        let text = std::fs::read_to_string(folder().join(name)).unwrap().replace("127.0.0.1:5000", registry);
        text.replace("\"app\"", &format!("\"{package}\"")).replace("/app@", &format!("/{package}@"))
    };
    let config = text("hookonce.toml");
    let retry = "retry  = { attempts = 10, first = \"2s\", longest = \"1m\" }";
    assert!(config.contains(retry), "{config}");
    let health = "within = \"1m\", every = \"2s\"";
    assert!(config.contains(health), "{config}");
    let config = config.replace(health, "within = \"5s\", every = \"100ms\"");
    let house =
        House::empty(&config.replace(retry, "retry = { attempts = 1000, first = \"20ms\", longest = \"100ms\" }"));
    std::fs::write(house.path("compose.yaml"), text("compose.yaml")).unwrap();
    std::fs::create_dir(house.path("bin")).unwrap();
    for file in ["secret", "healthy.sh", "bin/docker"] {
        std::fs::copy(folder().join(file), house.path(file)).unwrap();
    }
    house
}

/// The first of three free ports in a row.
fn three_ports() -> u16 {
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    std::iter::repeat_with(free_port).find(|first| (*first..first + 3).all(free)).unwrap()
}

#[test]
fn the_example_prints_what_its_page_shows() {
    let mut command = Command::new(folder().join("run.sh"));
    command.env("HOOKONCE", env!("CARGO_BIN_EXE_hookonce")).env("PORT", three_ports().to_string());
    let said = command.env_remove("HOOKONCE_CONFIG").output().unwrap();
    let printed = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success(), "{printed}\n{}", String::from_utf8_lossy(&said.stderr));
    let page = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let shown = page.split("$ ./run.sh\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(printed, shown);
}
