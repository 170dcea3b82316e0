"""What one forward pass of each network costs, measured in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def bench_forward(
    names: list[str],
    *,
    scale: int,
    height: int,
    width: int,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, Any]]:
    """Return seconds and peak memory of a forward pass with fresh weights, by network.

    Each network runs in a new process, since the peak of a process never comes down again; what
    the process held before the pass is given beside it. On a machine with other work the time of
    the processor tells more than that of the clock.
    """
    found = {}
    for name in names:
        words = [name, str(scale), str(height), str(width)]
        command = [sys.executable, "-m", __name__, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode == 0:
            found[name] = json.loads(done.stdout)
        else:
            found[name] = {"error": done.stderr.strip().splitlines()[-1]}
        report(f"{name}: {found[name]}")
    return found


def measure(name: str, scale: int, height: int, width: int) -> dict[str, float]:
    """Run one forward pass in this process and measure it."""
    import torch

    from musigma.models import create

    generator = torch.Generator().manual_seed(0)
    network = create(name, scale=scale).eval()
    low = torch.rand(1, network.in_channels, height, width, generator=generator)
    before = peak_memory()
    start, busy = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        network(low)
    return {
        "seconds": round(time.perf_counter() - start, 3),
        "cpu_seconds": round(time.process_time() - busy, 3),
        "threads": torch.get_num_threads(),
        "peak_mib": round(peak_memory() / 2**20, 1),
        "before_mib": round(before / 2**20, 1),
    }


def peak_memory() -> int:
    """Return the most resident memory this process has held, in bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(measure(name, *map(int, numbers))))
