import re

import pytest
import torch

from musigma.restoration.promise import Promise
from musigma.restoration.viewer.gallery import list_pages, write_gallery
from musigma.restoration.viewer.page import write_page
from musigma.types import Prediction


def add_page(path, *, title=None, promise=None, info=None):
    mean = torch.rand(1, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    write_page(
        path,
        before=mean[..., ::2, ::2],
        prediction=Prediction(mean, mean / 10),
        half_width=mean / 5,
        coverage=0.9,
        promise=promise,
        title=title or path.with_suffix(".png").name,
        info=info or {"Model": "edsr-baseline"},
    )


def test_every_page_is_there_with_facts_thumbnails_and_link(tmp_path):
    add_page(tmp_path / "a b#1.html", promise=Promise("It holds", None))
    info = {"Model": "drunet", "Noise level": "25 of 255", "Warning": "The estimate is too low."}
    add_page(tmp_path / "sub" / "c.html", promise=Promise(None, "it is a JPEG"), info=info)
    (tmp_path / "other.html").write_text("<html>not ours</html>")
    path = write_gallery(tmp_path, problems=["d.jpg: is <damaged>"])
    assert path == tmp_path / "index.html"
    text = path.read_text()
    assert re.findall(r'href="(.*?)">(.*?)</a>', text) == [
        ("./a%20b%231.html", "a b#1.png"),
        ("./sub/c.html", "sub/c.png"),
    ]
    assert text.count("data:image/jpeg;base64,") == 6
    assert "Model: drunet. Noise level: 25 of 255. Pixels: 5 \u00d7 6 \u2192 10 \u00d7 12. " in text
    assert "2 pictures. The intervals of 1 promise nothing. Errors are in levels of 255" in text
    tops = [entry.error_top for entry in list_pages(tmp_path)]
    assert all(20 <= top <= 51 for top in tops)  # half-widths are up to 255 / 5
    assert [f"<figcaption>Error, 0 to {top:g}</figcaption>" in text for top in tops] == [True] * 2
    assert "<h2>1 not restored</h2>" in text
    assert "<li>d.jpg: is &lt;damaged&gt;</li>" in text
    assert "The estimate is too low." in text
    assert "<script" not in text
    assert write_gallery(tmp_path) == path  # a gallery is no page, and is replaced
    assert "not restored" not in path.read_text()


def test_one_page_needs_no_gallery(tmp_path):
    add_page(tmp_path / "a.html")
    assert write_gallery(tmp_path) is None
    assert write_gallery(tmp_path, problems=["b.png: is damaged"]) == tmp_path / "index.html"


def test_a_file_of_that_name_is_left_alone(tmp_path):
    add_page(tmp_path / "index.html")
    add_page(tmp_path / "b.html")
    before = (tmp_path / "index.html").read_bytes()
    assert write_gallery(tmp_path) == tmp_path / "gallery.html"
    assert (tmp_path / "index.html").read_bytes() == before


@pytest.mark.parametrize(
    "summary",
    [
        "no JSON",
        "[]",
        "{}",
        '{"title": "x", "info": 3, "promise": true, "warning": null, "thumbnails": {}}',
    ],
)
def test_a_broken_page_is_left_out(tmp_path, summary):
    script = f'<script type="application/json" id="summary">{summary}</script>'
    (tmp_path / "a.html").write_text(script)
    assert list_pages(tmp_path) == []


def test_strange_names_and_foreign_summaries_stay_text(tmp_path):
    add_page(tmp_path / "javascript:alert(1).html", title='"><script>alert(1)</script>')
    add_page(tmp_path / "b.html")
    page = (tmp_path / "b.html").read_text()
    evil = re.sub(r'("thumbnails": \{"input": )"[^"]*"', r'\1"x\\" onerror=\\"alert(1)"', page)
    assert evil != page
    (tmp_path / "b.html").write_text(evil)
    text = write_gallery(tmp_path).read_text()
    assert "onerror" not in text
    assert "<script" not in text
    assert 'href="./javascript%3Aalert%281%29.html"' in text
