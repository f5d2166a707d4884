"""Models of ours from a checkpoint's names, config and tensors, and back, by tables."""
