"""The paper's loss in a plain PyTorch loop, on images that this file draws itself.

python examples/plain_loop.py
"""

import torch

from musigma import losses
from musigma.functional.fidelity import psnr
from musigma.functional.resize import bicubic_down, bicubic_up
from musigma.networks import create, with_sigma

SCALE = 2
NUM_STEPS = 200


def draw(num_images: int, size: int, generator: torch.Generator) -> torch.Tensor:
    """Draw discs with stripes, one over the other: edges, textures and plain areas."""
    row, column = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    image = torch.rand(num_images, 3, 1, 1, generator=generator).expand(-1, -1, size, size)
    for _ in range(8):
        y, x, radius, along_y, along_x = torch.rand(5, num_images, 1, 1, 1, generator=generator)
        inside = (row - size * y) ** 2 + (column - size * x) ** 2 < (size * radius / 3) ** 2
        stripes = 0.7 + 0.3 * torch.sin(along_y * row + along_x * column)
        color = torch.rand(num_images, 3, 1, 1, generator=generator)
        image = torch.where(inside, color * stripes, image)
    return image


def main() -> None:
    torch.manual_seed(0)  # for the initial weights and the random draws of the loss
    generator = torch.Generator().manual_seed(1)  # for the images
    network = with_sigma(create("edsr-baseline", scale=SCALE, num_blocks=2, width=32), width=32)
    loss_function = losses.ExpectedL1() + 0.01 * losses.SigmaL1()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, NUM_STEPS)

    held_out = draw(16, 96, generator)
    held_out_input = bicubic_down(held_out, SCALE)
    bicubic = psnr(bicubic_up(held_out_input, SCALE), held_out, data_range=1, shave=SCALE)
    print(f"bicubic           PSNR {bicubic.mean():.2f} dB")

    for step in range(1, NUM_STEPS + 1):
        target = draw(8, 40, generator)
        loss = loss_function(network(bicubic_down(target, SCALE)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 40 == 0:
            with torch.no_grad():
                mean, sigma = network(held_out_input)
            quality = psnr(mean, held_out, data_range=1, shave=SCALE).mean()
            print(f"step {step:3} loss {loss:.4f} PSNR {quality:.2f} dB sigma {sigma.mean():.4f}")


if __name__ == "__main__":
    main()
