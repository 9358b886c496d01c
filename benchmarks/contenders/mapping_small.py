"""Many small items, one way of mapping: seconds from having the items to having the results, pool start included."""

import argparse
import json
import time

import mapping_work

# Some ways import this file again in their processes: nothing may run outside the guard.
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["loop", "dray", "pool", "joblib", "ray"])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, help="items a task, for pool and joblib; their own choice unless given")
    asked = parser.parse_args()
    items, small = range(asked.items), mapping_work.small

    if asked.way == "loop":
        begun = time.perf_counter()
        results = [small(item) for item in items]
    elif asked.way == "dray":
        import dray

        call = dray.map  # imported, as the others are
        begun = time.perf_counter()
        results = list(call(small, items))
    elif asked.way == "pool":
        import multiprocessing

        begun = time.perf_counter()
        with multiprocessing.Pool(2) as pool:
            results = pool.map(small, items, chunksize=asked.chunk)
    elif asked.way == "joblib":
        import joblib

        begun = time.perf_counter()
        results = joblib.Parallel(n_jobs=2, batch_size=asked.chunk or "auto")(map(joblib.delayed(small), items))
    else:
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        remote = ray.remote(small)
        ray.get([remote.remote(item) for item in range(100)])  # its workers have started: they do not count
        begun = time.perf_counter()
        results = ray.get([remote.remote(item) for item in items])
    seconds = time.perf_counter() - begun
    expected = sum(range(mapping_work.ROUNDS))
    assert results == [expected + item for item in items]
    print(json.dumps({"seconds": {"map": seconds}}))
