"""Workers of Dask."""

import asyncio
import concurrent.futures
import os
from importlib import import_module
from typing import Any

from ringway.lab import Error
from ringway.sweep.pool import MAX_LOSSES, Done, Pool, Run, missing, work


class Dask(Pool):
    """Tasks of Dask. Its scheduler runs those of a killed worker again.

    The campaign is an argument of each task: one that is scattered is lost with the workers that have it.
    """

    def __init__(self, spec: str, workers: int, address: str | None) -> None:
        try:
            distributed: Any = import_module("distributed")
        except ImportError as error:
            raise missing("--on dask", "distributed", "dask", error) from None
        self.distributed = distributed
        self.cluster: Any = None
        if address is None:
            with import_module("dask").config.set({"distributed.scheduler.allowed-failures": MAX_LOSSES}):
                self.cluster = distributed.LocalCluster(
                    n_workers=workers or os.cpu_count(), threads_per_worker=1, processes=True, dashboard_address=None
                )
        self.client: Any = distributed.Client(self.cluster if address is None else f"tcp://{address}")
        threads = self.client.nthreads()
        if not threads:
            raise Error(f"the Dask cluster at {address} has no workers")
        self.workers = sum(threads.values())
        self.spec = spec
        self.tasks: set[Any] = set()

    def submit(self, runs: list[Run]) -> None:
        # `pure=False`: a key of its own for each batch.
        self.tasks.add(self.client.submit(work, self.spec, runs, pure=False))

    def wait(self) -> list[Done]:
        try:
            # The program may have a client of its own, in whose loop ours cannot be waited for.
            with self.client.as_current():
                ended = self.distributed.wait(self.tasks, return_when="FIRST_COMPLETED").done
            self.tasks -= ended
            return [Done(*result) for result in self.client.gather(list(ended))]
        except self.distributed.scheduler.KilledWorker as error:
            raise Error(f"Dask lost the worker of a batch too often: {error}") from None
        except (concurrent.futures.CancelledError, asyncio.CancelledError) as error:
            raise Error(f"Dask cancelled batches: {error}") from None

    def close(self) -> None:
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()
