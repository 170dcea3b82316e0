"""The photo that ships with the package; `assets/ORIGIN.txt` says where it comes from."""

from importlib.resources import as_file, files

from torch import Tensor

from musigma.images.image_io import read_image

PHOTO = "grace_hopper.jpg"


def portrait() -> Tensor:
    """Return the portrait of Grace Hopper, a public-domain photo of the US Navy.

    Example:
        >>> portrait().shape
        torch.Size([1, 3, 600, 512])
    """
    with as_file(files("musigma") / "assets" / PHOTO) as path:
        return read_image(path)[0]
