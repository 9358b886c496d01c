"""dray.map where it is not compared but measured: long items, killers, a large array, no end."""

import argparse
import json
import time

import mapping_work
import numpy as np

import dray


def long(items: int, kill: bool) -> dict:
    call = dray.map
    begun = time.perf_counter()
    results = call(mapping_work.nap_or_kill if kill else mapping_work.nap, range(items), on_error="skip")
    found = list(results)
    seconds = time.perf_counter() - begun
    killers = [item for item in range(items) if item % 50 == 25] if kill else []
    assert sorted(error.index for error in results.failures) == killers
    missing = set(range(items)) - set(found) - set(killers)
    return {"seconds": {"map": seconds}, "missing": len(missing), "failed": results.failed}


def large(megabytes: int, where: str) -> dict:
    """The array is given with every item: from a list, from an iterator, and by a second call."""
    array = np.ones(megabytes * 125_000)
    items = [(array, row) for row in range(100)]
    begun = time.perf_counter()
    for given in (items, iter(items), items):
        assert list(dray.map(mapping_work.row_sum, given, where=where, cluster="local")) == [1000.0] * 100
        if where == "cluster":
            break  # an embedded cluster ends with its map, and its store too
    seconds = time.perf_counter() - begun
    if where == "cluster":
        from dray.batch import ray_tasks

        (store,) = ray_tasks._stores.values()
    else:
        from dray.batch import processes

        store = processes.STORE
    return {"seconds": {"map": seconds}, "stored": store.stored}


def endless(limit_s: float) -> dict:
    """Arrays of 10 kB for ever; the memory of this process and its children once a second."""
    import psutil

    def arrays():
        random = np.random.default_rng(0)
        while True:
            yield random.random(1250)

    def memory() -> int:
        me = psutil.Process()
        return sum(process.memory_info().rss for process in (me, *me.children(recursive=True)))

    samples, count = [], 0
    begun = looked = time.monotonic()
    with dray.map(mapping_work.middle, arrays()) as results:
        for _ in results:
            count += 1
            now = time.monotonic()
            if now - looked >= 1:
                looked = now
                samples.append((round(now - begun, 1), memory()))
            if now - begun >= limit_s:
                break
    settled = [size for second, size in samples if second >= limit_s / 6]
    return {"items": count, "samples": samples, "spread_bytes": max(settled) - min(settled), "seconds": {}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["long", "killers", "large", "large_on_ray", "endless"])
    parser.add_argument("--size", type=float, required=True, help="items, megabytes or seconds")
    asked = parser.parse_args()
    size = asked.size
    if asked.what in ("long", "killers"):
        report = long(int(size), asked.what == "killers")
    elif asked.what == "endless":
        report = endless(size)
    else:
        report = large(int(size), "cluster" if asked.what == "large_on_ray" else "processes")
    print(json.dumps(report))
