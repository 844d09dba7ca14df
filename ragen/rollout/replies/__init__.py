"""Replies: how a model has to answer, the text that says so, and the parser that reads what it wrote.

grammar.py tells thought and answer apart and names every deviation; a reader (readers.py, tool_calls.py, own_parser.py) turns the
answer into actions; format.py is the whole, prompt text and parser from the same constants.
"""

from ragen.rollout.replies.config import ReplyConfig
from ragen.rollout.replies.format import ReplyFormat
from ragen.rollout.replies.grammar import RULINGS, Grammar, Ruling
from ragen.rollout.replies.readers import Parsed
from ragen.rollout.replies.tool_calls import TOOL_FORMATS, tool_schemas

THINK, THINK_END = "<think>", "</think>"  # of the default tags
ANSWER, ANSWER_END = "<answer>", "</answer>"

__all__ = [
    "ANSWER",
    "ANSWER_END",
    "RULINGS",
    "THINK",
    "THINK_END",
    "TOOL_FORMATS",
    "Grammar",
    "Parsed",
    "ReplyConfig",
    "ReplyFormat",
    "Ruling",
    "tool_schemas",
]
