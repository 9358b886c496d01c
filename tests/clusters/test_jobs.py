"""Jobs on a real Ray head, over its real job server, with a token."""

from __future__ import annotations

import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from dray.data.synthetic import make
from dray.errors import ClusterError, DataError, DrayError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.jobs.anywhere import resume
from dray.jobs.attend import stop
from dray.jobs.client import Jobs
from dray.jobs.commands.training import Train
from dray.jobs.endpoint import look
from dray.jobs.follow import Follower
from dray.jobs.remote import run_at
from dray.learners.configs import make_config
from dray.storage import DEFAULT
from dray.training.train import train as train_here
from dray_process import DRAY
from job_head import JobHead, job_head
from s3_server import S3Server

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIDSECRETSECRET0001",
    "AWS_SECRET_ACCESS_KEY": "very/secret/very/secret/0002",
    "AWS_SESSION_TOKEN": "sessionsecretsecret0003",
    "DB_PASSWORD": "passwordsecretsecret0004",
}


@pytest.fixture(scope="module")
def head(s3_process: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobHead]:
    """A head whose own profile reaches the store."""
    profile = tmp_path_factory.mktemp("aws") / "credentials"
    keys = {"aws_access_key_id": s3_process.access_key, "aws_secret_access_key": s3_process.secret_key}
    profile.write_text("[default]\n" + "".join(f"{name} = {value}\n" for name, value in keys.items()))
    own = {"AWS_SHARED_CREDENTIALS_FILE": str(profile), "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    with job_head(extra=own) as started:
        yield started


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows") / "data"
    make(str(place), rows=4000, features=6, files=4, processes=1)
    return place


@pytest.fixture
def jobs(head: JobHead) -> Jobs:
    return Jobs(look(head.url, head.token))


class Kept:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.samples: list[Sample] = []
        self.closed = 0

    def event(self, event: Event) -> None:
        self.events.append(event)

    def sample(self, samples: list[Sample]) -> None:
        self.samples += samples

    def close(self) -> None:
        self.closed += 1

    def kinds(self) -> list[str]:
        return list(dict.fromkeys(event.kind for event in self.events))


def dray(
    head: JobHead, *arguments: str, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DRAY, "job", *arguments],
        cwd=cwd,
        env=head.environment | {"RAY_API_SERVER_ADDRESS": head.url} | (env or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def start(head: JobHead, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    with (cwd / "out").open("w") as out, (cwd / "err").open("w") as err:
        return subprocess.Popen(
            [DRAY, "job", *arguments],
            cwd=cwd,
            env=head.environment | {"RAY_API_SERVER_ADDRESS": head.url},
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )


def run_file(place: Path, data: Path, **more: Any) -> str:
    values = {"data": [str(data)], "label": "label", "rounds": 5, "workers": 0, "out": "run"} | more
    (place / "run.yaml").write_text(json.dumps(values))
    return "run.yaml"


def script(place: Path, source: str, name: str = "script.py") -> str:
    (place / "code").mkdir(exist_ok=True)
    (place / "code" / name).write_text(source)
    return f"code/{name}"


def wait_for(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ids(jobs: Jobs) -> set[str]:
    return {info.id for info in jobs.list()}


def test_a_run_at_an_endpoint_comes_to_the_model_of_a_run_here(
    head: JobHead, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"data": [os.path.relpath(data)], "label": "label", "rounds": 8, "eval_fraction": 0.2}
    here = train_here(make_config(values | {"workers": 0, "out": "here"}))
    kept = Kept()
    there = run_at(look(head.url, head.token), Train(make_config(values | {"workers": 2})), [kept])
    assert there.model_digest == here.model_digest
    assert there.metrics == here.metrics
    assert there.workers == 2
    assert Path(there.directory).parent == tmp_path / "runs"
    assert there.booster.num_boosted_rounds() == 8
    assert {"run_started", "phase", "data", "worker_started", "round", "run_finished"} <= set(kept.kinds())
    assert [event.data["round"] for event in kept.events if event.kind == "round"] == list(range(1, 9))
    assert kept.samples
    assert kept.closed == 1


def test_a_mistake_in_a_run_is_the_same_mistake_there_with_its_exit_code(
    head: JobHead, data: Path, tmp_path: Path
) -> None:
    config = make_config({"data": [str(data)], "label": "labl", "out": str(tmp_path / "run"), "workers": 0})
    with pytest.raises(DataError) as here:
        train_here(config)
    with pytest.raises(DataError) as there:
        run_at(look(head.url, head.token), Train(config))
    assert (there.value.what, there.value.fix) == (here.value.what, here.value.fix)
    done = dray(head, "submit", run_file(tmp_path, data, label="labl"), "--json", "--retries", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["type"] == "DataError"
    assert "Trying again" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_script_runs_with_its_files_and_arguments_and_its_output_comes_back(head: JobHead, tmp_path: Path) -> None:
    script(tmp_path, "def name(): return 'helped'", "helper.py")
    main = script(tmp_path, "import helper, os, sys; print(helper.name(), sys.argv[1:], os.environ['STAGE'])")
    done = dray(head, "submit", main, "--env", "STAGE=test", "--", "--json", "a b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "helped ['--json', 'a b'] test\n"
    listed = json.loads(dray(head, "list", "--json", cwd=tmp_path).stdout)["jobs"][0]
    assert (listed["status"], listed["name"], listed["exit_code"]) == ("SUCCEEDED", "script.py", 0)
    assert "a b" not in json.dumps(listed)


def test_a_script_that_fails_is_tried_again_under_a_new_id(head: JobHead, jobs: Jobs, tmp_path: Path) -> None:
    before = ids(jobs)
    mark = tmp_path / "seen"
    source = (
        f"import pathlib, sys; p = pathlib.Path({str(mark)!r}); sys.exit(0) if p.exists() else (p.touch(), sys.exit(3))"
    )
    done = dray(head, "submit", script(tmp_path, source), "--retries", "3", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = sorted(ids(jobs) - before)
    assert second == f"{first}-try2" == json.loads(done.stdout)["id"]
    assert jobs.info(first).exit_code == 3


def test_a_script_that_ends_with_2_is_not_tried_again(head: JobHead, jobs: Jobs, tmp_path: Path) -> None:
    before = ids(jobs)
    done = dray(head, "submit", script(tmp_path, "raise SystemExit(2)"), "--retries", "3", cwd=tmp_path)
    assert done.returncode == 1
    assert "ended with exit code 2" in done.stderr
    assert len(ids(jobs) - before) == 1


def test_a_run_that_is_killed_is_gone_on_with_by_the_next_try(
    head: JobHead, jobs: Jobs, data: Path, tmp_path: Path
) -> None:
    client = start(head, "submit", run_file(tmp_path, data, rounds=100_000), "--retries", "1", cwd=tmp_path)
    events = tmp_path / "run" / "events.jsonl"
    wait_for(lambda: events.exists() and '"kind": "round"' in events.read_text())
    wait_for(lambda: (tmp_path / "run" / "checkpoints").exists())
    first = json.loads((tmp_path / "run" / "run.json").read_text())
    os.kill(first["process"]["pid"], signal.SIGKILL)
    wait_for(lambda: '"kind": "resumed"' in events.read_text())
    client.send_signal(signal.SIGINT)
    assert client.wait(60) == 130
    second = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (second["run"], second["resumed"]) == (first["run"], 1)
    assert second["job"] in (tmp_path / "err").read_text()


def test_an_interrupted_client_stops_the_run_which_can_be_resumed_where_it_was(
    head: JobHead, jobs: Jobs, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", head.token)
    client = start(head, "submit", run_file(tmp_path, data, rounds=100_000), cwd=tmp_path)
    events = tmp_path / "run" / "events.jsonl"
    wait_for(lambda: events.exists() and '"kind": "round"' in events.read_text())
    wait_for(lambda: "train" in (tmp_path / "err").read_text())
    client.send_signal(signal.SIGINT)
    assert client.wait(60) == 130
    said = (tmp_path / "err").read_text()
    assert "Stopping the job" in said
    assert "is stopped" in said
    [info] = [info for info in jobs.list() if info.id in said]
    assert info.status == "STOPPED"
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (document["status"], document["config"]["cluster"]) == ("stopped", head.url)
    assert (tmp_path / "run" / "checkpoints").exists()
    kept = Kept()

    def go_on() -> None:
        with suppress(DrayError):  # it is stopped too
            resume(str(tmp_path / "run"), DEFAULT, {}, [kept])

    gone_on = threading.Thread(target=go_on)
    gone_on.start()
    wait_for(lambda: "resumed" in kept.kinds() and "round" in kept.kinds())
    newest = jobs.list()[0]
    assert (newest.name, newest.status) == ("dray resume", "RUNNING")
    stop(jobs, newest.id)
    gone_on.join(30)
    rounds = [event.data["round"] for event in kept.events if event.kind == "round"]
    assert rounds[0] > 1


def test_a_killed_client_leaves_the_job_running_and_another_one_follows_it(
    head: JobHead, jobs: Jobs, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    source = f"""
import pathlib, time
print("first", flush=True)
while not pathlib.Path({str(gate)!r}).exists():
    time.sleep(0.1)
print("last", flush=True)
"""
    client = start(head, "submit", script(tmp_path, source), cwd=tmp_path)
    wait_for(lambda: "first" in (tmp_path / "out").read_text())
    client.kill()
    client.wait()
    job = next(info.id for info in jobs.list() if info.id in (tmp_path / "err").read_text())
    assert jobs.info(job).status == "RUNNING"
    follower = start(head, "logs", job, "--follow", cwd=tmp_path)
    wait_for(lambda: "first" in (tmp_path / "out").read_text())
    gate.touch()
    assert follower.wait(60) == 0
    assert (tmp_path / "out").read_text() == "first\nlast\n"
    assert "succeeded" in (tmp_path / "err").read_text()


def test_the_log_of_a_run_is_shown_as_the_run_would_have(head: JobHead, data: Path, tmp_path: Path) -> None:
    done = dray(head, "submit", run_file(tmp_path, data), "--no-wait", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    shown = dray(head, "logs", job, "--follow", cwd=tmp_path)
    assert shown.returncode == 0
    steps = re.findall(r"^\d\d:\d\d:\d\d  (\w+)", shown.stdout, flags=re.MULTILINE)
    assert (steps[:2], steps[-1]) == (["run", "data"], "next")
    assert "  rounds   5 on 4,000 rows x 6 features, in this process" in shown.stdout
    assert "@dray" not in shown.stdout
    assert "Running entrypoint" not in shown.stdout
    again = dray(head, "logs", job, cwd=tmp_path)
    assert again.stdout == shown.stdout
    document = json.loads(dray(head, "logs", job, "--json", cwd=tmp_path).stdout)
    assert document["told"][-1]["result"]["rounds"] == 5


def test_a_time_limit_ends_the_job_and_all_it_started_though_nobody_follows(
    head: JobHead, jobs: Jobs, tmp_path: Path
) -> None:
    source = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(600)
"""
    done = dray(head, "submit", script(tmp_path, source), "--timeout", "2", "--no-wait", cwd=tmp_path)
    job = done.stdout.strip()
    wait_for(lambda: jobs.info(job).over, timeout_s=90)
    assert jobs.info(job).exit_code == 124
    pids = next(line for line in jobs.logs(job).splitlines() if line.startswith("pids")).split()[1:]
    assert len(pids) == 2
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)


def test_a_time_limit_is_told_to_who_follows(head: JobHead, tmp_path: Path) -> None:
    done = dray(head, "submit", script(tmp_path, "import time; time.sleep(600)"), "--timeout", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "ended at its time limit of 1 s" in done.stderr


def test_without_the_right_token_nothing_is_told(head: JobHead, jobs: Jobs, tmp_path: Path) -> None:
    before = ids(jobs)
    main = script(tmp_path, "print('ran')")
    for token, words in ((None, "wants a token"), ("0" * 64, "refuses this token")):
        env = {"RAY_AUTH_TOKEN": token or "", "HOME": str(tmp_path)}
        for arguments in (["submit", main], ["list"], ["logs", "x"], ["stop", "x"], ["delete", "x"], ["status", "x"]):
            done = dray(head, *arguments, cwd=tmp_path, env=env)
            assert done.returncode == 2
            assert words in done.stderr
            assert done.stdout == ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        for path in ("/api/jobs/", "/api/version", "/nodes?view=summary", "/api/v0/actors"):
            with pytest.raises(urllib.error.HTTPError, match=r"40[13]"):
                urllib.request.urlopen(urllib.request.Request(head.url + path, headers=headers), timeout=10)
    assert ids(jobs) == before


def test_an_upload_over_the_limit_is_refused_before_anything_is_sent(head: JobHead, jobs: Jobs, tmp_path: Path) -> None:
    before = ids(jobs)
    main = script(tmp_path, "print('ran')")
    noise = random.Random(0).randbytes(1 << 20)
    for name, mebibytes in (("large.bin", 70), ("larger.bin", 80)):
        with (tmp_path / "code" / name).open("wb") as file:
            for _ in range(mebibytes):
                file.write(noise)
    done = dray(head, "submit", main, cwd=tmp_path)
    assert done.returncode == 2
    assert "more than 100 MiB" in done.stderr
    assert done.stderr.index("larger.bin (84 MB)") < done.stderr.index("large.bin (73 MB)")
    assert ids(jobs) == before
    done = dray(head, "submit", main, "--exclude", "large*.bin", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "Left out, by --exclude: 2: large.bin, larger.bin" in done.stderr


def test_a_cluster_without_dray_says_so(head: JobHead, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "dray-9.9.dist-info").mkdir(parents=True)
    (other / "dray-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: dray\nVersion: 9.9\n")
    run = run_file(tmp_path, data)
    done = dray(head, "submit", run, "--env", f"PYTHONPATH={other}", cwd=tmp_path)
    assert done.returncode == 2
    assert "has dray 9.9, the submitter" in done.stderr
    # A Python of the system's, and no way from there to Ray's.
    lacking = ["--env", "PATH=/usr/bin:/bin", "--env", "DRAY_JOB_PYTHON=none"]
    done = dray(head, "submit", run, *lacking, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "has no dray" in done.stderr
    assert "Install dray" in done.stderr


def test_a_job_finds_the_python_of_ray_when_the_path_has_another(head: JobHead, tmp_path: Path) -> None:
    main = script(tmp_path, "import ray, sys; print(sys.executable)")
    done = dray(head, "submit", main, "--env", "PATH=/usr/bin:/bin", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == Path(DRAY).parent


def test_no_secret_of_the_client_reaches_the_cluster(head: JobHead, jobs: Jobs, data: Path, tmp_path: Path) -> None:
    main = script(tmp_path, f"import os; print([name for name in {list(SECRETS)} if name in os.environ])")
    (tmp_path / "code" / ".env").write_text("\n".join(SECRETS.values()))
    done = dray(head, "submit", main, cwd=tmp_path, env=SECRETS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    done = dray(head, "submit", run_file(tmp_path, data), "--json", cwd=tmp_path, env=SECRETS)
    assert done.returncode == 0, done.stderr
    for name in SECRETS:
        refused = dray(head, "submit", main, "--env", name, cwd=tmp_path, env=SECRETS)
        assert refused.returncode == 2
        assert "looks like a secret" in refused.stderr
    refused = dray(head, "submit", main, "--", SECRETS["DB_PASSWORD"], cwd=tmp_path, env=SECRETS)
    assert refused.returncode == 2

    request = urllib.request.Request(f"{head.url}/api/jobs/", headers={"Authorization": f"Bearer {head.token}"})
    published = urllib.request.urlopen(request, timeout=10).read().decode()
    told = "".join(jobs.logs(info.id) for info in jobs.list())
    written = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    # All of Ray's own directory: its logs, and the packages as they were unpacked.
    kept = [path.read_bytes() for path in head.log.parent.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(written) > 3
    assert len(kept) > 20
    for secret in (*SECRETS.values(), head.token):
        assert secret not in published + told + done.stdout + done.stderr
        assert not any(secret.encode() in content for content in (*written, *kept))
    for process in psutil.process_iter(["cmdline"]):
        assert not any(head.token in word for word in process.info["cmdline"] or ())


def test_data_and_output_on_s3_need_no_secret_to_travel(
    head: JobHead, data: Path, s3_server: S3Server, tmp_path: Path
) -> None:
    (s3_server.directory / "rows").mkdir()
    for file in data.iterdir():
        (s3_server.directory / "rows" / file.name).write_bytes(file.read_bytes())
    values = {
        "data": [s3_server.url("rows")],
        "label": "label",
        "rounds": 5,
        "workers": 0,
        "out": s3_server.url("run"),
        "storage": {"endpoint": s3_server.endpoint},
    }
    result = run_at(look(head.url, head.token), Train(make_config(values)))
    assert (s3_server.directory / "run" / "model.ubj").read_bytes() == result.content
    here = train_here(make_config(values | {"data": [str(data)], "out": str(tmp_path / "here"), "storage": {}}))
    assert result.model_digest == here.model_digest
    jobs = Jobs(look(head.url, head.token))
    assert s3_server.secret_key not in str(jobs.list()) + jobs.logs(jobs.list()[0].id)


class Wire:
    """A TCP connection to the head that can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def break_(self, for_s: float) -> None:
        self.cut = True
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()
        time.sleep(for_s)
        self.cut = False

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            if self.cut:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open += [near, far]
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with selectors.DefaultSelector() as ready, near, far, suppress(OSError):
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in ready.select():
                    content = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not content:
                        return
                    key.data.sendall(content)


def test_a_connection_that_breaks_loses_no_line_and_doubles_none(head: JobHead, jobs: Jobs, tmp_path: Path) -> None:
    source = "import time\nfor n in range(100):\n    print('line', n, 'ä' * 50, flush=True)\n    time.sleep(0.15)"
    job = dray(head, "submit", script(tmp_path, source), "--no-wait", cwd=tmp_path).stdout.strip()
    wire = Wire(int(head.url.rpartition(":")[2]))
    follower = Follower(Jobs(look(f"http://127.0.0.1:{wire.port}", head.token)), job)
    heard, broken = "", 0
    for piece in follower.pieces():
        heard += piece
        lines = heard.count("line ")
        if lines > 20 * (broken + 1) and broken < 3:
            broken += 1
            threading.Thread(target=wire.break_, args=(2.0,)).start()
    assert broken == 3
    found = [line.split()[1] for line in heard.splitlines() if line.startswith("line ")]
    assert found == [str(number) for number in range(100)]
    assert heard == jobs.logs(job)


def test_output_that_is_no_text_does_not_hide_the_end(head: JobHead, tmp_path: Path) -> None:
    main = script(tmp_path, "import os; os.write(1, b'\\xff\\xfe\\n')")
    done = dray(head, "submit", main, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "SUCCEEDED"


def test_jobs_are_looked_at_stopped_and_forgotten(head: JobHead, jobs: Jobs, tmp_path: Path) -> None:
    job = dray(
        head, "submit", script(tmp_path, "import time; time.sleep(600)"), "--no-wait", cwd=tmp_path
    ).stdout.strip()
    wait_for(lambda: jobs.info(job).status == "RUNNING")
    refused = dray(head, "delete", job, cwd=tmp_path)
    assert refused.returncode == 2
    assert "only one that has ended" in refused.stderr
    stopped = dray(head, "stop", job, "--json", cwd=tmp_path)
    assert json.loads(stopped.stdout)["status"] == "STOPPED"
    assert job in dray(head, "status", job, cwd=tmp_path).stdout
    assert dray(head, "delete", job, cwd=tmp_path).returncode == 0
    gone = dray(head, "status", job, "--json", cwd=tmp_path)
    assert gone.returncode == 2
    assert f'There is no job "{job}"' in json.loads(gone.stdout)["error"]["what"]


def test_a_job_can_be_stopped_while_it_is_being_prepared(head: JobHead, jobs: Jobs, tmp_path: Path) -> None:
    main = script(tmp_path, "import time; time.sleep(600)")
    job = dray(head, "submit", main, "--no-wait", "--env", "FRESH=1", cwd=tmp_path).stdout.strip()
    assert stop(jobs, job).status == "STOPPED"


def test_an_unknown_job_names_the_nearest(head: JobHead, jobs: Jobs, tmp_path: Path) -> None:
    known = jobs.list()[0].id
    done = dray(head, "logs", f"{known}x", "--follow", cwd=tmp_path)
    assert done.returncode == 2
    assert f'Did you mean "{known}"?' in done.stderr


def test_where_no_endpoint_is_the_commands_say_so(head: JobHead, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = dray(head, "list", "--endpoint", f"http://127.0.0.1:{port}", cwd=tmp_path)
    assert done.returncode == 2
    assert "Nothing answers" in done.stderr
    with pytest.raises(ClusterError, match="Nothing answers"):
        run_at(look(f"http://127.0.0.1:{port}", "x"), Train(make_config({"data": ["x"], "label": "y"})))
