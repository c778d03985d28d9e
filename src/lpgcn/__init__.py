"""lpgcn: lossless, private, federated graph-convolution recommendation."""

__version__ = "0.1.0"
