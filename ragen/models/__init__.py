"""Models: where weights and tokenizers come from, the chat template, and one definition for sampling, scoring and training."""
