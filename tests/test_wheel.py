"""The wheel: what it holds, and that it works where nothing but the wheel is."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")


def run(*words: object, folder: Path, **env: str) -> str:
    """Run a command in a folder; what it prints, or why it failed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MUSIGMA"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=clean | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy, so that nothing is left in the source tree."""
    copy, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, copy / name, ignore=skip)
        else:
            shutil.copy(source, copy / name)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel")
    run(*pip, *options, "-w", output, copy, folder=output)
    (path,) = output.glob("musigma-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The wheel installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    options = ("--no-deps", "--no-index", "--quiet", "--target", folder)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install")
    run(*pip, *options, wheel, folder=folder)
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"musigma"}
    words = ("studies", "campaign", "benchmark", "leaderboard", "tests/")
    assert [name for name in names if any(word in name for word in words)] == []


def test_the_wheel_holds_all_data_of_the_package(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "musigma"
    data = [
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert len(data) > 8
    assert [name for name in data if name not in names] == []


def test_its_size_is_as_the_readme_says(installed):
    stated = int(re.search(r"takes about (\d+) MB", (ROOT / "README.md").read_text())[1])
    files = (path for path in installed.rglob("*") if path.is_file() and path.suffix != ".pyc")
    size = sum(path.stat().st_size for path in files) / 1e6
    assert 0.85 * stated < size < 1.15 * stated


def test_the_wheel_works_in_an_empty_folder(installed, tmp_path):
    """The command as a user types it: enlarge, denoise and evaluate a picture."""
    y, x = np.mgrid[0:40, 0:36]
    waves = [np.sin(x / period + y / (period + 2)) for period in (3, 5, 7)]
    levels = (100 * np.stack(waves, axis=2) + 128).round().astype(np.uint8)
    (tmp_path / "photos").mkdir()
    Image.fromarray(levels).save(tmp_path / "photos" / "photo.png")
    command = [sys.executable, installed / "bin" / "musigma"]
    env = {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}

    def musigma(*words: object) -> str:
        return run(*command, *words, folder=tmp_path, **env)

    code = "import musigma; print(musigma.__file__)"
    imported = run(sys.executable, "-c", code, folder=tmp_path, **env).strip()
    assert Path(imported).is_relative_to(installed)
    musigma("upscale", "photos/photo.png", "-o", "large", "--scale", "2", "--sigma", "--page")
    assert size_of(tmp_path / "large" / "photo.png") == (72, 80)
    for ending in (".sigma.png", ".interval.png", ".html"):
        assert (tmp_path / "large" / f"photo{ending}").stat().st_size > 0
    musigma("denoise", "photos/photo.png", "-o", "clean", "--noise-std", "25")
    assert size_of(tmp_path / "clean" / "photo.png") == (36, 40)
    assert "psnr_y" in musigma("evaluate", "edsr-baseline", "--scale", "2", "--data", "photos")
