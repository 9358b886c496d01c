"""What a cluster on Kubernetes shall look like: the keys of `kube.yaml`, each with a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dray import __version__
from dray.clusters.kubernetes.images import Versions, default_image
from dray.clusters.kubernetes.quantities import GIB, parse_bytes, parse_cpus
from dray.config.yaml_file import read_yaml
from dray.errors import ConfigError, nearest
from dray.learners.registry import find

Memory = Annotated[int, BeforeValidator(parse_bytes), Field(ge=256 << 20)]
Cpus = Annotated[float, BeforeValidator(parse_cpus), Field(gt=0, allow_inf_nan=False)]
Texts = dict[str, str]

_TAKEN = ("/etc/dray", "/tmp/ray", "/tmp", "/dev/shm", "/home/ray")  # noqa: S108  (paths in a pod)


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Toleration(_Keys):
    """A taint that pods bear, as in a pod's manifest."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Head(_Keys):
    """The pod with the head of Ray, in which the driver of a run works too."""

    cpu: Cpus = 2.0
    """CPUs, requested and at most."""

    memory: Memory = 8 * GIB
    """Memory, requested and at most."""

    works: bool = False
    """Whether workers of a run may be placed there as well."""


class Workers(_Keys):
    """The pods that train."""

    replicas: int = Field(default=2, ge=0)
    """Pods at the start; without autoscaling, pods there are."""

    min: int = Field(default=0, ge=0)
    """Autoscaling keeps so many."""

    max: int | None = Field(default=None, ge=0)
    """Autoscaling makes no more. Default: as many as at the start."""

    cpu: Cpus = 4.0
    """CPUs of each, requested and at most."""

    memory: Memory = 16 * GIB
    """Memory of each, requested and at most."""

    gpu: int = Field(default=0, ge=0)
    """GPUs of each."""

    gpu_resource: str = "nvidia.com/gpu"
    """What the cluster calls a GPU."""

    node_selector: Texts = Field(default_factory=dict)
    """Labels of the nodes for workers, beside those for all pods."""

    tolerations: tuple[Toleration, ...] = ()
    """Taints that workers bear, beside those that all pods do."""

    @property
    def most(self) -> int:
        return self.replicas if self.max is None else self.max


class NodeSize(_Keys):
    """What a node has to give: "Allocatable" of kubectl describe node."""

    cpu: Cpus
    """CPUs."""

    memory: Memory
    """Memory."""


class SecretKey(_Keys):
    """A value in a Secret of the namespace."""

    secret: str
    """Name of the Secret."""

    key: str
    """Key in it."""


class Volume(_Keys):
    """A volume that every pod mounts."""

    claim: str
    """Name of a PersistentVolumeClaim of the namespace."""

    read_only: bool = False
    """Whether nothing may be written to it."""


