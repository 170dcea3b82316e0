"""Pictures far larger than the memory for them: the peak of a process that restores one."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.functional.resize import resize
from musigma.images.image_io import open_image, write_image
from musigma.model import load, save
from musigma.networks import create
from musigma.restoration.output_files import resized_rows

PROGRAM = """
import json, re, sys
from pathlib import Path
from musigma.cli.main import main

def peak():
    # Not ru_maxrss, which a process takes over from the one that started it.
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def run(picture):
    sys.argv[1:] = ["upscale", picture, *words]
    try:
        main()
    except SystemExit as end:
        return end.code or 0

small, large, *words = sys.argv[1:]
run(small)  # what the program itself takes, once for all pictures
before = peak()
code = run(large)
print(json.dumps({"code": code, "peak": peak() - before}), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_peak_of_a_large_picture(tmp_path):
    """16 megapixels become 64: as float32 the result alone would take 768 MB.

    With 256 MiB for the decoded picture (48 MB, and while decoding four times that) and for a tile
    with its rows, the process may grow by that and by what PyTorch keeps for itself.
    """
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (500, 500, 3), np.uint8)
    Image.fromarray(np.tile(small, (8, 8, 1))).save(tmp_path / "a.png", compress_level=1)
    torch.manual_seed(0)
    save(tmp_path / "w.safetensors", create("espcn", scale=2, width=8))
    Image.fromarray(small[:160, :160]).save(tmp_path / "small.png")
    words = [tmp_path / "small.png", tmp_path / "a.png", "-o", tmp_path / "out"]
    words += ["--model", tmp_path / "w.safetensors", "--memory", "256MiB"]
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stderr.splitlines()[-1])
    assert report["code"] == 0, done.stderr
    assert report["peak"] < 2**28 + 100e6
    network, low = load(tmp_path / "w.safetensors").network, open_image(tmp_path / "a.png").colors
    result = open_image(tmp_path / "out" / "a.png").colors
    assert result.shape == (1, 3, 8000, 8000)
    for top, left in ((0, 0), (0, 3850), (3850, 0), (3850, 3850), (1901, 2047)):
        with torch.inference_mode():
            mean = network(low[..., top : top + 150, left : left + 150]).mean.clamp(0, 1)
        inner = [slice(2 * (edge + 8 * (edge > 0)), 2 * (edge + 142)) for edge in (top, left)]
        cut = [
            slice(one.start - 2 * edge, 284) for one, edge in zip(inner, (top, left), strict=True)
        ]
        expected = (mean[..., cut[0], cut[1]] * 255 + 0.5).floor()
        levels = (result[..., inner[0], inner[1]] * 255).round()
        # A value that lies between two levels may be rounded to the one or to the other.
        assert (levels - expected).abs().max() <= 1
        assert (levels != expected).float().mean() < 1e-3


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_rows_of_alpha_are_those_of_the_whole(tmp_path, scale):
    write_image(tmp_path / "a.png", torch.rand(1, 1, 37, 31))
    alpha = open_image(tmp_path / "a.png").colors
    whole = resize(alpha[:], scale=scale).clamp(0, 1)
    size = (37 * scale, whole.shape[3])
    for top in range(0, 37 * scale, 10):
        bottom = min(top + 10, 37 * scale)
        rows = resized_rows(alpha, top, bottom, size)
        torch.testing.assert_close(rows, whole[:, :, top:bottom], rtol=0, atol=1e-6)
