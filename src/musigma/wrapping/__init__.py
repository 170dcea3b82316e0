"""Error bars for anybody's network: it is asked about pictures, and a side network learns sigma."""

from musigma.wrapping.wrap import WrapSettings, wrap

__all__ = ["WrapSettings", "wrap"]
