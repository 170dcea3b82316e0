"""Networks: one file for each family, one contract (`base`), one list (`registry`).

Importing a family registers its networks. `musigma models` lists them in the order of registration.
"""

from musigma.networks.base import BuildSpec, Network, NetworkInfo
from musigma.networks.denoising import (  # noqa: F401 - importing a family registers it
    bm3d,
    brdnet,
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
    wnnm,
)
from musigma.networks.model_card import ModelCard, card, macs, num_params
from musigma.networks.receptive_field import measure_receptive_radius
from musigma.networks.registry import (
    DuplicateNetworkError,
    Entry,
    create,
    entries,
    entry,
    register,
)
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
    plksr,
    rcan,
    rdn,
    realsr,
    rlfn,
    safmn,
    san,
    smfanet,
    span,
    srcnn,
    srresnet,
    swinir,
    vdsr,
)
from musigma.networks.weights_file import warm_start

__all__ = [
    "BuildSpec",
    "DuplicateNetworkError",
    "Entry",
    "ModelCard",
    "Network",
    "NetworkInfo",
    "SigmaBranch",
    "WithSigma",
    "card",
    "create",
    "entries",
    "entry",
    "macs",
    "mean_only",
    "measure_receptive_radius",
    "num_params",
    "register",
    "warm_start",
    "with_sigma",
]
