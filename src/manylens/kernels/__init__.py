"""What "similar" means: kernels, bandwidth rules and feature maps."""
