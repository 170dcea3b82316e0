"""Networks: one file per family, one contract, a written list.

The order of the imports below is the order in which `musigma models` lists the families.
"""

from musigma.models import (  # noqa: F401 - importing a family puts it on the list
    bicubic,
    brdnet,
    carn,
    classical,
    dncnn,
    drunet,
    edsr,
    espcn,
    ffdnet,
    focnet,
    fsrcnn,
    gcdn,
    han,
    idn,
    imdn,
    ipt,
    ircnn,
    mwcnn,
    n3net,
    nlrn,
    nlsn,
    oisr,
    rcan,
    rdn,
    realsr,
    ridnet,
    rnan,
    rpcnn,
    san,
    srcnn,
    srresnet,
    swinir,
    vdsr,
)
from musigma.models.cards import ModelCard, card, macs, num_params
from musigma.models.network import Identity, Network
from musigma.models.registry import Entry, create, entries, entry
from musigma.models.sigma_branch import SigmaBranch, WithSigma, mean_only, with_sigma
from musigma.models.weights import Model, load, save, warm_start

__all__ = [
    "Entry",
    "Identity",
    "Model",
    "ModelCard",
    "Network",
    "SigmaBranch",
    "WithSigma",
    "card",
    "create",
    "entries",
    "entry",
    "load",
    "macs",
    "mean_only",
    "num_params",
    "save",
    "warm_start",
    "with_sigma",
]
