"""Data sets by name or folder: their targets and, where they bring them, their inputs."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from musigma.images.listing import FORMAT_OF_SUFFIX
from musigma.types import DataError, nearest

ROOT_VARIABLE = "MUSIGMA_DATA"
_GROUPS = ("benchmark", "denoising", "real", "train", "validation")


@dataclass(frozen=True)
class Item:
    """An image of a data set.

    Attributes:
        name: The file name of the target without its suffix, unique in the set.
        target: The file that a network should reproduce.
        degraded: The file that the network is given, where the set brings one and it was asked for.
            Otherwise the input is made from the target.
    """

    name: str
    target: Path
    degraded: Path | None = None


@dataclass(frozen=True)
class Dataset:
    """A named set of images, sorted by name.

    Attributes:
        name: Name of the set, without its folder.
        items: The images.
        inputs: Where the inputs of networks come from: ``"made"`` from the targets,
            ``"published"`` for files that were made by MATLAB's bicubic shrinking, ``"pairs"`` for
            files that were made in another way, such as by a camera.
    """

    name: str
    items: tuple[Item, ...]
    inputs: Literal["made", "published", "pairs"] = "made"


def find_dataset(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    scale: int | None = None,
    degraded: str | Path | None = None,
) -> Dataset:
    """Find a data set by its name, in any case, or by the path of its folder.

    Names are looked up under ``root`` (or else ``$MUSIGMA_DATA``), in it and in its folders
    benchmark, denoising, real, train and validation. A name that is not there may be a folder of
    the current directory. Layouts, all detected:

    - EDSR: ``HR`` beside ``LR_bicubic/X2/babyx2.png``; ``DIV2K_train_HR`` beside
      ``DIV2K_train_LR_bicubic/X2/0001x2.png``, where ``DIV2K_train`` is the name of the set;
    - BasicSR: ``GTmod12`` beside ``LRbicx2``;
    - pairs of a camera: ``HR`` beside ``LR``, with files of the same names;
    - a plain folder of images.

    Args:
        name_or_path: Such as ``"Set5"``, ``"train/BSD400"`` or ``"./photos"``.
        root: The folder that holds the known sets.
        scale: Includes the inputs that the set brings for this scale, if it brings any; each image
            must then have one. By default the set has targets alone.
        degraded: A folder with the inputs, named as the targets are; each target must have one.
    """
    folder = _find_folder(name_or_path, root)
    targets = _target_folder(folder)
    originals = _images(targets)
    if not originals:
        raise DataError(_nothing_in(targets))
    name = _set_name(targets)
    if degraded is not None:
        pairs = _pair(originals, _existing(degraded), scale)
        return Dataset(name, pairs, inputs="pairs")
    if scale is not None and (published := _published_folder(targets, scale)):
        return Dataset(name, _pair(originals, published, scale), inputs="published")
    if scale is not None and (inputs := _camera_folder(targets)):
        return Dataset(name, _pair(originals, inputs, scale), inputs="pairs")
    return Dataset(name, tuple(Item(stem, path) for stem, path in originals.items()))


def data_hash(dataset: Dataset) -> str:
    """Return the SHA-256 of the names and contents of the targets, whatever their order or folder.

    Inputs are not part of it, so that numbers on the same targets can be compared.
    """
    return _hash_files((item.name, "target", item.target) for item in dataset.items)


def describe_data(dataset: Dataset) -> dict[str, str]:
    """Return what a record says of a data set: its name, its hash and where its inputs come from.

    Where the set brings its inputs, ``inputs_hash`` is the SHA-256 of their names and contents.
    """
    source = {"name": dataset.name, "hash": data_hash(dataset)}
    if dataset.inputs == "made":
        return source
    files = [(item.name, "input", item.degraded) for item in dataset.items if item.degraded]
    return source | {"inputs": dataset.inputs, "inputs_hash": _hash_files(files)}


def _hash_files(files: Iterable[tuple[str, str, Path]]) -> str:
    total = hashlib.sha256()
    for name, role, path in sorted(files):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name}\0{role}\0{content}\n".encode())
    return total.hexdigest()


def _find_folder(name_or_path: str | Path, root: str | Path | None) -> Path:
    given = _given(name_or_path)
    path = given.resolve() if ".." in given.parts else given.absolute()
    is_name = name_or_path == given.name
    if not is_name and path.is_dir():
        return path
    base = root if root is not None else os.environ.get(ROOT_VARIABLE)
    known = _known_folders(Path(base).expanduser()) if base else {}
    key = given.as_posix().casefold()
    if key in known:
        return known[key]
    if path.is_dir():
        return path
    raise DataError(_not_found(str(name_or_path), base, known))


def _known_folders(root: Path) -> dict[str, Path]:
    """Return the sets under the root by name and path in lower case: set5, benchmark/set5."""
    if not root.is_dir():
        raise DataError(
            f"the data folder {str(root)!r} does not exist; "
            f"set {ROOT_VARIABLE} to the folder that holds {', '.join(_GROUPS)}"
        )
    known: dict[str, Path] = {}
    for group in (root, *(root / name for name in _GROUPS)):
        for folder in _folders(group):
            for part in (folder, *_split_folders(folder)):
                for key in (_set_name(part), part.relative_to(root).as_posix()):
                    known.setdefault(key.casefold(), part)
    return known


def _not_found(name: str, base: str | Path | None, known: dict[str, Path]) -> str:
    if not base:
        return (
            f"{name!r} is not a folder, and known data sets are looked up under ${ROOT_VARIABLE}, "
            f"which is not set; set it to the folder that holds {', '.join(_GROUPS)}, or give the "
            f"path of a folder of images"
        )
    sets = sorted({_set_name(path) for path in known.values()} - set(_GROUPS))
    hint = nearest(name, sets) if sets else "it holds no data sets"
    return f"no data set {name!r} under {str(base)!r} and no such folder; {hint}"


def _target_folder(folder: Path) -> Path:
    """Return the folder of the targets: a folder with a known name inside, or the folder itself."""
    for name in ("HR", "GTmod12"):
        if (folder / name).is_dir():
            return folder / name
    splits = _split_folders(folder)
    if len(splits) > 1:
        names = ", ".join(_set_name(split) for split in splits)
        raise DataError(f"{str(folder)!r} holds several sets: {names}; give one of these names")
    return splits[0] if splits else folder


def _split_folders(folder: Path) -> list[Path]:
    return [child for child in _folders(folder) if child.name.endswith("_HR")]


def _published_folder(targets: Path, scale: int) -> Path | None:
    """Return the folder of published bicubic images that belongs to the targets, if any."""
    if targets.name == "HR":
        folder = targets.parent / "LR_bicubic" / f"X{scale}"
    elif targets.name == "GTmod12":
        folder = targets.parent / f"LRbicx{scale}"
    elif targets.name.endswith("_HR"):
        folder = targets.parent / f"{_set_name(targets)}_LR_bicubic" / f"X{scale}"
    else:
        return None
    return folder if folder.is_dir() else None


def _camera_folder(targets: Path) -> Path | None:
    folder = targets.parent / "LR"
    return folder if targets.name == "HR" and folder.is_dir() else None


def _existing(folder: str | Path) -> Path:
    path = _given(folder)
    if not path.is_dir():
        raise DataError(f"there is no folder {str(folder)!r} of inputs")
    return path


def _given(name_or_path: str | Path) -> Path:
    """Return a path; a name that is empty, as a variable without a value, is no folder."""
    if name_or_path == "":
        raise DataError("the name of the images is empty; give '.' for the current folder")
    return Path(name_or_path).expanduser()


def _set_name(targets: Path) -> str:
    if targets.name in ("HR", "GTmod12"):
        return targets.parent.name
    return targets.name.removesuffix("_HR")


def _pair(targets: dict[str, Path], folder: Path, scale: int | None) -> tuple[Item, ...]:
    # EDSR writes babyx2.png, BasicSR writes baby.png.
    inputs = {
        name if name in targets else name.removesuffix(f"x{scale}"): path
        for name, path in _images(folder).items()
    }
    if inputs.keys() != targets.keys():
        raise DataError(
            f"{str(folder)!r} does not match its targets: inputs without a target: "
            f"{_first_names(inputs.keys() - targets.keys())}; targets without an input: "
            f"{_first_names(targets.keys() - inputs.keys())}; give each target an input of its name"
        )
    return tuple(Item(name, path, inputs[name]) for name, path in targets.items())


def _images(folder: Path) -> dict[str, Path]:
    """Return the images of a folder by file name without suffix, sorted."""
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in FORMAT_OF_SUFFIX and not path.name.startswith(".")
    )
    images = {path.stem: path for path in paths}
    if len(images) < len(paths):
        twice = _first_names({path.stem for path in paths if images[path.stem] != path})
        raise DataError(
            f"{str(folder)!r} holds two images of the same name: {twice}; rename one of each"
        )
    return dict(sorted(images.items()))


def _nothing_in(folder: Path) -> str:
    line = f"{str(folder)!r} holds no images ({', '.join(sorted(FORMAT_OF_SUFFIX))})"
    inside = [child.name for child in _folders(folder)]
    advice = f"give one of its folders: {_first_names(inside)}" if inside else "give another folder"
    return f"{line}; {advice}"


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(child for child in folder.iterdir() if child.is_dir())


def _first_names(names: Iterable[str]) -> str:
    names = sorted(names)
    shown = ", ".join(names[:5]) or "none"
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
