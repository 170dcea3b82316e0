"""Networks: one file per family, one contract, a written list.

Importing a family registers its networks. `musigma models` lists them in the order of registration.
"""

from musigma.networks.base import BuildSpec, Network
from musigma.networks.denoising import (  # noqa: F401 - importing a family registers it
    brdnet,
    classical,
    dncnn,
    drunet,
    ffdnet,
    focnet,
    gcdn,
    ircnn,
    mwcnn,
    n3net,
    nlrn,
    ridnet,
    rnan,
    rpcnn,
)
from musigma.networks.model_card import ModelCard, card, macs, num_params
from musigma.networks.registry import Entry, create, entries, entry
from musigma.networks.sigma_branch import SigmaBranch, WithSigma, mean_only, with_sigma
from musigma.networks.super_resolution import (  # noqa: F401 - importing a family registers it
    bicubic,
    carn,
    edsr,
    espcn,
    fsrcnn,
    han,
    idn,
    imdn,
    ipt,
    nlsn,
    oisr,
    rcan,
    rdn,
    realsr,
    san,
    srcnn,
    srresnet,
    swinir,
    vdsr,
)
from musigma.networks.weights_file import warm_start

__all__ = [
    "BuildSpec",
    "Entry",
    "ModelCard",
    "Network",
    "SigmaBranch",
    "WithSigma",
    "card",
    "create",
    "entries",
    "entry",
    "macs",
    "mean_only",
    "num_params",
    "warm_start",
    "with_sigma",
]
