"""The folder of a server: private, and removed also after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from musigma.app.workspace import Workspace
from musigma.types import ConfigError

HOLD = """
import sys, time
from pathlib import Path
from musigma.app.workspace import Workspace
workspace = Workspace(Path(sys.argv[1]))
(workspace.uploads / "half").write_bytes(b"x" * 1000)
print(workspace.folder, flush=True)
time.sleep(600)
"""


def test_the_folder_of_a_killed_server_is_removed_by_the_next(tmp_path):
    server = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    folder = Path(server.stdout.readline().strip())
    beside = Workspace(tmp_path)
    assert folder.is_dir(), "a server that lives keeps its folder"
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stdout.close()
    assert folder.is_dir()
    after = Workspace(tmp_path)
    assert not folder.exists()
    assert beside.folder.is_dir()
    after.close()
    beside.close()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_old_files_go_and_new_ones_stay(tmp_path):
    workspace = Workspace(tmp_path)
    old, new = workspace.new_result(), workspace.new_result()
    (old / "a.png").write_bytes(b"a")
    upload = workspace.uploads / "u.png"
    upload.write_bytes(b"u")
    for path in (old, upload):
        os.utime(path, (time.time() - 100, time.time() - 100))
    workspace.remove_old(50)
    assert not old.exists()
    assert not upload.exists()
    assert new.exists()
    workspace.close()


def test_only_files_of_a_result_are_given_out(tmp_path):
    workspace = Workspace(tmp_path)
    folder = workspace.new_result()
    (folder / "a.png").write_bytes(b"a")
    secret = workspace.folder / "secret"
    secret.write_bytes(b"s")
    assert workspace.result_file(folder.name, "a.png") == folder / "a.png"
    for key, name in (
        (folder.name, "../../secret"),
        (folder.name, str(secret)),
        ("..", "secret"),
        (".", "a.png"),
        ("", "a.png"),
        (folder.name, ".."),
        ("nothing", "a.png"),
    ):
        assert workspace.result_file(key, name) is None, (key, name)
    workspace.close()


def test_a_folder_that_others_can_write_is_refused(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(ConfigError, match="other users"):
        Workspace(base)


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="other users"):
        Workspace(tmp_path / "link")
