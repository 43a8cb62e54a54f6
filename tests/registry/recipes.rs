//! `examples/recipes`: a node with each config runs the commands that the page shows. The programs are stand-ins that write
//! down their arguments.

use crate::docker_registry::{Access, Registry};
use crate::support::{House, SECRET, Sent, package};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Writes down its name and its arguments.
const STAND_IN: &str = "#!/bin/sh\necho \"$(basename \"$0\") $*\" >>commands\n";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/recipes")
}

/// The commands that the page shows for this config.
fn shown(config: &str) -> Vec<String> {
    let page = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let row = page.lines().find(|line| line.starts_with(&format!("| `{config}`"))).expect("the page has the config");
    let commands = row.split(" | ").nth(2).unwrap();
    commands.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_node_with_a_recipe_runs_the_commands_that_the_page_shows() {
    let registry = Registry::start(&Access::Open);
    let digest = registry.push("treejamie/app", "latest", "x").await;
    let configs = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let configs: Vec<_> = configs.filter(|name| Path::new(name).extension().is_some_and(|end| end == "toml")).collect();
    assert_eq!(configs.len(), 5);
    for config in configs {
        let text = std::fs::read_to_string(folder().join(&config)).unwrap();
        let mut house = House::empty(&text.replace("\"ghcr.io\"", &format!("{:?}", registry.address())));
        let checked = house.command(&["check"]).env("WEBHOOK_SECRET", SECRET).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success() && said.ends_with("hookonce.toml is fine\n"), "{config}: {said}{checked:?}");
        std::fs::create_dir(house.path("bin")).unwrap();
        for program in ["docker", "kubectl", "nomad", "podman", "systemctl", "systemd-run"] {
            let path = house.path("bin").join(program);
            std::fs::write(&path, STAND_IN).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", house.path("bin").display(), std::env::var("PATH").unwrap());
        let mut serve = house.command(&["serve"]);
        serve.env("WEBHOOK_SECRET", SECRET).env("PATH", path);
        house.try_start_by(serve).unwrap();
        let name = if config.starts_with("self") { "hookonce" } else { "app" };
        let body = package("latest", 1, 1).replace(r#""name":"jamiec_ts""#, &format!("\"name\":\"{name}\""));
        let answer = house.deliver("/version/1", &Sent::github("registry_package", "one", &body)).await;
        assert_eq!(answer.status, 202, "{config}: {answer:?}");
        house.quiet().await;
        assert_eq!(house.count("done"), 1, "{config}: {:?}", house.sql("select why from attempts"));
        let expected: Vec<_> = shown(&config).into_iter().map(|line| line.replace("DIGEST", &digest)).collect();
        assert_eq!(house.lines("commands"), expected, "{config}");
    }
}
