"""Odd tokenizers and chat templates, built in memory, that provoke the faults of the field's bug reports.

All but "metaspace" are byte-level BPE with a handful of hand-planted merges and no pre-tokenizer, so that a merge may join
anything: letters to tags, one line to the next. Ids: the 256 bytes, then the merged pieces, then the added tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

Kind = Literal["plain", "merge", "pad", "two-stops", "bos", "non-special", "metaspace"]

START, END, END_OF_TEXT, PAD, BOS = "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|pad|>", "<s>"

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Append-only, a newline after the end of a turn (bug-log row 3)."""

T_DEFSYS = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are Tiny.<|im_end|>\n' }}{% endif %}" + CHATML
"""Adds a system message when none is given."""

T_NOSYS = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Refuses a system role, and two equal roles in a row."""

T_STRIP = CHATML.replace(
    "message['content'] +",
    "(message['content'].split('</think>')[-1] if message['role'] == 'assistant' and not loop.last else message['content']) +",
)
"""Drops the think blocks of earlier turns."""

T_BOS = "{{ bos_token }}" + CHATML
"""Writes the BOS token itself."""

T_TRIM = CHATML.replace("message['content']", "(message['content'] | trim)")
"""Takes the white space off every message."""

T_LATE_SYSTEM = (
    "{% set offset = 1 if messages[0]['role'] == 'system' else 0 %}"
    "{% for message in messages[offset:] %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' }}"
    "{% if loop.last and offset %}{{ messages[0]['content'] + '\n\n' }}{% endif %}{{ message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
)
"""Moves the system text into the last user turn; writes a space before each reply, which the model has to sample."""

T_THINK = CHATML.replace("'<|im_start|>assistant\n'", "'<|im_start|>assistant\n<think>\n'")
"""Opens a thought in the generation prompt, which earlier turns then lack."""

T_WORDS = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""No control token at all."""

T_SWITCH = T_STRIP.replace(
    "{{ '<|im_start|>assistant\n' }}",
    "{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}",
).replace("not loop.last", "not loop.last and not keep_thoughts")
"""Two options: a think switch that inserts an empty thought when off, and one that keeps the thoughts of earlier turns."""

T_HEADER = CHATML.replace(
    "message['role'] +", "message['role'] + (' to=user' if message['role'] == 'assistant' else '') +"
).replace("'<|im_start|>assistant\n'", "'<|im_start|>assistant'")
"""Writes more before a reply than its generation prompt says."""

T_TOOLS = (
    "{% if tools %}{{ '<|im_start|>tools\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\n' }}"
    "{% endif %}"
    + CHATML.replace("message['content']", "(message['content'] | tojson if message['role'] == 'tool' else message['content'])")
)
"""Lists tools, and writes their results as JSON strings."""

T_PARTS = CHATML.replace("message['content']", "message['content'][0]['text']")
"""Wants contents as lists of parts."""

T_BROKEN = "{{ raise_exception('This template wants tools') }}"

_MERGED_WORDS = ("hello", "\n\n", "answer", "think", "</", "assistant", "user", "system", " Right", "Right", "Left")
_BOUNDARY_WORDS = (*_MERGED_WORDS, "t<", "></", ">\n", "\n<", "r>", "\nuser", "n<think>")


@functools.cache
def make_tokenizer(kind: Kind = "plain", template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """A tokenizer of `kind`. Shared: a test that changes it takes a copy.deepcopy.

    plain        ends turns with <|im_end|>, which is its eos; a pad token of its own; no BOS
    merge        T-MERGE: merges across the turn boundary, across tags, and inside "</answer>"
    pad          T-PAD: the pad token is the eos token
    two-stops    T-TWO-STOPS: the eos is <|endoftext|>, the template ends turns with <|im_end|>
    bos          T-BOS: adds <s> to raw strings; goes with the template T_BOS
    non-special  the chat markers are added tokens that are not flagged as special
    metaspace    a Llama-2-like BPE: spaces become U+2581, one is put in front of the text, unknown characters fall back to bytes
    """
    words = _BOUNDARY_WORDS if kind == "merge" else _MERGED_WORDS
    raw = _metaspace() if kind == "metaspace" else _byte_level(words, special=kind != "non-special")
    if kind == "bos":
        raw.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, raw.token_to_id(BOS))])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=BOS if kind == "bos" else None,
        eos_token=END_OF_TEXT if kind == "two-stops" else END,
        pad_token=END if kind == "pad" else PAD,
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def make_tokenizer_for(
    template: str, special: Iterable[str], words: Iterable[str], *, adds_bos: bool = False
) -> PreTrainedTokenizerFast:
    """A tokenizer like "merge" for a template that is not ours: `special` tokens of its own, `words` as added, ordinary tokens.

    Its eos is <|endoftext|>, so that what ends a turn has to be found; `adds_bos` puts <s> before raw strings.
    """
    raw = _byte_level(_BOUNDARY_WORDS, special=True)
    raw.add_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    raw.add_tokens([AddedToken(word, special=False, normalized=False) for word in words])
    if adds_bos:
        raw.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, raw.token_to_id(BOS))])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=BOS,
        eos_token=END_OF_TEXT,
        pad_token=PAD,
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def chunks(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """`text` with one id per byte: a legal way to sample it that encoding the text would not give back (T-MERGE's point)."""
    return [tokenizer.convert_tokens_to_ids(symbol) for symbol in _symbols(text)]


def _byte_level(words: Iterable[str], *, special: bool) -> Tokenizer:
    vocabulary = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    for word in words:
        symbols = _symbols(word)
        for stop in range(1, len(symbols)):
            merge = "".join(symbols[:stop]), symbols[stop]
            if merge not in merges:
                merges.append(merge)
                vocabulary.setdefault("".join(merge), len(vocabulary))
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    markers = [AddedToken(text, special=special, normalized=False) for text in (START, END)]
    raw.add_tokens([*markers, *(AddedToken(text, special=True, normalized=False) for text in (END_OF_TEXT, PAD, BOS))])
    return raw


def _metaspace() -> Tokenizer:
    letters = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *map(chr, range(33, 127))]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    merges = [("\u2581", letter) for letter in "abcRLU<"]
    for merge in merges:
        vocabulary["".join(merge)] = len(vocabulary)
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    raw.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False)
    raw.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    raw.add_tokens([AddedToken(text, special=True, normalized=False) for text in (START, END, END_OF_TEXT, PAD, BOS)])
    return raw


def _symbols(text: str) -> list[str]:
    return list(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)[0][0]) if text else []
