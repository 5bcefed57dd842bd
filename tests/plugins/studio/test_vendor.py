"""What is vendored is what the manifest says, with its licence."""

from __future__ import annotations

import hashlib
import json

from orchestrion_studio.page import HERE

VENDOR = HERE / "static" / "vendor"


def test_every_vendored_file_is_in_the_manifest_with_its_digest_and_licence() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    named = {"manifest.json"}
    for library in manifest:
        assert all(library[name] for name in ("name", "version", "licence"))
        assert (VENDOR / library["licence_text"]).stat().st_size > 100
        named.add(library["licence_text"])
        for file, digest in library["files"].items():
            assert hashlib.sha256((VENDOR / file).read_bytes()).hexdigest() == digest, file
            named.add(file)
    assert named == {str(p.relative_to(VENDOR)) for p in VENDOR.rglob("*") if p.is_file()}
