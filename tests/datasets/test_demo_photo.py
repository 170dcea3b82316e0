"""The photo of the demo is a file of the package, with a note on its origin."""

import hashlib
import subprocess
import sys
from importlib.resources import files

from musigma.datasets.demo_photo import PHOTO, portrait


def test_the_photo_is_a_picture_of_its_own():
    photo = portrait()
    assert photo.shape == (1, 3, 600, 512)
    assert 0.2 < float(photo.mean()) < 0.8
    assert float(photo.std()) > 0.1


def test_the_note_names_source_licence_and_digest():
    assets = files("musigma") / "assets"
    note = (assets / "ORIGIN.txt").read_text()
    assert "public domain" in note
    assert "https://commons.wikimedia.org/wiki/File:Grace_Hopper.jpg" in note
    assert hashlib.sha256((assets / PHOTO).read_bytes()).hexdigest() in note


def test_the_photo_does_not_need_matplotlib():
    code = """
import sys
sys.modules["matplotlib"] = None  # importing it fails
from musigma.datasets.demo_photo import portrait
print(portrait().shape[2])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "600", done.stderr
