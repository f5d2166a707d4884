"""How texts are written, by the names of KerasHub's samplers."""

SAMPLERS = ("greedy", "top_k", "top_p", "random", "beam", "contrastive")
