"""The job endpoint of a cluster: its address, its token, and a first look at what answers there.

Looked at with the standard library before Ray is loaded: what is wrong is told at once, and Ray's own client would wait
for ever on a host that swallows packets.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dray.clusters import known
from dray.clusters.known import Known
from dray.clusters.provider import Provider
from dray.clusters.resolve import Remote, resolve
from dray.errors import ClusterError, ConfigError

LOOK_TIMEOUT_S = 10.0
DEFAULT_URL = "http://127.0.0.1:8265"
ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_DASHBOARD_ADDRESS", "RAY_ADDRESS")
_HOW_TO_GIVE_IT = (
    "Set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to the file that holds it; `ray get-auth-token` on the head prints it."
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A job server that answered."""

    url: str
    token: str | None = field(repr=False)
    ray: str
    """Its version of Ray."""
    session: str
    """Of Ray, on the head: tells whether that is this machine."""
    warnings: tuple[str, ...] = ()
    cluster: str | None = None
    """The name of the cluster, if dray started it: the address is that of a tunnel then, and will not last."""

    @property
    def name(self) -> str:
        return self.cluster or self.url

    @property
    def option(self) -> str:
        """How to name it in another command."""
        return f"--cluster {self.name}"


@contextmanager
def open_endpoint(word: str | None, provider_of: Callable[[Known], Provider]) -> Iterator[Endpoint]:
    """Give the endpoint at an address, of a cluster that dray started (its name), or that the environment names."""
    where = resolve(word or from_environment(os.environ))
    if not isinstance(where, Remote):
        raise ConfigError(
            f"{where.word} is not a job endpoint.",
            fix="Give the address of a dashboard (http://head:8265), or the name of a cluster that dray started.",
        )
    if where.named:
        cluster = known.read(where.word)
        with provider_of(cluster).endpoint(cluster) as url:
            yield look(url, known.token(cluster.name), cluster=cluster.name)
    else:
        yield look(where.word)


def from_environment(environment: Mapping[str, str]) -> str:
    """Return the address that Ray's variables name, as its own commands understand them."""
    for name in ADDRESS_VARIABLES:
        address = environment.get(name, "")
        if address.startswith(("http://", "https://")):
            return address
        if address and name != "RAY_ADDRESS" and "://" not in address:
            return f"http://{address}"
    return DEFAULT_URL


def look(url: str, token: str | None = None, *, cluster: str | None = None) -> Endpoint:
    """Return what answers at the address, or say why nothing useful does. `token` None: the environment's."""
    credentials, at, host = url.rpartition("@")  # a password may have a / in it, which no parser expects
    place = urlsplit(url) if not at else None
    if place is None or place.query or place.fragment or not place.hostname:
        shown = f"{credentials.partition('://')[0]}://{host}" if at else url.partition("?")[0].partition("#")[0]
        raise ConfigError(
            f"{shown} is not the plain address of an endpoint.",
            fix="Write http://host:8265 or https://host; a token goes into RAY_AUTH_TOKEN.",
        )
    url, loopback = url.rstrip("/"), is_loopback(place.hostname)
    token = token or token_at_hand(os.environ, loopback=loopback)
    answer = _ask(url, token)
    warnings = []
    if not loopback:
        if token and place.scheme == "http":
            warnings.append(f"The token goes to {url} unencrypted: use https, or ssh -L 8265:localhost:8265 HEAD.")
        if _is_open(url):
            warnings.append(f"{url} answers without a token: anyone that reaches it can run programs there.")
    session = str(answer.get("session_name") or "")
    return Endpoint(url, token, answer["ray_version"], session, tuple(warnings), cluster)


def token_at_hand(environment: Mapping[str, str], *, loopback: bool) -> str | None:
    """Return the token that the environment names. The one in Ray's own file is for clusters of this machine."""
    if token := environment.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = environment.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
    if not named and not loopback:
        return None
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        if not named:
            return None
        raise ClusterError(f"The token file {path} cannot be read: {error.strerror}.", fix=_HOW_TO_GIVE_IT) from None


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def certificates() -> str | None:
    """Return the file of the authorities to trust, where one is named."""
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or None


def refuse_token(url: str, status: int) -> ClusterError:
    what = "wants a token" if status == 401 else "refuses this token"
    return ClusterError(f"The endpoint {url} {what}.", fix=_HOW_TO_GIVE_IT)


def not_reachable(url: str, reason: object) -> ClusterError:
    return ClusterError(
        f"Nothing answers at {url}: {reason}.",
        fix="Check the host, the port (8265 unless changed) and the firewall. A dashboard is often bound to 127.0.0.1 "
        "of its head: ssh -L 8265:localhost:8265 HEAD, and use http://127.0.0.1:8265.",
    )


class _StayThere(urllib.request.HTTPRedirectHandler):
    """A redirection would take the token to the host that it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(url: str, token: str | None) -> dict[str, Any]:
    try:
        answer = json.loads(_get(url, token))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise refuse_token(url, error.code) from None
        raise _no_ray(url, f"HTTP status {error.code}") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLError):
            raise ClusterError(
                f"No safe connection to {url}: {error.reason.reason or error.reason}.",
                fix="Name the file of the authority that signed its certificate in SSL_CERT_FILE, or use http:// if it "
                "has none.",
            ) from None
        raise not_reachable(url, getattr(error.reason, "strerror", None) or error.reason) from None
    except TimeoutError:
        raise not_reachable(url, f"no answer within {LOOK_TIMEOUT_S:g} s") from None
    except (ValueError, http.client.HTTPException):
        raise _no_ray(url, "something else than Ray's version") from None
    except OSError as error:
        raise not_reachable(url, error.strerror or error) from None
    if not isinstance(answer, dict) or "ray_version" not in answer:
        raise _no_ray(url, "something else than Ray's version")
    return answer


def _get(url: str, token: str | None) -> bytes:
    request = urllib.request.Request(f"{url}/api/version")  # noqa: S310  (http or https: `resolve` saw to it)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    context = ssl.create_default_context(cafile=certificates()) if url.startswith("https://") else None
    handlers = [_StayThere(), *([urllib.request.HTTPSHandler(context=context)] if context else [])]
    if is_loopback(urlsplit(url).hostname or ""):  # nor is the token of a tunnel for a proxy
        handlers.append(urllib.request.ProxyHandler({}))
    with urllib.request.build_opener(*handlers).open(request, timeout=LOOK_TIMEOUT_S) as response:
        return bytes(response.read(1 << 20))


def _is_open(url: str) -> bool:
    try:
        _get(url, None)
    except OSError:
        return False
    return True


def _no_ray(url: str, how: str) -> ClusterError:
    return ClusterError(
        f"{url} is not a Ray job server: it answers with {how}.",
        fix="Give the address of the dashboard (port 8265 unless changed), not of the cluster itself (6379).",
    )
