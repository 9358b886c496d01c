"""Holds a CPU of a running cluster, as another job does: `hold` and `free` on stdin, each answered with a line."""

import sys

import ray


@ray.remote(num_cpus=1)
class OtherJob:
    def begin(self) -> None:
        """Be there: that takes a CPU."""


if __name__ == "__main__":
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    job = None
    for line in sys.stdin:
        if line.strip() == "hold" and job is None:
            job = OtherJob.remote()
            ray.get(job.begin.remote())
        elif line.strip() == "free" and job is not None:
            ray.kill(job)
            job = None
        print(line.strip(), flush=True)
