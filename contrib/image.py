#!/usr/bin/env python3
"""Writes an image of `buildah` again without what differs from build to build: names of containers and hosts, versions.

image.py FROM TO NAME   from a docker-archive to one with the same layers and config, under this name
"""

import hashlib
import io
import json
import sys
import tarfile

KEPT = ["User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Healthcheck", "Volumes", "WorkingDir", "Labels", "StopSignal"]


def main(built, written, name):
    with tarfile.open(built) as archive:
        read = lambda path: archive.extractfile(path).read()
        (manifest,) = json.loads(read("manifest.json"))
        config = json.loads(read(manifest["Config"]))
        layers = {path: read(path) for path in manifest["Layers"]}
    settings = {key: config["config"][key] for key in KEPT if config["config"].get(key)}
    settings.get("Labels", {}).pop("io.buildah.version", None)
    config = {
        "architecture": config["architecture"],
        "os": config["os"],
        "created": config["created"],
        "config": settings,
        "rootfs": config["rootfs"],
        "history": [{"created": config["created"], "created_by": "./package"} for _ in layers],
    }
    document = json.dumps(config, sort_keys=True).encode()
    config_path = hashlib.sha256(document).hexdigest() + ".json"
    manifest = [{"Config": config_path, "RepoTags": [name], "Layers": list(layers)}]
    with tarfile.open(written, "w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in [*layers.items(), (config_path, document), ("manifest.json", json.dumps(manifest).encode())]:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main(*sys.argv[1:])
