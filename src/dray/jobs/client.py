"""The jobs of an endpoint, by the public methods of Ray's own client; its errors in words.

By itself that client waits for ever on a connection that died without a word. So each question is asked in a thread,
and given up after a while. What is answered may be anything: all that is not understood is a ClusterError.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dray.errors import ClusterError, ConfigError, nearest
from dray.jobs.endpoint import ADDRESS_VARIABLES, Endpoint, certificates, is_loopback, not_reachable, refuse_token

Result = TypeVar("Result")

STAYS_GONE_S = 2.0
"""How long a deleted job is looked for again."""
ANSWER_TIMEOUT_S = 60.0
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
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
        """Start a job under that id. All users that may list jobs read all of this but the package's contents."""
        environment: dict[str, Any] = {}
        if package is not None:
            environment["working_dir"] = str(package)
        if variables:
            environment["env_vars"] = dict(variables)
        if pip:
            environment["pip"] = list(pip)
        # In this thread: an interrupt ends it, where a thread of its own would go on and start a job after all.
        with self._in_words():
            self._client.submit_job(
                entrypoint=entrypoint, submission_id=job, runtime_env=environment, metadata=dict(metadata or {})
            )

    def info(self, job: str) -> JobInfo:
        return self._call(lambda: _info(self._client.get_job_info(job)), job)

    def list(self) -> list[JobInfo]:
        """Return all jobs, the newest first."""
        found = self._call(lambda: [_info(details) for details in self._client.list_jobs()])
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
        # The process that led a stopped job may note its end once more, and bring it back: it is gone if it stays so.
        gone_until = time.monotonic() + STAYS_GONE_S
        while time.monotonic() < gone_until:
            time.sleep(0.2)
            if any(other.id == info.id for other in self.list()):
                self._call(lambda: self._client.delete_job(info.id), job)
                gone_until = time.monotonic() + STAYS_GONE_S

    def _call(self, act: Callable[[], Result], job: str = "") -> Result:
        with self._in_words(job):
            return within(ANSWER_TIMEOUT_S, act)

    @contextmanager
    def _in_words(self, job: str = "") -> Iterator[None]:
        import requests
        from ray.exceptions import AuthenticationError

        url = self.endpoint.url
        try:
            yield
        except AuthenticationError as error:
            raise refuse_token(url, 401 if "required" in str(error) else 403) from None
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout, OSError) as error:
            # requests has an error of its own for what is no JSON, and it is an OSError too.
            if isinstance(error, ValueError):
                raise _not_understood(url, error) from error
            raise Unreachable(*not_reachable(url, _reason(error)).args) from None
        except RuntimeError as error:
            raise self._explain(str(error), job) from error
        except (ValueError, TypeError, KeyError, AttributeError, LookupError, ArithmeticError) as error:
            raise _not_understood(url, error) from error

    def _explain(self, text: str, job: str) -> ClusterError | ConfigError:
        url, last = self.endpoint.url, (text.strip().rstrip(".").splitlines() or ["no reason is given"])[-1]
        if "status code 404" in text and job:
            known = [info.id for info in self.list()]
            return ConfigError(
                f'There is no job "{job}" at {url}.{nearest(job, known)}',
                fix=f"See dray job list {self.endpoint.option}",
            )
        if "status code 413" in text:
            return ConfigError(
                f"The package of the job is too large for {url}.", fix="Leave large files out with --exclude."
            )
        if "status code 5" in text:
            return Unreachable(
                f"The endpoint {url} failed: {last}.", fix="Look into dashboard.log on the head of the cluster."
            )
        return ClusterError(f"The endpoint {url} refused the request: {last}.", fix="Check the flags of the command.")


def within(limit_s: float, act: Callable[[], Result]) -> Result:
    """Return what `act` returns, or raise what it raises; a TimeoutError when that takes too long."""
    ended: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            ended.put((act(), None))
        except BaseException as error:
            ended.put((None, error))

    threading.Thread(target=run, name="dray-job-question", daemon=True).start()
    result: Result | None = None
    problem: BaseException | None = TimeoutError(f"no answer within {limit_s:g} s")
    with suppress(queue.Empty):
        result, problem = ended.get(timeout=limit_s)
    if problem is not None:
        raise problem
    return result  # type: ignore[return-value]  # None only if that is what came


def _not_understood(url: str, error: Exception) -> ClusterError:
    return ClusterError(
        f"{url} answers, but not as Ray's job server does: {type(error).__name__}.",
        fix="Check that it is a dashboard of Ray, and that both sides have the same version of Ray.",
    )


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

    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)  # dray says what happens itself
    host = urlsplit(endpoint.url).hostname or ""
    if is_loopback(host):
        _keep_from_proxies(host)
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else None
    with _without(ADDRESS_VARIABLES):
        try:
            return JobSubmissionClient(endpoint.url, headers=headers, verify=certificates() or True)
        except OSError as error:
            raise Unreachable(*not_reachable(endpoint.url, _reason(error)).args) from None


def _keep_from_proxies(host: str) -> None:
    """This machine and its tunnels are not reached through a proxy, nor is the token sent to one."""
    if any(os.environ.get(name) for name in _PROXIES):
        exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        if host not in exempt.split(","):
            os.environ["no_proxy"] = ",".join(filter(None, (exempt, host)))


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
