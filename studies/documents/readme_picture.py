"""Draw the picture of README from the demo's photo and the shipped weights."""

from pathlib import Path

from PIL import Image

from musigma.datasets.demo_photo import portrait
from musigma.evaluation import super_resolution
from musigma.model import load
from musigma.restoration.figures import draw_panels, write_picture

TOP, LEFT, SIDE = 30, 170, 224


def main(path: Path) -> None:
    model = load("edsr-baseline", scale=2)
    small, truth = super_resolution(2).pair(portrait(), "photo")
    prediction = model.predict(small)
    columns = slice(LEFT, LEFT + SIDE)
    mean, std, truth = (
        image[:, :, TOP : TOP + SIDE, columns]
        for image in (prediction.mean, model.std(prediction), truth)
    )
    small = small[:, :, TOP // 2 : (TOP + SIDE) // 2, LEFT // 2 : (LEFT + SIDE) // 2]
    figure = draw_panels(
        {"input": small, "musigma x2": mean},
        {"predicted error (std)": std, "true error": (mean - truth).abs()},
        columns=4,
    )
    write_picture(path, figure)
    with Image.open(path) as picture:
        small_file = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small_file.save(path, optimize=True)  # a palette: half the size, for everyone who clones


if __name__ == "__main__":
    main(Path("docs/images/demo.png"))
