"""Workers of Dask."""

import os
from importlib import import_module
from typing import Any

from ringway.lab import Error
from ringway.sweep.pool import MAX_LOSSES, Done, Pool, Run, missing, work


class Dask(Pool):
    """Tasks of Dask. Its scheduler runs those of a killed worker again."""

    def __init__(self, spec: str, workers: int, address: str | None) -> None:
        try:
            distributed: Any = import_module("distributed")
        except ImportError as error:
            raise missing("dask", "distributed", "dask", error) from None
        self.distributed = distributed
        self.cluster: Any = None
        if address is None:
            self.cluster = distributed.LocalCluster(
                n_workers=workers or os.cpu_count(), threads_per_worker=1, processes=True, dashboard_address=None
            )
        self.client: Any = distributed.Client(self.cluster if address is None else f"tcp://{address}")
        threads = self.client.nthreads()
        if not threads:
            raise Error(f"the Dask cluster at {address} has no workers")
        self.workers = sum(threads.values())
        self.spec = self.client.scatter(spec, broadcast=True)
        self.tasks: set[Any] = set()

    def submit(self, runs: list[Run]) -> None:
        # `pure=False`: a key of its own for each batch.
        self.tasks.add(self.client.submit(work, self.spec, runs, pure=False, retries=MAX_LOSSES))

    def wait(self) -> list[Done]:
        ended = self.distributed.wait(self.tasks, return_when="FIRST_COMPLETED").done
        self.tasks -= ended
        try:
            return [Done(*result) for result in self.client.gather(list(ended))]
        except self.distributed.scheduler.KilledWorker as error:
            raise Error(f"Dask lost the worker of a batch too often: {error}") from None

    def close(self) -> None:
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()
