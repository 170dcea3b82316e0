"""The plug-in for napari: restores a layer, and lays mean, sigma and interval exactly over it."""
