"""Draw the picture of README from the demo's photo and the shipped weights."""

from pathlib import Path

import torch

from musigma.datasets.demo_photo import portrait
from musigma.evaluation import super_resolution
from musigma.model import load
from musigma.prediction.predict import predict

TOP, LEFT, SIDE = 30, 170, 240
LEVELS = 20


def main(path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    model = load("edsr-baseline", scale=2)
    low, target = super_resolution(2).pair(portrait(), "photo")
    mean, sigma = predict(model.network, low)
    assert sigma is not None
    small = torch.nn.functional.interpolate(low, scale_factor=2, mode="nearest")
    error = (mean - target).abs()
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    titles = ("input", "musigma x2", "predicted error (sigma)", "true error")
    panels = figure.subplots(1, 4)
    for axes, title, image in zip(panels, titles, (small, mean, sigma, error), strict=True):
        axes.set_axis_off()
        axes.set_title(title, fontsize=11)
        crop = image[0, :, TOP : TOP + SIDE, LEFT : LEFT + SIDE].clamp(0, 1).permute(1, 2, 0)
        if title in titles[:2]:
            axes.imshow(crop.numpy(), interpolation="nearest")
        else:
            shown = axes.imshow(crop.mean(2).numpy() * 255, cmap="magma", vmin=0, vmax=LEVELS)
    figure.colorbar(shown, ax=list(panels), label="levels of 255", shrink=0.85, pad=0.01)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main(Path("docs/images/demo.png"))
