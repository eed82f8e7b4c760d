"""Workers of Ray."""

import logging
import os
from importlib import import_module
from typing import Any

from ringway.lab import Error
from ringway.sweep.pool import MAX_LOSSES, Done, Pool, Run, missing, work

# A client server of Ray forks a process for each client while its own threads run, and some of those die before they
# serve (ray-project/ray#63202): the client gets ConnectionAbortedError, and the next attempt another process.
MAX_ATTEMPTS = 3


class Ray(Pool):
    """Tasks of Ray, one processor each. Ray runs those of a killed worker again."""

    def __init__(self, spec: str, workers: int, address: str | None) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise missing("--on ray", "ray", "ray", error) from None
        self.ray = ray
        self.began = not ray.is_initialized()
        if self.began:
            self._start(address, workers)
        elif address:
            raise Error(f"--on {address}: expected no connection of this process to Ray, got one: disconnect by "
                        "ray.shutdown(), or use on=\"ray\", which is the cluster that is connected")
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.spec = ray.put(spec)
        self.work = ray.remote(num_cpus=1, max_retries=MAX_LOSSES)(work)
        self.tasks: list[Any] = []

    def _start(self, address: str | None, workers: int) -> None:
        """Connects to a cluster, or starts one on this machine."""
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        # Without "local" Ray connects to a cluster that it finds by RAY_ADDRESS or on this machine.
        options: dict[str, Any] = {"address": address or "local"}
        if not address:
            options |= {"num_cpus": workers or os.cpu_count(), "include_dashboard": False}
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                self.ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
                return
            except (ValueError, ConnectionError) as error:
                if not isinstance(error, ConnectionAbortedError) or attempt == MAX_ATTEMPTS:
                    raise Error(f"--on {address or 'ray'}: {error}") from None

    def submit(self, runs: list[Run]) -> None:
        self.tasks.append(self.work.remote(self.spec, runs))

    def wait(self) -> list[Done]:
        # Bounded, so that Ctrl-C is seen.
        ended: list[Any] = []
        while not ended:
            ended, self.tasks = self.ray.wait(self.tasks, num_returns=1, timeout=0.5)
        try:
            return [Done(*result) for result in self.ray.get(ended)]
        except self.ray.exceptions.RayTaskError as error:
            raise Error(f"a worker of Ray failed: {error.cause}") from None
        except self.ray.exceptions.RayError as error:
            raise Error(f"Ray lost the worker of a batch {MAX_LOSSES} times: {error}") from None

    def close(self) -> None:
        if self.began:
            self.ray.shutdown()
