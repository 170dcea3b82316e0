"""Pictures to try the app with: the photo that ships, and the same photo made worse."""

from pathlib import Path

from musigma.datasets.demo_photo import portrait
from musigma.degradations import degrade_image, parse
from musigma.images.image_io import write_image

EXAMPLES = {
    "Portrait, shrunk by 2": ("bicubic", 2),
    "Portrait, blurred and saved as JPEG": ("blur(1.2) | area | noise(3) | jpeg(60)", 2),
    "Portrait at night: noise of 25 levels": ("noise(25)", 1),
}
"""What each picture shows, how it is made from the photo, and the scale of that."""


def write_examples(folder: Path) -> dict[str, Path]:
    """Write the example pictures; return their files by what they show."""
    face = portrait()[:, :, 30:350, 100:420]
    files = {}
    for number, (title, (text, scale)) in enumerate(EXAMPLES.items()):
        degradation = parse(text, scale=scale)
        files[title] = folder / f"example-{number + 1}.png"
        write_image(files[title], degrade_image(degradation, face, name="portrait").clamp(0, 1))
    return files
