"""Models of `transformers` with random weights, and ours made from them."""

import tempfile

import numpy as np
from keras import ops


def randomize(model, scale=0.05, seed=0):
    """Move every parameter, biases and norms too, from where it begins."""
    import torch

    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return model.eval()


def convert(cls, model, **kwargs):
    """Our backbone or task from a model, through a folder."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return cls.from_preset(folder, **kwargs)


def max_difference(ours, theirs, where=None):
    """Largest absolute difference between our tensor and a PyTorch one."""
    theirs = theirs.detach().numpy()
    difference = np.abs(ops.convert_to_numpy(ours) - theirs)
    return difference.max() if where is None else difference[where].max()
