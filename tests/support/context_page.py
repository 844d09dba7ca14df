"""The texts that docs/context.md shows, made by the code: a block under each `<!-- name -->`.

`python -m tests.support.context_page` writes them into the page, those of SmolLM2 included.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from ragen.models.chat import ChatTemplate
from ragen.models.tokenizer import load_tokenizer
from ragen.records import Observation, Sampling
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.memory import Message
from tests.support.contexts import Played, play, subject
from tests.support.conversations import encode
from tests.support.pages import ROOT, blocks
from tests.support.sokoban_talk import play_sokoban, shown
from tests.support.tokenizers import T_STRIP, make_tokenizer

PAGE = ROOT / "docs" / "context.md"
NAMED = re.compile(r"(?<=^<!-- )(?P<name>[^\n]+)(?P<open> -->\n```text\n)(?P<text>.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
MODULE = "my_module"  # in which the page's own classes and functions stand

FIRST = Observation(
    text="P _ _ G", instruction="Walk from P to G. Left and Right move one cell. A step costs 0.1, G pays 1.", actions_left=6
)
REPLIES = ("G is on the right.</think><answer>Right</answer>", "I go on.", "On to G.</think><answer>Right || Right</answer>")
ANSWERS = (
    Observation(text="_ P _ G", reward=-0.1, executed=("Right",), actions_left=5),
    Observation(text="_ P _ G", actions_left=5),
)
SUMMARY = "P started three cells left of G. I moved it one cell."


def on_the_page() -> dict[str, str]:
    """Block by name, as the page has them."""
    found = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len({name for name, *_ in found}) == len(found), "a name stands over two blocks"
    return {name: text for name, _, text in found}


def corridor_blocks() -> dict[str, str]:
    """What each option does to the messages of one small episode: a valid reply, one without an answer, and a last one."""
    plain = talk()
    asked = [turn.observation for turn in plain.trajectory.turns]
    texts = {
        "system message": plain.context.format.system,
        "first message": asked[0],
        "later message": asked[1],
        "later message after an invalid reply": asked[2],
        "show_reward=false": _messages(talk(show_reward=False))[1],
        "show_return=true": _messages(talk(show_return=True))[2],
        "show_budget=false": _messages(talk(show_budget=False))[1],
        "show_turn=true": _messages(talk(show_turn=True))[1],
        "max_observation_chars=5": _messages(talk(max_observation_chars=5))[1],
        "mode=full": as_chat(plain, 2),
        "mode=full, a template that rewrites turns": as_ids(talk(T_STRIP), 2),
        "mode=window window=2": as_chat(talk(mode="window", window=2), 2),
        "mode=single_turn": as_chat(talk(mode="single_turn"), 2),
        "mode=my_module:Moves": as_chat(talk(mode=f"{MODULE}:Moves"), 2),
        "overflow=drop": as_chat(talk(overflow="drop", max_context_tokens=_room_for_two()), 2),
        "overflow=summarise, the request": as_chat(talk(overflow="summarise", summarise_every=2), 2),
        "overflow=summarise, the next prompt": as_chat(talk(overflow="summarise", summarise_every=2), 3),
        "summariser=my_module:moves": as_chat(talk(overflow="summarise", summarise_every=2, summariser=f"{MODULE}:moves"), 2),
    }
    return {name: text.rstrip("\n") + "\n" for name, text in texts.items()}


def smollm2_blocks() -> dict[str, str]:
    """Sokoban in every mode, with the real tokenizer and template."""
    tokenizer = load_tokenizer("smollm2-135m")
    chat = ChatTemplate(tokenizer)
    wanted: dict[str, tuple[dict[str, Any], Sequence[int] | None]] = {  # name: settings, segments whose text is shown
        "Sokoban, mode=full": ({}, None),
        "Sokoban, mode=window window=2": ({"mode": "window", "window": 2}, [3]),
        "Sokoban, mode=single_turn window=4": ({"mode": "single_turn"}, [4]),
        "Sokoban, mode=my_module:Moves": ({"mode": f"{MODULE}:Moves"}, [4]),
        "Sokoban, overflow=drop max_context_tokens=600": ({"overflow": "drop", "max_context_tokens": 600}, [1]),
        "Sokoban, overflow=summarise max_context_tokens=760": ({"overflow": "summarise", "max_context_tokens": 760}, None),
        "Sokoban, overflow=summarise summarise_every=2 train_summaries=false": (
            {"overflow": "summarise", "summarise_every": 2, "train_summaries": False},
            [0],
        ),
        "Sokoban, overflow=summarise summariser=my_module:moves max_context_tokens=600": (
            {"overflow": "summarise", "summariser": f"{MODULE}:moves", "max_context_tokens": 600},
            [1],
        ),
    }
    texts = {}
    for name, (settings, segments) in wanted.items():
        trajectory, _ = play_sokoban(tokenizer, chat, **settings)
        texts[name] = shown(tokenizer, trajectory, segments) + "\n"
    return texts


def define_own() -> None:
    """Make the page's Python blocks importable, as a reader's own module would be."""
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module
    for block in blocks(PAGE, "python"):
        exec(compile(block, f"{PAGE.name}", "exec"), module.__dict__)


def talk(template: str | None = None, **config: object) -> Played:
    """The small episode, with a summary where one is asked for."""

    def script(prompt_ids: Sequence[int], sampling: Sampling) -> Sequence[int]:
        text = SUMMARY if sampling.max_new_tokens == ContextConfig.summary_tokens else next(replies)
        return encode(make_tokenizer(), text)

    replies = iter(REPLIES)
    over = subject("plain", template) if template else subject()
    return play(script, ANSWERS, over, first=FIRST, reserve=60, **config)


def as_chat(played: Played, place: int) -> str:
    """The messages of a prompt, without the system message; a request for a summary with what it follows."""
    view = played.views[place]
    if view is None:
        return as_ids(played, place)
    return "\n".join(_shown(message) for message in view)


def as_ids(played: Played, place: int) -> str:
    """A prompt as the model reads it, behind the system message."""
    text = str(played.tokenizer.decode(list(played.requests[place].prompt_ids)))
    return text.partition("<|im_end|>\n")[2]


def _messages(played: Played) -> list[str]:
    return [turn.observation for turn in played.trajectory.turns]


def _room_for_two() -> int:
    return len(talk(mode="window", window=2).requests[2].prompt_ids) + 60


def _shown(message: Message) -> str:
    return f"[{message['role']}]\n{message['content']}"


def write(texts: Mapping[str, str]) -> None:
    """Put the texts under their names."""
    page = PAGE.read_text(encoding="utf-8")
    page = NAMED.sub(lambda found: found["name"] + found["open"] + texts.get(found["name"], found["text"]), page)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    define_own()
    write(corridor_blocks() | smollm2_blocks())
