"""RAGEN: train and evaluate language-model agents by multi-turn reinforcement learning (StarPO).

Importing the package needs only numpy and gymnasium; torch, transformers and the rest are imported where they are used.
"""

__version__ = "0.1.0"
