"""Connecting to S3 and to services that speak its protocol, and explaining what they answer.

The only place that handles credentials: they go from the environment or from ~/.aws straight into the client.
"""

from __future__ import annotations

import configparser
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import SplitResult, urlsplit

from pyarrow import fs as pafs

from dray.errors import StorageError
from dray.masking import MASK, masked

CONNECT_TIMEOUT_S = 5.0
SESSION = "dray"
ROLE_SECONDS = 900
"""How long the keys of an assumed role are valid: the least that STS allows; the client renews them."""
CHECKSUMS = "AWS_REQUEST_CHECKSUM_CALCULATION"
_environment_lock = threading.Lock()
_CREDENTIALS = ("INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID", "INVALID_SIGNATURE",
                "MISSING_AUTHENTICATION_TOKEN", "UnsupportedAlgorithm", "UNRECOGNIZED_CLIENT", "TokenRefreshRequired",
                "InvalidToken")  # fmt: skip
_EXPIRED = ("EXPIRED_TOKEN", "ExpiredToken", "RequestExpired", "REQUEST_EXPIRED", "token has expired")
_PASSING = re.compile(
    r"AWS Error (?:SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|THROTTLING|NETWORK_CONNECTION)\b"
    r"|HTTP status (?:408|429|5\d\d)\b"
    r"|AWS Error NO_SUCH_UPLOAD\b"  # the answer to a finished upload was lost, and the client asked again
)
_CERTIFICATE = re.compile(r"curlCode: (?:51|53|54|58|59|60|66|77|80|82|83|90|91)\b")


@dataclass(frozen=True, slots=True)
class _Access:
    """How a bucket is reached. Holds keys: it is not kept, shown or sent."""

    endpoint: str | None
    region: str
    profile: str | None
    role: str | None
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)


def connect(
    bucket: str, endpoint: str | None, region: str | None, profile_name: str | None, role: str | None = None
) -> pafs.S3FileSystem:
    """Return the file system that holds `bucket`; what is not given comes from the environment or the profile."""
    return _connect(_access(bucket, endpoint, region, profile_name, role))


def variables(
    bucket: str, endpoint: str | None, region: str | None, profile_name: str | None, role: str | None = None
) -> dict[str, str]:
    """Return the same for a client that takes AWS variables. Holds keys: for one call, never store them."""
    access = _access(bucket, endpoint, region, profile_name, role)
    found = {
        "AWS_ENDPOINT_URL": access.endpoint,
        "AWS_REGION": access.region,
        "AWS_ALLOW_HTTP": "true" if (access.endpoint or "").startswith("http://") else None,
        "AWS_ACCESS_KEY_ID": access.access_key,
        "AWS_SECRET_ACCESS_KEY": access.secret_key,
        "AWS_SESSION_TOKEN": access.session_token,
        "AWS_PROFILE": access.profile if not access.access_key else None,
        "AWS_IAM_ROLE_ARN": access.role,
        "AWS_IAM_ROLE_SESSION_NAME": SESSION if access.role else None,
    }
    return {name: value for name, value in found.items() if value}


def _access(
    bucket: str, endpoint: str | None, region: str | None, profile_name: str | None, role: str | None
) -> _Access:
    profile = _profile(profile_name or os.environ.get("AWS_PROFILE") or "default", named=profile_name is not None)
    endpoint = (
        endpoint
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or profile.get("endpoint_url")
    )
    region = (
        region
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or profile.get("region")
        or ("us-east-1" if endpoint else pafs.resolve_s3_region(bucket))
    )
    # A profile that the user named wins over keys in the environment, as with the AWS command line.
    keys = {name: profile.get(f"aws_{name}") for name in ("access_key_id", "secret_access_key", "session_token")}
    if profile_name is None or not keys["access_key_id"]:
        keys = {name: os.environ.get(f"AWS_{name.upper()}") or value for name, value in keys.items()}
        if os.environ.get("AWS_ACCESS_KEY_ID"):
            keys["session_token"] = os.environ.get("AWS_SESSION_TOKEN")
    return _Access(endpoint, region, profile_name, role, *keys.values())


