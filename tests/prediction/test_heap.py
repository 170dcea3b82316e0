import platform
import subprocess
import sys

import pytest

from musigma.prediction.heap import LEAST_MEMORY, reuse_large_buffers

# Uses and frees a buffer of 64 MiB again and again; prints how many pages the system had to clear.
FAULTS = """
import resource, sys
import torch
from musigma.prediction.heap import reuse_large_buffers

if sys.argv[1] == "reused":
    assert reuse_large_buffers(2**31)
torch.ones(2**24).sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    torch.ones(2**24).sum()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(word):
    command = [sys.executable, "-c", FAULTS, word]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc has the options")
def test_large_buffers_are_used_again():
    assert page_faults("reused") < page_faults("given back") / 4


def test_little_memory_is_given_back():
    assert not reuse_large_buffers(LEAST_MEMORY - 1)
