"""The prompts of the environments that are played: recorded for Sokoban, rendered for the bandit."""

from __future__ import annotations

from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from ragen.benchmark.native import bandit_config
from ragen.benchmark.record import conversation, record, scripted_replies
from ragen.benchmark.sizes import Sizes
from ragen.benchmark.work import Conversation, StepWork
from ragen.config.load import load
from ragen.models.chat import ChatTemplate
from ragen.models.tokenizer import load_tokenizer

MOVES = ("Up", "Down", "Left", "Right")


def sokoban_conversations(tokenizer: PreTrainedTokenizerBase, sizes: Sizes) -> tuple[Conversation, ...]:
    """The conversations of rooms x members trajectories, as the agent loop and its context manager make them."""
    template = ChatTemplate(tokenizer)
    count = sizes.num_rooms * sizes.num_members
    texts = scripted_replies(count * sizes.num_turns, MOVES, fewest=sizes.fewest_words, most=sizes.most_words)
    replies = [template.encode_text(text) + _end(template) for text in texts]
    config = load(
        "bandit",
        [
            "env=sokoban",
            f"environments.sokoban.num_groups={sizes.num_rooms}",
            f"environments.sokoban.max_turns={sizes.num_turns}",
            f"rollout.group_size={sizes.num_members}",
            f"rollout.sampling.max_new_tokens={max(map(len, replies))}",
        ],
    )
    groups = record(config, template, replies)
    return tuple(conversation(trajectory) for group in groups for trajectory in group.trajectories)


def bandit_prompts(work: StepWork) -> tuple[str, ...]:
    """The bandit's prompts as text, one per group of every step of `work`, the one that is not timed included."""
    tokenizer = load_tokenizer(work.model)
    template = ChatTemplate(tokenizer)
    count = work.num_groups * (work.repeats + 1)
    config = bandit_config(replace(work, num_groups=count, group_size=2))
    groups = record(config, template, [_end(template)] * (2 * count))
    return tuple(template.decode(conversation(group.trajectories[0])[0].observed) for group in groups)


def _end(template: ChatTemplate) -> list[int]:
    """The id that ends a reply."""
    assert template.end_of_turn_id is not None, f"{template.name}: the template has no end of turn"
    return [template.end_of_turn_id]