def check_endpoint(endpoint: str) -> SplitResult:
    """Return the parts of an endpoint's URL; refuse anything beyond host and port, such as credentials."""
    place, credentials = endpoint, "@" in endpoint
    if credentials:  # of which a / or a # may be a part, so that no parser finds them
        place = f"{MASK}@{endpoint.rpartition('@')[2]}"
    try:
        url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        plain = url.scheme in ("http", "https") and url.hostname and not (url.query or url.fragment) and url.port != 0
    except ValueError:  # a port that is not a number
        plain = False
    if credentials or not plain:
        raise StorageError(
            f"The S3 endpoint {place} {'holds credentials' if credentials else 'is not a plain URL'}.",
            fix="Write it as http://host:port or https://host; keys come from AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or from a profile.",
        )
    return url


@lru_cache(maxsize=8)
def _connect(access: _Access) -> pafs.S3FileSystem:
    settings: dict[str, object] = {}
    environment: dict[str, str] = {}
    endpoint = access.endpoint
    if endpoint:
        url = check_endpoint(endpoint)
        port = url.port or (443 if url.scheme == "https" else 80)
        _check_reachable(endpoint, str(url.hostname), port)
        settings |= {"endpoint_override": url.netloc, "scheme": url.scheme}
        # Many S3 services other than AWS refuse the SDK's chunked checksums; AWS alone made them the default.
        environment[CHECKSUMS] = os.environ.get(CHECKSUMS, "WHEN_REQUIRED")
    if access.role:
        # The client asks STS for keys, with those of the environment or the profile, and again before they expire.
        settings |= {"role_arn": access.role, "session_name": SESSION, "load_frequency": ROLE_SECONDS}
        environment |= _for_sts(access)
    elif access.access_key and access.secret_key:
        settings |= {
            "access_key": access.access_key,
            "secret_key": access.secret_key,
            "session_token": access.session_token,
        }
    elif access.profile:
        environment["AWS_PROFILE"] = access.profile  # a role or single sign-on: the SDK knows how
    with _environment(environment):
        return pafs.S3FileSystem(
            region=access.region,
            connect_timeout=CONNECT_TIMEOUT_S,
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=3),
            **settings,
        )


def _for_sts(access: _Access) -> dict[str, str]:
    found = {"AWS_REGION": access.region}
    if access.profile:
        found["AWS_PROFILE"] = access.profile
    if access.endpoint and "AWS_ENDPOINT_URL_STS" not in os.environ:
        found["AWS_ENDPOINT_URL_STS"] = access.endpoint  # MinIO and others answer for both
    return found


def etag(filesystem: pafs.S3FileSystem, path: str) -> str:
    """Return the store's ETag of an object; empty if it gives none."""
    with filesystem.open_input_file(path) as stream:
        found: bytes = (stream.metadata() or {}).get("ETag", b"")
    return found.decode(errors="replace").strip('"')


def delete_directory(filesystem: pafs.S3FileSystem, path: str, attempts: int = 4) -> None:
    """Remove every key below `path`; nothing happens when there is none."""
    for attempt in range(attempts):
        try:
            filesystem.delete_dir(path)
            break
        except FileNotFoundError:
            break
        except OSError:  # a service may refuse single keys, such as those of directories not empty yet
            if attempt == attempts - 1:
                raise
    # pyarrow marks the parent of what it deletes with a key `runs/`. Some services keep that as `runs`, which is
    # in the way of any later `runs/...`. Only this one key is deleted: another run may be written beside it meanwhile.
    for parent in [str(parent) for parent in PurePosixPath(path).parents][:-2]:  # neither the bucket nor "."
        if filesystem.get_file_info(pafs.FileSelector(parent, allow_not_found=True)):
            return
        if filesystem.get_file_info(parent).type == pafs.FileType.Directory:
            with suppress(OSError):
                filesystem.delete_file(parent)


