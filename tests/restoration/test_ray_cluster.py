"""Files over a Ray cluster: the same results, and none lost when a worker dies."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from musigma.images.image_io import read_image, write_image
from musigma.networks import create
from musigma.prediction.predict import predict

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")

# A program of its own: Ray changes the process that starts it, and sends workers what is defined in
# the main program.
PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import ray
from musigma.images.listing import list_images
from musigma.restoration.options import Options
from musigma.restoration.ray_cluster import restore_on_ray
from musigma.model import Model
from musigma.networks.super_resolution.bicubic import Bicubic

folder = Path(sys.argv[1])


class Deadly(Bicubic):
    def forward(self, degraded):
        try:
            (folder / "death").touch(exist_ok=False)
        except FileExistsError:
            return super().forward(degraded)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    model = Model(network=Deadly(scale=2).eval(), name="bicubic")
    options = Options(folder=folder / "out", memory=2**26)
    restored = restore_on_ray(model, list_images([folder / "in"]), options, device="cpu")
    outcomes = [{key: str(value) for key, value in vars(outcome).items()} for outcome in restored]
    (folder / "outcomes.json").write_text(json.dumps(outcomes))
"""


@pytest.mark.slow
def test_a_dead_worker_loses_no_picture(tmp_path):
    generator = torch.Generator().manual_seed(0)
    images = {f"{number}.png": torch.rand(1, 3, 13, 11, generator=generator) for number in range(6)}
    for name, image in images.items():
        write_image(tmp_path / "in" / name, image)
    (tmp_path / "in" / "bad.png").write_bytes(b"no picture")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "program.py", tmp_path]
    # Ray's workers stand back for all other processes, which on a busy machine takes minutes.
    environment = os.environ | {"RAY_worker_niceness": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads((tmp_path / "outcomes.json").read_text())
    outcomes = {outcome["source"]: outcome for outcome in outcomes}
    assert len(outcomes) == 7
    assert (tmp_path / "death").exists()
    assert "is not a PNG" in outcomes[str(tmp_path / "in" / "bad.png")]["error"]
    network = create("bicubic", scale=2)
    for name in images:
        expected = predict(network, read_image(tmp_path / "in" / name)[0]).mean.clamp(0, 1)
        written = read_image(tmp_path / "out" / name)[0]
        assert torch.equal((written * 255).round(), (expected * 255 + 0.5).floor())
