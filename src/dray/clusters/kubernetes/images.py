"""Which image the pods run: the default one, and what the tag of another says. Pure but for `here`."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version

_RAY_TAG = re.compile(r"(?P<ray>\d+\.\d+\.\d+[a-z0-9]*)(?:-py(?P<python>\d{2,3}))?(?:-.*)?")


@dataclass(frozen=True, slots=True)
class Versions:
    """The Ray and the Python that a run needs."""

    ray: str
    python: str
    """Major and minor: 3.11."""


def here() -> Versions:
    """Return those of this process: what it submits is meant for the same."""
    return Versions(version("ray"), ".".join(platform.python_version_tuple()[:2]))


def default_image(versions: Versions, *, gpu: bool) -> str:
    return f"rayproject/ray:{versions.ray}-py{versions.python.replace('.', '')}{'-gpu' if gpu else ''}"


def versions_of(image: str) -> Versions | None:
    """Return what the tag promises, an empty Python when it names none; None if it names no Ray version."""
    found = _RAY_TAG.fullmatch(_tag(image))
    if found is None or not (found["python"] or _is_of_ray(image)):
        return None  # 1.4.2 of a user's own image is a version of that image
    python = found["python"] or ""
    return Versions(found["ray"], f"{python[:1]}.{python[1:]}" if python else "")


def mistakes(image: str, versions: Versions) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an image, and the fix."""
    if not _tag(image) and "@" not in image:
        yield f"The image {image} has no tag, so nodes may run different ones.", f"Write {image}:TAG, or a digest."
        return
    promised = versions_of(image)
    if promised is None:
        return
    if promised.ray != versions.ray:
        yield (
            f"The image {image} has Ray {promised.ray}, the cluster is meant for Ray {versions.ray}.",
            f"Use an image with Ray {versions.ray}, or install ray=={promised.ray} here.",
        )
    if promised.python and promised.python != versions.python:
        yield (
            f"The image {image} has Python {promised.python}, this is Python {versions.python}.",
            f"Use a tag with -py{versions.python.replace('.', '')}.",
        )
    if not promised.python and _is_of_ray(image):
        yield (
            f"The tag of {image} names no Python, and Ray's default may be another than {versions.python}.",
            f"Use {image.partition('@')[0].rpartition(':')[0]}:{promised.ray}-py{versions.python.replace('.', '')}.",
        )


def _is_of_ray(image: str) -> bool:
    return re.search(r"(^|/)rayproject/ray(-ml|-llm)?(:|@|$)", image) is not None


def _tag(image: str) -> str:
    name = image.partition("@")[0]
    last = name.rpartition("/")[2]  # a colon before it is that of a registry's port
    return last.partition(":")[2]
