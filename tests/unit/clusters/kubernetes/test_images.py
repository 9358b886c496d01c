"""What the tag of an image promises, and what is wrong with one."""

from __future__ import annotations

import platform

import pytest
import ray

from dray.clusters.kubernetes.images import Versions, default_image, here, mistakes, versions_of

VERSIONS = Versions("2.60.0", "3.11")


def test_the_default_is_rays_image_for_this_ray_and_python() -> None:
    assert here() == Versions(ray.__version__, ".".join(platform.python_version_tuple()[:2]))
    assert default_image(VERSIONS, gpu=False) == "rayproject/ray:2.60.0-py311"
    assert default_image(VERSIONS, gpu=True) == "rayproject/ray:2.60.0-py311-gpu"


@pytest.mark.parametrize(
    ("image", "promised"),
    [
        ("rayproject/ray:2.60.0-py311-gpu", VERSIONS),
        ("me/dray:2.60.0-py311", VERSIONS),
        ("rayproject/ray:2.60.0", Versions("2.60.0", "")),
        ("registry:5000/rayproject/ray-ml:2.60.0rc1-py39", Versions("2.60.0rc1", "3.9")),
        ("me/dray:1.4.2", None),
        ("me/dray:latest", None),
        ("me/dray", None),
        ("registry:5000/me/dray", None),
    ],
)
def test_a_tag_promises_versions_or_none(image: str, promised: Versions | None) -> None:
    assert versions_of(image) == promised


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("rayproject/ray:2.60.0-py311", []),
        ("me/dray@sha256:0123", []),
        ("me/dray:1.4.2", []),
        (
            "registry:5000/me/dray",
            [
                (
                    "The image registry:5000/me/dray has no tag, so nodes may run different ones.",
                    "Write registry:5000/me/dray:TAG, or a digest.",
                )
            ],
        ),
        (
            "me/dray:2.59.0-py310",
            [
                (
                    "The image me/dray:2.59.0-py310 has Ray 2.59.0, the cluster is meant for Ray 2.60.0.",
                    "Use an image with Ray 2.60.0, or install ray==2.59.0 here.",
                ),
                (
                    "The image me/dray:2.59.0-py310 has Python 3.10, this is Python 3.11.",
                    "Use a tag with -py311.",
                ),
            ],
        ),
        (
            "registry:5000/rayproject/ray:2.60.0@sha256:0123",
            [
                (
                    "The tag of registry:5000/rayproject/ray:2.60.0@sha256:0123 names no Python, and Ray's default may "
                    "be another than 3.11.",
                    "Use registry:5000/rayproject/ray:2.60.0-py311.",
                )
            ],
        ),
    ],
)
def test_what_is_wrong_with_an_image_is_told_with_its_fix(image: str, told: list[tuple[str, str]]) -> None:
    assert list(mistakes(image, VERSIONS)) == told
