"""CPU, memory, disk, network and GPU use of the machine while a run trains.

The figures and their names are MLflow's own (`system/...`); they go through the run log instead of
MLflow's thread, which ends for good at the first call that a tracking server does not answer.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

DEFAULT_INTERVAL_S = 10.0


class SystemMetrics:
    """Measures the machine again and again, in a thread of its own.

    Args:
        record: takes values and the number of the measurement.
    """

    def __init__(self, record: Callable[[Mapping[str, float], int], None]) -> None:
        self._record = record
        self._monitors = _monitors()
        self._stopping = threading.Event()
        interval = os.environ.get("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL")
        self._every_s = float(interval) if interval else DEFAULT_INTERVAL_S
        self._thread = threading.Thread(target=self._run, name="system-metrics", daemon=True)

    def start(self) -> None:
        """Start measuring; without psutil nothing is measured."""
        if self._monitors:
            self._thread.start()

    def stop(self) -> None:
        """Stop measuring."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        count = 0
        while not self._stopping.wait(self._every_s):
            values: dict[str, float] = {}
            for monitor in self._monitors:
                monitor.collect_metrics()
                values.update(monitor.aggregate_metrics())
                monitor.clear_metrics()
            self._record({f"system/{name}": value for name, value in values.items()}, count)
            count += 1


def _monitors() -> list[Any]:
    if importlib.util.find_spec("psutil") is None:
        logger.info("psutil is not installed: no system metrics")
        return []
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    monitors: list[Any] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    if importlib.util.find_spec("pynvml") is not None:
        monitors += _gpu_monitors()
    return monitors


def _gpu_monitors() -> list[Any]:
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    try:
        return [GPUMonitor()]
    except RuntimeError as error:  # no driver or no device
        logger.info("no GPU metrics: %s", error)
        return []
