"""The CRDs of KubeRay as the API server uses them: what it would refuse, and what it would silently drop.

They are read beside the repository; tests that need them are skipped where they are not.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

CRDS = Path(__file__).resolve().parents[5] / "shared" / "kuberay"
FILES = {"RayCluster": "ray.io_rayclusters.yaml", "RayJob": "ray.io_rayjobs.yaml"}


def present() -> bool:
    return all((CRDS / file).is_file() for file in FILES.values())


def mistakes(manifest: dict[str, Any]) -> list[str]:
    """Return what the API server would say about a manifest, with fieldValidation=Strict."""
    errors = _validator(manifest["kind"]).iter_errors(manifest)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


@cache
def _validator(kind: str) -> Draft202012Validator:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd = yaml.load((CRDS / FILES[kind]).read_text(), Loader=loader)
    [schema] = [v["schema"]["openAPIV3Schema"] for v in crd["spec"]["versions"] if v["name"] == "v1" and v["served"]]
    return Draft202012Validator(_strict(schema))


def _strict(schema: Any) -> Any:
    """Return an OpenAPI schema as a JSON schema that takes no unknown field."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: _strict(value)
        for key, value in schema.items()
        if key not in ("description", "default", "format", "nullable", "properties") and not key.startswith("x-")
    }
    if "properties" in schema:
        made["properties"] = {name: _strict(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            made["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") else made
