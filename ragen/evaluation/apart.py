"""A checkpoint measured in a process of its own, beside whatever goes on here: the same episodes, the same bits.

The other process loads the checkpoint and plays with an engine of its own, set like the one here: who shares a batch decides
about last bits, so a validation that shared the running engine's batches would not be what `ragen eval` measures. Messages go
over a pipe; once the pipe is closed the process ends, so it never outlives the run, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

import torch

from ragen.credit.rewards import RewardsConfig
from ragen.engines.config import EngineConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.environments import registry
from ragen.errors import RagenError, TrainingError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.evaluate import evaluate, settings_of
from ragen.evaluation.results import EvaluationResult
from ragen.models.chat import ChatTemplate
from ragen.models.config import ModelConfig
from ragen.models.policy import load_policy
from ragen.models.processor import Processor, adopt
from ragen.rollout.collect import Progress
from ragen.rollout.config import RolloutConfig
from ragen.rollout.environment_config import EnvironmentConfig

LOOK_S = 0.1  # between two looks at what the other process has told
NICE = 10  # it goes behind the training, which everything waits for
EXIT_S = 5.0  # for a process that has told everything to end

_BOOT = "import sys; fd, sys.path[:] = int(sys.argv[1]), sys.argv[2:]; from ragen.evaluation.apart import main; main(fd)"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Environments that are played together, how, and what their result is called."""

    kind: str
    environments: Mapping[str, EnvironmentConfig]
    evaluation: EvaluationConfig


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is measured, and everything that its last bits depend on."""

    model: ModelConfig  # with the number format that is in use here
    checkpoint: Path
    policy_version: int
    step: int
    settings: Sequence[Setting]
    engine: EngineConfig
    rollout: RolloutConfig
    rewards: RewardsConfig
    num_threads: int
    processor: Processor | None  # what was measured here; None if nothing depends on it


@dataclass(frozen=True, slots=True)
class _Finished:
    num_episodes: int  # over all settings
    num_sampled: int  # tokens


class Apart:
    """The other process, as seen from here."""

    def __init__(self, question: Question) -> None:
        """Begins at once. Raises OSError if no process can be started."""
        self._question = question
        self._pipe, theirs = Pipe()
        with theirs:
            fd = theirs.fileno()
            command = [sys.executable, "-c", _BOOT, str(fd), *(path or os.getcwd() for path in sys.path)]
            self._process = subprocess.Popen(
                command, pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
        self._told: SimpleQueue[Any] = SimpleQueue()
        self._listener = Thread(target=self._listen, name="evaluation apart", daemon=True)
        self._listener.start()
        with suppress(OSError):  # of a process that has died at once; `results` will say so
            self._pipe.send(replace(question, settings=[_portable(setting) for setting in question.settings]))

    async def results(self, on_progress: Progress) -> list[EvaluationResult]:
        """What was measured, setting after setting. Raises what `evaluate` raises, and TrainingError if the process has died."""
        total = sum(_num_episodes(setting) for setting in self._question.settings)
        while True:
            try:
                told = self._told.get_nowait()
            except Empty:
                await asyncio.sleep(LOOK_S)
                continue
            match told:
                case _Finished():
                    on_progress(told.num_episodes, total, told.num_sampled)
                case str():
                    logger.warning("%s", told)
                case RagenError():
                    raise told
                case list():
                    return [self._as_here(result, setting) for result, setting in zip(told, self._question.settings, strict=True)]
                case None:
                    raise TrainingError(
                        f"step {self._question.step}: the process that measured it died ({self._death()}); its step is saved and "
                        "measured when the run is resumed. evaluation.beside=false needs no second model in memory"
                    )

    def _as_here(self, result: EvaluationResult, setting: Setting) -> EvaluationResult:
        """Environments by the names that they have here."""
        return replace(result, settings=settings_of(setting.environments, setting.evaluation, self._question.rollout))

    def end(self) -> None:
        """End the process, with all that it has started, and wait for that. May be called more than once."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):  # the second: macOS, of a group that has ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._listener.join()
        self._pipe.close()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._told.put(self._pipe.recv())
        self._told.put(None)

    def _death(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_S)
        code = self._process.poll()
        if code is None:
            return "it has closed its pipe"
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _portable(setting: Setting) -> Setting:
    """The setting with environments by names under which another process finds them. Raises ConfigError if there is none."""
    named = {tag: replace(each, name=registry.portable_name(each.name)) for tag, each in setting.environments.items()}
    return replace(setting, environments=named)


def _num_episodes(setting: Setting) -> int:
    return setting.evaluation.num_episodes * setting.evaluation.samples_per_seed * len(setting.environments)


# -- the other process ---------------------------------------------------------------------------------------------------------


def main(fd: int) -> None:
    """Answer the question that comes over the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, which then ends it
    os.nice(NICE)
    pipe = Connection(fd)
    question: Question = pipe.recv()
    Thread(target=_end_with, args=(pipe,), daemon=True).start()
    one_at_a_time = Lock()  # environments may warn from threads of their own

    def tell(message: Any) -> None:
        with one_at_a_time:
            pipe.send(message)

    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: tell(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("ragen").addHandler(handler)
    try:
        answer: RagenError | list[EvaluationResult] = measure(question, tell)
    except RagenError as error:
        answer = error
    tell(answer)


def _end_with(pipe: Connection) -> None:
    """End the process, whatever it is doing, once the other side is gone."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os._exit(1)


def measure(question: Question, tell: Callable[[_Finished], None]) -> list[EvaluationResult]:
    """Load the policy and play every setting. Raises what loading and `evaluate` raise."""
    torch.set_num_threads(question.num_threads)
    if question.processor is not None:
        adopt(question.processor)
    policy = load_policy(question.model, checkpoint=question.checkpoint)
    policy.version = question.policy_version  # replies carry it
    template = ChatTemplate.configured(policy.tokenizer, question.model)
    engine = TorchEngine(policy, question.engine)
    results: list[EvaluationResult] = []
    num_before = sampled_before = 0
    for setting in question.settings:
        engine.reset()
        last = _Finished(num_before, sampled_before)

        def show(num_done: int, _: int, num_sampled: int, before: _Finished = last) -> None:
            tell(_Finished(before.num_episodes + num_done, before.num_sampled + num_sampled))

        playing = evaluate(
            engine,
            template,
            setting.environments,
            setting.evaluation,
            question.rollout,
            model=question.model.name,
            step=question.step,
            kind=setting.kind,
            rewards=question.rewards,
            on_progress=show,
        )
        results.append(asyncio.run(playing))
        num_before += _num_episodes(setting)
        sampled_before += sum(t.num_sampled for t in results[-1].trajectories)
    return results
