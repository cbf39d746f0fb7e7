"""A Llama-family GGUF model in this process, by llama.cpp."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from biorag.errors import MissingError, ServiceError
from biorag.models import resources
from biorag.models.finding import hash_of_file
from biorag.models.formats import gguf
from biorag.prompts.fence import control_strings
from biorag.prompts.grammar import FREE_TEXT_GRAMMAR, close_text, free_text_openings, rest_grammar
from biorag.types import GREEDY, Generation, GenerationRequest, Prompt, Sampling, Scores, Vectors
from biorag.utils.cores import usable_cores
from biorag.utils.files import make_folder, require_room, scratch_folder

# Where it aborts, llama.cpp would start a debugger to print its stack.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")
try:
    import llama_cpp
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter
except ImportError as error:
    raise MissingError(
        "llama-cpp-python is not installed: run pip install 'biorag[llama]', or name a server with --llm URL"
    ) from error

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

SMALLEST_WINDOW = 64
REST_TOKENS = 256
REPEAT_PENALTY = 1.1
# Stands for a turn's text while the chat template is rendered; no template and no text contains it.
SLOTS = {"system": "\x02system\x03", "user": "\x02user\x03"}
CHAT_TEMPLATE = "tokenizer.chat_template"
PLAIN_TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n\n{% endfor %}"


class PromptTokens(NamedTuple):
    """A prompt's tokens: those before the user's text, which many prompts share, and all others."""

    prefix: list[int]
    rest: list[int]


class LlamaGenerator:
    """A GGUF model, with a context of at most `context_window` tokens; equal prompts and seeds give equal replies.

    The tokens before the user's text are evaluated once for all prompts that share them, and always in a batch of their
    own: a prompt's logits are the same to the last bit whether its prefix was evaluated before or not.

    `threads` defaults to all cores; `adapter` is a GGUF file of LoRA matrices that are put on the model. A
    `repeat_penalty` of 1 lets it repeat what it read. Raises `MissingError` if llama.cpp cannot load a file, or render
    its chat template.
    """

    def __init__(
        self,
        path: Path,
        context_window: int,
        threads: int | None = None,
        adapter: Path | None = None,
        repeat_penalty: float = REPEAT_PENALTY,
    ) -> None:
        self.name = adapter.parent.name if adapter else path.stem
        self._repeat_penalty = repeat_penalty
        self.context_window = min(context_window, _trained_window(path))
        self._llama = _loaded(path, threads, adapter, n_ctx=self.context_window)
        weakref.finalize(self, self._llama.close)  # at the latest before the interpreter shuts down
        self._evaluated: list[int] = []  # the prefix that the context holds
        self._vocab = llama_cpp.llama_model_get_vocab(self._llama.model)
        template = self._llama.metadata.get(CHAT_TEMPLATE, PLAIN_TEMPLATE)
        try:
            ends = self._special(self._llama.token_bos()), self._special(self._llama.token_eos())
            self._pieces = chat_pieces(template, *ends)
        except Exception as error:  # templates are programs, which raise what they like
            raise MissingError(f"the chat template of {path} cannot be rendered ({error})") from error

    @cached_property
    def controls(self) -> Sequence[str]:
        """Return the texts of the vocabulary's control tokens, and the chat template's between turns."""
        kinds = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED
        tokens = (
            llama_cpp.llama_vocab_get_text(self._vocab, token).decode("utf-8", "ignore")
            for token in range(self._llama.n_vocab())
            if llama_cpp.llama_vocab_get_attr(self._vocab, token) & kinds
        )
        return control_strings(tokens, [piece for piece, is_text in self._pieces if not is_text])

    def count_tokens(self, prompt: Prompt) -> int:
        """Return the number of tokens of the prompt in the model's chat format."""
        return sum(map(len, self._tokens(prompt)))

    def generate(self, request: GenerationRequest, on_text: Callable[[str], None] | None = None) -> Generation:
        """Reply with a JSON object of the schema, whose free texts alone are sampled, or freely."""
        schema = request.schema
        prefix, rest = self._tokens(request.prompt)
        tokens = prefix + rest
        asked = len(tokens)
        self._return_to(prefix)
        text, capped = "", False
        if not request.constrained:
            text, capped = self._write_text(text, tokens, request, on_text)
            return Generation(text, capped, prompt_tokens=asked, completion_tokens=len(tokens) - asked)
        for opening in free_text_openings(schema):
            tokens += self._llama.tokenize(opening.encode(), add_bos=False)
            text, cut = self._write_text(text + opening, tokens, request, on_text)
            if cut:
                tokens += self._llama.tokenize(b'"', add_bos=False)
                text, capped = close_text(text), True
        rest = [token for token in self._decode(tokens, rest_grammar(schema), REST_TOKENS) if token is not None]
        text += self._llama.detokenize(rest, special=False).decode("utf-8", "ignore")
        if on_text:
            on_text(text)
        return Generation(text, capped, prompt_tokens=asked, completion_tokens=len(tokens) + len(rest) - asked)

    def _write_text(
        self, text: str, tokens: list[int], request: GenerationRequest, on_text: Callable[[str], None] | None
    ) -> tuple[str, bool]:
        """Return a reply with its next free text, and whether that was cut; `tokens` grow with it."""
        written, opened = b"", text
        grammar = FREE_TEXT_GRAMMAR if request.constrained else None
        for token in self._decode(tokens, grammar, request.max_tokens, request.sampling):
            if token is None:
                return text, False
            tokens.append(token)
            written += self._llama.detokenize([token], special=False)
            text = opened + written.decode("utf-8", "ignore")
            if on_text:
                on_text(text)
        return text, True

    def score(self, prompt: Prompt, choices: Sequence[str]) -> Scores:
        """Return each choice's log-probability as the first text of the reply: that of the token where they differ."""
        prefix, rest = self._tokens(prompt)
        encoded = {choice: self._llama.tokenize(choice.encode(), add_bos=False) for choice in choices}
        columns = zip(*(ids[:-1] for ids in encoded.values()), strict=False)
        shared = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
        self._return_to(prefix)
        self._llama.eval(rest + shared)
        pointer = llama_cpp.llama_get_logits_ith(self._llama.ctx, -1)
        logits = np.ctypeslib.as_array(pointer, shape=(self._llama.n_vocab(),)).astype(np.float64)
        top = logits.max()
        normaliser = top + np.log(np.exp(logits - top).sum())
        return Scores({choice: float(logits[ids[len(shared)]] - normaliser) for choice, ids in encoded.items()})

    def _return_to(self, prefix: list[int]) -> None:
        """Return the context to the end of the prefix, evaluating it if the context does not hold it."""
        held = llama_cpp.llama_get_memory(self._llama.ctx)
        # Models with a recurrent state cannot forget the latest tokens alone.
        if prefix != self._evaluated or not llama_cpp.llama_memory_seq_rm(held, 0, len(prefix), -1):
            self._evaluated = []
            self._llama.reset()
            self._llama.eval(prefix)
            self._evaluated = prefix
        self._llama.n_tokens = len(prefix)

    def _decode(
        self, tokens: list[int], grammar: str | None, limit: int, sampling: Sampling = GREEDY
    ) -> Iterator[int | None]:
        """Yield at most `limit` tokens that follow the grammar, if there is one, and None where the text ends."""
        compiled = llama_cpp.LlamaGrammar.from_string(grammar, verbose=False) if grammar else None
        room = min(limit, self.context_window - len(tokens) - 1)
        self._llama.set_seed(sampling.seed)
        stream = self._llama.generate(
            list(tokens), temp=sampling.temperature, repeat_penalty=self._repeat_penalty, grammar=compiled
        )
        for count, token in enumerate(stream):
            if llama_cpp.llama_vocab_is_eog(self._vocab, token):
                yield None
                return
            if count >= room:
                return
            yield token

    def _tokens(self, prompt: Prompt) -> PromptTokens:
        """Return the prompt's tokens: control tokens come from the chat template, never from its texts."""
        texts = {SLOTS["system"]: prompt.system, SLOTS["user"]: prompt.user}
        tokens: list[int] = []
        shared = 0
        for piece, is_text in self._pieces:
            if is_text and piece == SLOTS["user"]:
                shared = len(tokens)
            content = texts[piece] if is_text else piece
            tokens += self._llama.tokenize(content.encode(), add_bos=False, special=not is_text)
        bos = self._llama.token_bos()
        if llama_cpp.llama_vocab_get_add_bos(self._vocab) and tokens[:1] != [bos]:
            tokens.insert(0, bos)
            shared += 1
        shared = min(shared, len(tokens) - 1)  # something is left to evaluate for each reply
        return PromptTokens(tokens[:shared], tokens[shared:])

    def _special(self, token: int) -> str:
        return self._llama.detokenize([token], special=True).decode("utf-8", "ignore") if token >= 0 else ""


