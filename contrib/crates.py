#!/usr/bin/env python3
"""What is inside the binary, from `cargo metadata` and Cargo.lock.

crates.py sbom TARGET VERSION   the crates, as a CycloneDX document
crates.py licences TARGET       their licences, as the binary's distribution requires
crates.py roots                 Mozilla's root certificates as PEM, for an image without a system: those of the crate
                                webpki-root-certs, whose version and digest are in Cargo.lock
"""

import ast
import base64
import json
import re
import subprocess
import sys
import textwrap
import tomllib
import uuid
from pathlib import Path


def metadata(target=None):
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    if target:
        command += ["--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def linked(target):
    """The root package, the crates that it is built of, and what each of them depends on; no test's dependencies."""
    data = metadata(target)
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    root = data["resolve"]["root"]
    edges, wanted = {}, [root]
    while wanted:
        crate = wanted.pop()
        if crate in edges:
            continue
        kinds = [(dep["pkg"], {kind["kind"] for kind in dep["dep_kinds"]}) for dep in nodes[crate]["deps"]]
        edges[crate] = sorted(dep for dep, kind in kinds if kind & {None, "build"} and dep != root)
        wanted += edges[crate]
    crates = sorted((packages[crate] for crate in edges if crate != root), key=lambda crate: (crate["name"], crate["version"]))
    return packages[root], crates, edges


def purl(crate):
    return f"pkg:cargo/{crate['name']}@{crate['version']}"


def sbom(target, version):
    root, crates, edges = linked(target)
    with open("Cargo.lock", "rb") as lock:
        digests = {(it["name"], it["version"]): it.get("checksum") for it in tomllib.load(lock)["package"]}
    names = {crate["id"]: purl(crate) for crate in [root, *crates]}

    def component(crate):
        found = {"type": "library", "bom-ref": purl(crate), "name": crate["name"], "version": crate["version"], "purl": purl(crate)}
        if crate["license"]:
            found["licenses"] = [{"expression": re.sub(r" */ *", " OR ", crate["license"])}]
        if digest := digests.get((crate["name"], crate["version"])):
            found["hashes"] = [{"alg": "SHA-256", "content": digest}]
        return found

    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{purl(root)}?target={target}')}",
        "version": 1,
        "metadata": {
            "component": {**component(root), "type": "application", "version": version},
            "properties": [{"name": "target", "value": target}],
        },
        "components": [component(crate) for crate in crates],
        "dependencies": [
            {"ref": name, "dependsOn": sorted(names[dep] for dep in edges[crate])}
            for crate, name in sorted(names.items(), key=lambda item: item[1])
        ],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


def licences(target):
    _, crates, _ = linked(target)
    wanted = re.compile(r"(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)
    texts = {}
    for crate in crates:
        folder = Path(crate["manifest_path"]).parent
        files = [path for path in folder.iterdir() if wanted.match(path.name) and path.is_file()]
        # The C sources that some crates bring.
        files += [path for path in folder.glob("*/LICENSE*") if path.is_file()]
        for path in sorted(files):
            text = path.read_text(errors="replace").strip().replace("\r\n", "\n")
            texts.setdefault(text, set()).add(f"{crate['name']} {crate['version']}")
    print("The crates inside hookonce, and the terms that each is distributed under:\n")
    for crate in crates:
        print(f"  {crate['name']} {crate['version']}: {crate['license'] or 'see its text below'}")
    print("  Rust's standard library: MIT OR Apache-2.0")
    print("  musl, the C library: MIT")
    print("  compiler-rt: Apache-2.0 WITH LLVM-exception")
    print("\nTheir texts:")
    for text, names in sorted(texts.items(), key=lambda item: (sorted(item[1]), item[0])):
        print(f"\n{'-' * 80}\n{textwrap.fill(', '.join(sorted(names)), 80)}\n\n{text}")


def roots():
    crate = next(crate for crate in metadata()["packages"] if crate["name"] == "webpki-root-certs")
    source = (Path(crate["manifest_path"]).parent / "src/lib.rs").read_text()
    found = re.findall(r'// "(.*)"\n\s*CertificateDer::from_slice\((b"(?:\\x[0-9A-F]{2})+")\)', source)
    if len(found) < 100 or len(found) != source.count("CertificateDer::from_slice("):
        sys.exit(f"webpki-root-certs is written differently now: {len(found)} certificates were found")
    for name, literal in found:
        body = "\n".join(textwrap.wrap(base64.b64encode(ast.literal_eval(literal)).decode(), 64))
        print(f"# {name}\n-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----")


if __name__ == "__main__":
    {"sbom": sbom, "licences": licences, "roots": roots}[sys.argv[1]](*sys.argv[2:])
