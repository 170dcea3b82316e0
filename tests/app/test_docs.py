"""The commands and programs of docs/app.md run as they are printed, against a server."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from helpers.servers import png, start_server
from studies.documents.code_blocks import blocks

pytest.importorskip("gradio", reason="the app needs the extra app")
PAGE = Path(__file__).parents[2] / "docs" / "app.md"
ADDRESS = "http://127.0.0.1:7860"


def test_curl_and_python_run_as_printed(tmp_path, monkeypatch):
    server = start_server("app", tmp_path)
    try:
        monkeypatch.chdir(tmp_path)
        Path("photo.png").write_bytes(png(64, 72))
        texts = [block for block in blocks(PAGE.read_text()) if ADDRESS in block.code]
        assert len(texts) == 3
        for block in texts:
            code = block.code.replace(ADDRESS, server.url)
            if block.language == "python":
                exec(compile(code, str(PAGE), "exec"), {})
            elif shutil.which("curl"):
                for line in code.splitlines():
                    subprocess.run([*shlex.split(line), "--silent", "--fail"], check=True)
    finally:
        server.stop()
    with Image.open("large.png") as picture:
        assert picture.size == (144, 128)
    if shutil.which("curl"):
        assert json.loads(Path("answer.json").read_text())["scale"] == 2
        assert json.loads(Path("status.json").read_text())["weights"]["2"]