def _check_reachable(endpoint: str, host: str, port: int) -> None:
    # The SDK tries several times and reports little; one connection answers within CONNECT_TIMEOUT_S.
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise StorageError(
            f"The S3 endpoint {endpoint} cannot be reached: {error.strerror or error}.",
            fix="Check the endpoint's address and port, that the service runs, and the network or VPN.",
        ) from error


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables while an S3 client is made: it reads them then, and takes them in no other way."""
    with _environment_lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _profile(name: str, named: bool) -> dict[str, str]:
    """Return the settings of a profile in ~/.aws/credentials and ~/.aws/config."""
    settings: dict[str, str] = {}
    home = Path("~/.aws")
    for variable, file, section in (
        ("AWS_CONFIG_FILE", home / "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", home / "credentials", name),
    ):
        parser = configparser.RawConfigParser()
        with suppress(configparser.Error):
            parser.read(Path(os.environ.get(variable) or file).expanduser(), encoding="utf-8")
        if parser.has_section(section):
            settings |= dict(parser.items(section))
    if not settings and named:
        raise StorageError(
            f'There is no profile "{name}" in ~/.aws/credentials or ~/.aws/config.',
            fix="Name one of the profiles in these files, or leave it out and set AWS_ACCESS_KEY_ID.",
        )
    return settings


def explain(location: str, text: str) -> StorageError:
    """Return what an error text of the S3 client means for `location`."""
    place = masked(location)
    bucket = place.removeprefix("s3://").partition("/")[0]
    if any(code in text for code in _EXPIRED):
        return StorageError(
            f"The S3 credentials have expired ({place}).",
            fix="Get new ones (aws sso login, or the command that gave you AWS_SESSION_TOKEN) and resume. Keys in the "
            "environment are never renewed: for long runs name a role (storage: role) or a profile, which are.",
        )
    if any(code in text for code in _CREDENTIALS):
        return StorageError(
            f"The S3 credentials were refused for {place}.",
            fix="Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile; "
            "they must belong to this endpoint and not be expired.",
        )
    # The answer to HeadObject has no body, so that a refused key looks like any other bad request.
    if "ACCESS_DENIED" in text or "HTTP status 403" in text or "HTTP status 400) during Head" in text:
        return StorageError(
            f"Access to {place} was denied.",
            fix="Check the S3 credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or the profile) and that they "
            f'may list, read and write the bucket "{bucket}".',
        )
    if "NO_SUCH_BUCKET" in text or ("Bucket" in text and "not found" in text):
        return StorageError(
            f'There is no bucket "{bucket}" ({place}).',
            fix="Check the name, the endpoint and the region; dray does not make buckets.",
        )
    reason = text.partition("AWS Error ")[2].splitlines()[0] if "AWS Error " in text else text.splitlines()[0]
    if "NO_SUCH_KEY" in text or "RESOURCE_NOT_FOUND" in text:
        return StorageError(f"{place} does not exist.", fix="Check the path; it may have been removed meanwhile.")
    if _CERTIFICATE.search(text):
        return StorageError(
            f"The certificate of the S3 service is not accepted for {place}: {redact(reason)}.",
            fix="Name the file of the authority that signed it in AWS_CA_BUNDLE, or use the right host name.",
        )
    if "NETWORK_CONNECTION" in text or "curlCode" in text:
        return StorageError(
            f"The S3 service cannot be reached for {place}.",
            fix="Check the endpoint, the region and the network.",
        )
    if is_transient(text):
        return StorageError(
            f"The S3 service fails for {place}: {redact(reason)}.",
            fix="Try again later; if it goes on, ask the operator of the service, or read with fewer workers.",
        )
    if "301" in text or "PERMANENT_REDIRECT" in text or "AuthorizationHeaderMalformed" in text:
        return StorageError(f'The bucket "{bucket}" is in another region.', fix="Set the region of the bucket.")
    return StorageError(f"S3 refused {place}: {redact(reason)}.", fix="Check the endpoint and the bucket's settings.")


def is_transient(text: str) -> bool:
    """Whether an error text of the S3 client is about overload or the network, not about the request."""
    return _PASSING.search(text) is not None and _CERTIFICATE.search(text) is None


def redact(text: str) -> str:
    """Return `text` without the secrets that this process's environment holds."""
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"):
        secret = os.environ.get(name, "")
        if len(secret) >= 8:  # shorter ones are the defaults of test services, and words that occur in any text
            text = text.replace(secret, "***")
    return text