class Settings(_Keys):
    """A cluster on Kubernetes."""

    name: str = "dray"
    """Name of the cluster; that of a job begins with it."""

    namespace: str = "default"
    """Namespace for everything."""

    context: str | None = None
    """Context of the kubeconfig. Default: the current one; in a pod, the cluster it is in."""

    image: str | None = None
    """Image of all pods. Default: rayproject/ray of this Ray and this Python."""

    install: tuple[str, ...] | None = None
    """Requirements that Ray installs for a job, as for pip. Default: dray with what the model of the run needs, if the
    image is the default one."""

    head: Head = Head()
    """The pod with the head."""

    workers: Workers = Workers()
    """The pods that train."""

    autoscale: bool = False
    """Whether workers come when work waits and go when idle, between workers.min and workers.max."""

    idle_s: int = Field(default=60, ge=1)
    """Seconds without work after which autoscaling ends a worker."""

    node: NodeSize | None = None
    """The size of the nodes; then room on them is checked."""

    service_account: str | None = None
    """Service account of the pods, for a cloud's roles say. Default: none; the pods get no Kubernetes token."""

    node_selector: Texts = Field(default_factory=dict)
    """Labels of the nodes for all pods."""

    tolerations: tuple[Toleration, ...] = ()
    """Taints that all pods bear."""

    pull_secrets: tuple[str, ...] = ()
    """Secrets with which the image is pulled."""

    env: Texts = Field(default_factory=dict)
    """Variables of all pods; no secrets."""

    secrets: dict[str, SecretKey] = Field(default_factory=dict)
    """Variables of all pods whose values are in Secrets: AWS_ACCESS_KEY_ID: {secret: s3, key: access}."""

    volumes: dict[str, Volume] = Field(default_factory=dict)
    """Volumes of all pods by path: /data: {claim: training-data}."""

    labels: Texts = Field(default_factory=dict)
    """Labels of everything that is made."""

    tls: bool = False
    """Whether Ray's traffic in the cluster is encrypted; KubeRay needs cert-manager for it."""

    start_deadline_s: int = Field(default=900, ge=1)
    """A cluster that is not ready after so many seconds has failed."""

    time_limit_s: int | None = Field(default=None, ge=1)
    """A job that is not done after so many seconds, waiting included, is stopped. Default: none."""

    keep_s: int = Field(default=300, ge=0)
    """The pods of a job go so many seconds after its end."""

    retries: int = Field(default=0, ge=0)
    """A job that fails is tried so many times more, each time on a new cluster."""

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        least, start, most = self.workers.min, self.workers.replicas, self.workers.most
        if not least <= start <= most:
            raise ValueError(
                f"workers.min, workers.replicas and workers.max are {least}, {start} and {most}: put them in order"
            )
        if twice := sorted(set(self.env) & set(self.secrets)):
            raise ValueError(f"{twice[0]} is in env and in secrets: give it once")
        for name in (*self.env, *self.secrets):
            if name.startswith("RAY_AUTH_"):
                raise ValueError(f"{name} is set by dray, for every pod: leave it out")
        for path in self.volumes:
            if not path.startswith("/") or path.rstrip("/") in ("", *_TAKEN):
                raise ValueError(f"a volume cannot be mounted at {path or 'nothing'}: use a path of its own, as /data")
        if self.time_limit_s is not None and self.time_limit_s <= self.start_deadline_s:
            raise ValueError(
                f"time_limit_s ({self.time_limit_s}) covers the wait for the pods, up to start_deadline_s "
                f"({self.start_deadline_s}), too: make it longer, or start_deadline_s shorter"
            )
        return self

    def image_for(self, versions: Versions) -> str:
        return self.image or default_image(versions, gpu=self.workers.gpu > 0)

    def requirements(self, model: str | None = None) -> tuple[str, ...]:
        """What Ray installs for a job that trains such a model."""
        if self.install is not None:
            return self.install
        if self.image:
            return ()
        extra = find(model).extra if model else ""
        return (f"dray[{extra}]=={__version__}" if extra else f"dray=={__version__}",)


def make_settings(values: Mapping[str, Any], *, origin: str = "the settings") -> Settings:
    """Return checked settings, or a ConfigError that names the key and the fix."""
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        raise _explain(error, origin) from None


def read_settings(path: str | None, **more: Any) -> Settings:
    """Return the settings in a file: its keys, or those under `kubernetes:`; the defaults without a file."""
    document = {} if path is None else read_yaml(path, "settings file", "name: demo")
    own = document.get("kubernetes", document)
    if not isinstance(own, dict):
        raise ConfigError(f"kubernetes in {path} does not hold keys and values.", fix="Write kubernetes: {name: demo}.")
    return make_settings(own | more, origin=path or "the settings")


def take_settings(run_file: Mapping[str, Any], *, origin: str = "the run file") -> tuple[Settings, dict[str, Any]]:
    """Return the settings that a run file holds under `kubernetes:`, and the run file without them."""
    section = run_file.get("kubernetes") or {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"kubernetes: in {origin} is {section!r}.", fix="Write keys below it, such as name: demo.")
    rest = {key: value for key, value in run_file.items() if key != "kubernetes"}
    return make_settings(section, origin=f"kubernetes: of {origin}"), rest


def _explain(error: ValidationError, origin: str) -> ConfigError:
    problems = error.errors()
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    place = ".".join(str(key) for key in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _model_at(first["loc"][:-1]).model_fields
        hint = nearest(str(first["loc"][-1]), known)
        return ConfigError(f'Unknown key "{place}" in {origin}.{hint}', fix=f"Known keys: {', '.join(known)}.")
    if first["type"] == "missing":
        return ConfigError(f'"{place}" is missing in {origin}.', fix=f"Add {place}: ...")
    message = first["msg"].removeprefix("Value error, ")
    if not place:
        what, _, fix = message.rpartition(": ")
        return ConfigError(f"{what}.", fix=f"{fix[0].upper()}{fix[1:]}.")
    return ConfigError(f'"{place}" in {origin} is {first["input"]!r}: {message}.', fix=f"Change {place}.")


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    names: dict[str, type[BaseModel]] = {
        "head": Head,
        "workers": Workers,
        "node": NodeSize,
        "secrets": SecretKey,
        "volumes": Volume,
        "tolerations": Toleration,
    }
    known = [names[str(key)] for key in location if str(key) in names]
    return known[-1] if known else Settings
