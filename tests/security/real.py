"""Real inputs: runs that an earlier dray wrote, with the digests that a run of today keeps."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

KEPT = Path(__file__).parents[1] / "unit" / "legacy" / "kept"


def run_of(case: str) -> str:
    """Return the directory of a copy of a run, to be changed."""
    place = Path(tempfile.mkdtemp(), "run")
    shutil.copytree(KEPT / case / "run", place)
    for file in place.rglob("*.json"):
        file.write_text(file.read_text().replace("@HERE@", str(place.parent)))
    model = place / "model.ubj"
    if model.is_file():
        document = json.loads((place / "run.json").read_text())
        document["files"] = {model.name: hashlib.sha256(model.read_bytes()).hexdigest()}
        (place / "run.json").write_text(json.dumps(document))
    return str(place)
