from __future__ import annotations

import socket

import pytest

from dray.errors import ClusterError, ConfigError
from dray.rings.ports import listen, parse_ports, ports_for


@pytest.mark.parametrize("text", ["", "20000", "20000-19999", "1000-2000", "20000-70000", "a-b", "20000-20000"])
def test_what_is_not_a_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="DRAY_RING_PORTS"):
        parse_ports(text)


def test_a_range_is_its_first_and_last_port() -> None:
    assert parse_ports(" 20000-20099 ") == (20000, 20099)


def test_rings_on_one_machine_take_any_port_and_others_those_of_the_range() -> None:
    assert ports_for("127.0.0.1", {"DRAY_RING_PORTS": "30000-30001"}) is None
    assert ports_for("::1", {}) is None
    assert ports_for("10.0.0.1", {}) == (20000, 20099)
    assert ports_for("10.0.0.1", {"DRAY_RING_PORTS": "30000-30001"}) == (30000, 30001)


def test_members_listen_within_the_range_until_it_is_used_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        first = probe.getsockname()[1]
    first = first if first < 65000 else 40000
    taken = [listen("127.0.0.1", (first, first + 2))]
    try:
        while len(taken) < 4:
            taken.append(listen("127.0.0.1", (first, first + 2)))
    except ClusterError as error:
        assert f"{first}-{first + 2}" in error.what
    finally:
        found = [server.getsockname() for server in taken]
        for server in taken:
            server.close()
    assert len(set(found)) == len(found) <= 3
    assert all(host == "127.0.0.1" and first <= port <= first + 2 for host, port in found)
