"""The names that recipes may use: the losses of the library, and those that others add."""

import logging
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from torch import Tensor, nn

from musigma.losses import pixel_losses
from musigma.losses.base import PixelLoss
from musigma.types import ConfigError, nearest, short_repr

ENTRY_POINTS = "musigma.losses"
"""Packages add losses by entry points of this group, each of which names a per-pixel function."""

Function = TypeVar("Function", bound=Callable[..., Tensor])
log = logging.getLogger(__name__)

_CLASSES: dict[str, type[PixelLoss]] = {loss.info.name: loss for loss in pixel_losses.ALL}


def register(function: Function) -> Function:
    """Add a per-pixel function under its own name, so that recipes can use it; a decorator.

    Its parameters before the ``*`` choose what it is given: ``mean``, ``target``, ``sigma``,
    ``teacher_mean``, ``teacher_sigma``. Those after it are its settings, annotated as bool, int,
    float or a ``Literal`` of strings. A ``generator`` among them says that it is random.

    ``musigma train`` finds the functions of installed packages by their entry points::

        [project.entry-points."musigma.losses"]
        capped_l1 = "my_package.losses:capped_l1"

    Example:
        >>> import torch
        >>> @register
        ... def capped(mean, target, *, cap: float = 0.1):
        ...     return (mean - target).abs().clamp_max(cap)
        >>> create("capped", cap=0.25)(torch.ones(2), torch.zeros(2))
        tensor(0.2500)
        >>> unregister("capped")
    """
    name = function.__name__
    if name in _CLASSES:
        raise ConfigError(f"there is an objective called {name!r} already; choose another name")
    attributes = {"function": staticmethod(function), "__doc__": function.__doc__}
    _CLASSES[name] = type(name, (PixelLoss,), attributes)
    return function


def unregister(name: str) -> None:
    """Remove a function that `register` added."""
    del _CLASSES[name]


def names() -> list[str]:
    """Return the names that recipes may use.

    Example:
        >>> names()[:3]
        ['l1', 'l2', 'charbonnier']
    """
    _add_installed()
    return list(_CLASSES)


def loss_class(name: str) -> type[PixelLoss]:
    """Return the class of a loss by its name in recipes."""
    if name not in _CLASSES:
        _add_installed()
    if name not in _CLASSES:
        raise ConfigError(
            f"there is no objective called {short_repr(name)}; {nearest(name, names())}"
        )
    return _CLASSES[name]


def create(name: str, *, teacher: nn.Module | None = None, **settings: Any) -> PixelLoss:
    """Make a loss by its name in recipes. So a function that was registered becomes a module.

    Example:
        >>> create("charbonnier", epsilon=1e-6)
        Charbonnier(epsilon=1e-06)
    """
    loss = loss_class(name)
    checked: dict[str, Any] = loss.info.check(settings)
    return loss(**checked) if teacher is None else loss(teacher=teacher, **checked)


@cache
def _add_installed() -> None:
    """Register the functions of installed packages, once; warn of those that cannot be."""
    for point in entry_points(group=ENTRY_POINTS):
        try:
            _add(point)
        except Exception as error:  # noqa: BLE001  another package may raise anything
            log.warning("the loss %r of %s cannot be used: %s", point.name, point.value, error)


def _add(point: EntryPoint) -> None:
    function = point.load()
    if function.__name__ != point.name:
        raise ConfigError(f"the function is called {function.__name__!r}; name the entry point so")
    known = _CLASSES.get(point.name)
    # Its module may have registered it already when it was imported.
    if known is None or known.function is not function:
        register(function)