class TokenStates:
    """The last hidden states of a GGUF model with LoRA matrices, of texts of at most `most` tokens.

    Raises `MissingError` as `LlamaGenerator` does.
    """

    def __init__(self, path: Path, most: int, threads: int | None, adapter: Path) -> None:
        of_each_token = {"embedding": True, "pooling_type": llama_cpp.LLAMA_POOLING_TYPE_NONE}
        self._llama = _loaded(path, threads, adapter, n_ctx=most, n_batch=most, **of_each_token)
        weakref.finalize(self, self._llama.close)

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, which are never control tokens."""
        ids: list[int] = self._llama.tokenize(text.encode(), add_bos=False, special=False)
        return ids

    def at(self, tokens: Sequence[int], places: Sequence[int]) -> Vectors:
        """Return the states (places, dimension) at places of a sequence of tokens."""
        return self._llama.within(lambda: self._states(tokens, places))

    def _states(self, tokens: Sequence[int], places: Sequence[int]) -> Vectors:
        context, asked = self._llama.ctx, set(places)
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for place, token in enumerate(tokens):
                batch.token[place], batch.pos[place], batch.logits[place] = token, place, place in asked
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
            if failed := llama_cpp.llama_decode(context, batch):
                raise ServiceError(f"llama.cpp cannot read {len(tokens)} tokens (its code {failed})")
            states = (llama_cpp.llama_get_embeddings_ith(context, place) for place in places)
            shape = (self._llama.n_embd(),)
            return np.stack([np.array(np.ctypeslib.as_array(state, shape=shape)) for state in states])
        finally:
            llama_cpp.llama_batch_free(batch)


def in_8_bits(path: Path, folder: Path) -> Path:
    """Return a GGUF model's copy of 8 bits in a folder, made once, which many processors compute faster by.

    It is the model itself where the copy cannot be written.
    """
    copy = folder / f"{path.stem}-{hash_of_file(path)[:12]}-q8_0.gguf"
    if copy.is_file():
        return copy
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, True
    try:
        make_folder(folder)
        with scratch_folder(folder) as scratch:
            require_room(folder, 2 * path.stat().st_size)
            made = scratch / copy.name
            if llama_cpp.llama_model_quantize(bytes(path), bytes(made), ctypes.byref(parameters)):
                return path
            made.replace(copy)
    except (OSError, ServiceError) as error:
        logger.debug("no copy of %s in 8 bits: %s", path, error)
        return path
    return copy


def chat_pieces(template: str, bos: str, eos: str) -> list[tuple[str, bool]]:
    """Return a chat template, rendered with a system and a user turn and cut at them: (piece, whether it is a slot)."""
    formatter = Jinja2ChatFormatter(template=template, bos_token=bos, eos_token=eos)
    turns = [{"role": role, "content": slot} for role, slot in SLOTS.items()]
    try:
        rendered = formatter(messages=turns).prompt
    except Exception:  # templates raise errors of their own for a role they do not know, such as "system"
        rendered = ""
    if not all(slot in rendered for slot in SLOTS.values()):
        logger.debug("the chat template takes no system turn; it goes into the user's")
        joined = {"role": "user", "content": "\n\n".join(SLOTS.values())}
        rendered = formatter(messages=[joined]).prompt
    parts = re.split(f"({'|'.join(SLOTS.values())})", rendered)
    return [(part, part in SLOTS.values()) for part in parts if part]


def check_memory(path: Path, context_window: int) -> None:
    """Check that a model fits into free memory, and log the need of a large one.

    Raises `ServiceError` if it does not fit.
    """
    offloaded = llama_cpp.llama_supports_gpu_offload()
    lighter = "a smaller or more strongly quantised one, a smaller context_window, a server by --llm URL"
    resources.admit(resources.of_gguf(path, context_window), "cuda" if offloaded else "cpu", lighter)


def _trained_window(path: Path) -> int:
    """Return the window the model was trained with, so that no larger cache is made."""
    window = gguf.read_header(path).trained_window() or 0
    if not SMALLEST_WINDOW <= window < 2**31:
        raise MissingError(f"{path} is no GGUF model that can be used: its context is of {window:,} tokens")
    return window


def _log(level: int, text: bytes, user_data: object) -> None:
    """llama.cpp writes to stderr on its own; its messages belong to our log."""
    logger.debug("llama.cpp: %s", text.decode("utf-8", "replace").rstrip())


# Kept in a name of its own: llama.cpp holds only a pointer to it.
_LOG = llama_cpp.llama_log_callback(_log)
llama_cpp.llama_log_set(_LOG, None)


def _loaded(path: Path, threads: int | None, adapter: Path | None, **options: Any) -> _Model:
    """Load a model with its adapter; raises `MissingError` if llama.cpp does not."""
    cores = threads or usable_cores()
    try:
        return _Model(
            str(path),
            n_threads=cores,
            n_threads_batch=cores,
            n_gpu_layers=-1,
            lora_path=str(adapter) if adapter else None,
            verbose=False,
            **options,
        )
    except (ValueError, RuntimeError, OSError, AssertionError) as error:
        raise MissingError(f"{path} is not a GGUF model that llama.cpp loads ({error})") from error


class _Model(llama_cpp.Llama):  # type: ignore[misc]
    """A model that computes in a thread of its own.

    llama.cpp loads the configuration of the processor's matrix unit (AMX) once a thread, and torch, where it uses the
    unit too, releases it on the thread that it was called from.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._thread = ThreadPoolExecutor(1, "llama.cpp")
        super().__init__(*arguments, **options)

    def eval(self, tokens: Sequence[int]) -> None:
        self.within(partial(super().eval, tokens))

    def within(self, compute: Callable[[], Result]) -> Result:
        """Return what is computed in the thread."""
        evaluation = self._thread.submit(compute)
        try:
            return evaluation.result()
        finally:
            wait([evaluation])  # an interrupt leaves no work behind that uses a model which is freed
