"""Layers of models that remember earlier text: XLNet, Transformer-XL and ELMo."""
