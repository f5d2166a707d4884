"""Layers that remember earlier text: XLNet's, Transformer-XL's and ELMo's."""
