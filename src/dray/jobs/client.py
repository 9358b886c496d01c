"""The jobs of an endpoint, by Ray's own client; its errors in words."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dray.errors import ClusterError, ConfigError, nearest
from dray.jobs.endpoint import ADDRESS_VARIABLES, Endpoint, certificates, is_loopback, not_reachable, refuse_token

Result = TypeVar("Result")

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class Unreachable(ClusterError):  # noqa: N818  (says what it is)
    """The endpoint does not answer, or not in order; a moment later it may."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What is known of a job."""

    id: str
    status: str
    """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    entrypoint: str = ""
    message: str = ""
    exit_code: int | None = None
    error_type: str = ""
    """Ray's word for what went wrong outside of the entrypoint."""
    started: float | None = None
    """Seconds since 1970, as `ended`."""
    ended: float | None = None
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return self.status in _ENDED

    @property
    def name(self) -> str:
        """What it runs, in few words."""
        return self.metadata.get("dray_name") or self.entrypoint

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"name": self.name}


class Jobs:
    """The jobs of one endpoint. One thread uses it at a time; `tail` may run in another."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._client = _client(endpoint)

    def submit(
        self,
        job: str,
        entrypoint: str,
        *,
        package: Path | None = None,
        variables: Mapping[str, str] | None = None,
        pip: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Start a job under that id. Everybody who may list jobs reads all of this but the package's contents."""
        environment: dict[str, Any] = {}
        if package is not None:
            environment["working_dir"] = str(package)
        if variables:
            environment["env_vars"] = dict(variables)
        if pip:
            environment["pip"] = list(pip)
        self._call(
            lambda: self._client.submit_job(
                entrypoint=entrypoint, submission_id=job, runtime_env=environment, metadata=dict(metadata or {})
            )
        )

    def info(self, job: str) -> JobInfo:
        return _info(self._call(lambda: self._client.get_job_info(job), job))

    def list(self) -> list[JobInfo]:
        """Return all jobs, the newest first."""
        found = [_info(details) for details in self._call(self._client.list_jobs)]
        return sorted(found, key=lambda info: info.started or 0.0, reverse=True)

    def logs(self, job: str) -> str:
        """Return all that a job has printed so far."""
        return str(self._call(lambda: self._client.get_job_logs(job), job))

    def tail(self, job: str) -> AsyncIterator[str]:
        """Return what a job prints, from its first line on. Ray looks for more about every second."""
        return self._client.tail_job_logs(job)  # type: ignore[no-any-return]

    def stop(self, job: str) -> bool:
        """Ask a job to end; return whether it ran. Ray kills it after 3 s."""
        return bool(self._call(lambda: self._client.stop_job(job), job))

    def delete(self, job: str) -> None:
        """Forget a job that has ended."""
        info = self.info(job)
        if not info.over:
            raise ConfigError(
                f"The job {job} is {info.status}: only one that has ended can be deleted.",
                fix=f"Stop it first: dray job stop {job} {self.endpoint.option}",
            )
        self._call(lambda: self._client.delete_job(info.id), job)

    def _call(self, act: Callable[[], Result], job: str = "") -> Result:
        import requests
        from ray.exceptions import AuthenticationError

        url = self.endpoint.url
        try:
            return act()
        except AuthenticationError as error:
            raise refuse_token(url, 401 if "required" in str(error) else 403) from None
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout, ConnectionError) as error:
            raise Unreachable(*not_reachable(url, _reason(error)).args) from None
        except RuntimeError as error:
            raise self._explain(str(error), job) from error

    def _explain(self, text: str, job: str) -> ClusterError | ConfigError:
        url, last = self.endpoint.url, text.strip().rstrip(".").splitlines()[-1]
        if "status code 404" in text and job:
            known = [info.id for info in self.list()]
            return ConfigError(
                f'There is no job "{job}" at {url}.{nearest(job, known)}',
                fix=f"See dray job list {self.endpoint.option}",
            )
        if "status code 413" in text:
            return ConfigError(f"{url} takes no upload of this size.", fix="Leave large files out with --exclude.")
        if "status code 5" in text:
            return Unreachable(f"The endpoint {url} fails: {last}.", fix="See dashboard.log on the head.")
        return ClusterError(f"The endpoint {url} refuses: {last}.", fix="Check what was asked for.")


def _client(endpoint: Endpoint) -> Any:
    """Make Ray's client. It prefers Ray's variables to what it is told, so they are hidden from it meanwhile."""
    try:
        import aiohttp  # noqa: F401  (Ray's client needs both, and says so only when they are used)
        import requests  # noqa: F401
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise ClusterError(
            f"Jobs need Ray's client, which is not complete here: {error}.", fix="pip install 'dray[jobs]'"
        ) from None

    class Client(JobSubmissionClient):  # type: ignore[misc]  # of a library without types
        """With an end to waiting: by itself it waits for ever on a connection that died without a word."""

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            options.setdefault("timeout", (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S))
            if loopback:  # this machine and its tunnels are not reached through a proxy, nor is the token sent to one
                options.setdefault("proxies", {"http": "", "https": ""})
            return super()._do_request(method, endpoint, **options)

    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)  # dray says what happens itself
    loopback = is_loopback(urlsplit(endpoint.url).hostname or "")
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else None
    with _without(ADDRESS_VARIABLES):
        try:
            return Client(endpoint.url, headers=headers, verify=certificates() or True)
        except ConnectionError as error:
            raise Unreachable(*not_reachable(endpoint.url, _reason(error)).args) from None


@contextmanager
def _without(variables: Sequence[str]) -> Iterator[None]:
    before = {name: os.environ.pop(name) for name in variables if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _info(details: Any) -> JobInfo:
    return JobInfo(
        id=str(details.submission_id or details.job_id),
        status=str(details.status.value),
        entrypoint=str(details.entrypoint or ""),
        message=str(details.message or ""),
        exit_code=details.driver_exit_code,
        error_type=str(details.error_type or ""),
        started=details.start_time / 1000 if details.start_time else None,
        ended=details.end_time / 1000 if details.end_time else None,
        metadata=dict(details.metadata or {}),
    )


def _reason(error: BaseException) -> str:
    """The innermost reason: requests wraps what urllib3 wraps what the system says."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
