"""A short part of the suite on every instruction set of this processor: ``make test-everywhere``.

Libraries below PyTorch choose their routines by the instructions that a processor has, and these
routines round differently. The environment makes a processor do as if it had fewer of them.
Arguments go to pytest.
"""

import os
import subprocess
import sys
import time

EXACT_TILES = "tests/prediction/test_exact_tiles.py"
TILED = (
    *("carn-m", "drunet-small", "edsr-baseline", "ffdnet", "fsrcnn", "ircnn", "rpcnn-grey"),
    *("safmn", "span-s", "srcnn", "swinir-light"),
)
TESTS = (
    *(
        f"{EXACT_TILES}::test_tiles_of_every_network_with_a_radius_are_near_the_whole[{name}]"
        for name in TILED
    ),
    "tests/functional/test_fidelity.py",
    "tests/functional/test_resize.py",
    "tests/kernels/test_conv3x3.py",
    "tests/networks/denoising/test_n3net.py",
    "tests/prediction/engines/test_pytorch.py",
    "tests/prediction/engines/test_threads.py",
    "tests/prediction/test_predict.py",
    "tests/training/test_deferred_gradients.py",
    "tests/training/test_step.py",
    "tests/uncertainty/test_metrics.py",
)
X86 = (("default", "SSE41"), ("avx2", "AVX2"), ("avx512", "AVX512_CORE"))
"""Instruction sets in the words of ATEN_CPU_CAPABILITY and of ONEDNN_MAX_CPU_ISA."""

LEVELS = {"DEFAULT": 1, "AVX2": 2, "AVX512": 3}
"""How many rows of `X86` a processor has, by what PyTorch says of it."""

MEASURE = """
import musigma, torch
from musigma.prediction.predict import predict

for name, scale, options in (("edsr-baseline", 2, {}), ("drunet-small", 1, {"noise_std": 25})):
    network = musigma.load(name, scale=scale).network
    image = torch.rand(1, 3, 230, 190, generator=torch.Generator().manual_seed(0))
    whole = predict(network, image, **options)
    parts = zip(predict(network, image, tile=100, **options), whole)
    difference = max(float((ours - theirs).abs().max()) for ours, theirs in parts)
    print(name, "to the bit" if difference == 0 else f"within {difference:.1e}", end="; ")
"""


def main(options: list[str]) -> int:
    """Run the tests on each instruction set and print a line for each; return the exit code."""
    num_failed = 0
    for settings in environments():
        start = time.monotonic()
        code, output = run(["-m", "pytest", "-q", *options, *TESTS], settings)
        _, tiles = run(["-c", MEASURE], settings)
        if code:
            num_failed += 1
            sys.stdout.write(output)
        label = ", ".join(f"{key}={value}" for key, value in settings.items()) or "as it is"
        outcome = output.strip().splitlines()[-1].strip("= ")
        seconds = time.monotonic() - start
        sys.stdout.write(f"{label}: {outcome} | tiles: {tiles.strip('; ')} | {seconds:.0f} s\n")
        sys.stdout.flush()
    return 1 if num_failed else 0


def run(words: list[str], settings: dict[str, str]) -> tuple[int, str]:
    """Run Python with settings of the environment; return its exit code and all that it printed."""
    done = subprocess.run(
        [sys.executable, *words],
        env=os.environ | settings | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def environments() -> list[dict[str, str]]:
    """Return the settings for each instruction set; one without any where there is no choice."""
    names = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
    present = X86[: LEVELS.get(capability(), 0)]
    if not present:
        return [{}]
    # Also the least of one library with the most of the other: they need not agree.
    mixed = [(present[0][0], present[-1][1]), (present[-1][0], present[0][1])]
    pairs = dict.fromkeys([*present, *mixed])
    return [dict(zip(names, pair, strict=True)) for pair in pairs]


def capability() -> str:
    """Return what PyTorch says of this processor, asked without a setting of this process."""
    environment = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    program = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    command = [sys.executable, "-c", program]
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return asked.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
