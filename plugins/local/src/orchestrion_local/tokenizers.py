"""From messages to token ids and back: characters of an alphabet, or a tokenizer from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from orchestrion import JSON, CallError

_BARE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""The prompt of `Characters`, as a chat template."""
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")
"""The tokens by which chat models end their turn."""


class Tokenizer(Protocol):
    """What sampling needs of a tokenizer."""

    size: int
    pad: int
    ends: frozenset[int]

    def encode(self, messages: Sequence[Mapping[str, JSON]]) -> list[int]: ...
    def encode_response(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def save(self, folder: str) -> None: ...
    def same_as(self, other: Tokenizer) -> bool: ...


def _text_of(message: Mapping[str, JSON]) -> str:
    """Return the text of a message; raise CallError (permanent) if it has other parts."""
    content = message["content"]
    if not isinstance(content, str):
        raise CallError("local weights read texts only, no images or files", "permanent")
    return content


class Characters:
    """One token a character; a prompt is the messages' contents one after another.

    Ids: 0 pads, 1 begins a prompt, 2 ends a response; the alphabet follows.
    """

    pad, begin, end = 0, 1, 2

    def __init__(self, alphabet: str, path: str = "tokenizer") -> None:
        self.alphabet, self._path = alphabet, path
        self._ids = {character: i + 3 for i, character in enumerate(alphabet)}
        self.size = len(alphabet) + 3
        self.ends = frozenset({self.end})

    def encode(self, messages: Sequence[Mapping[str, JSON]]) -> list[int]:
        """Return a prompt; raise CallError (permanent) for a character outside the alphabet."""
        return [self.begin, *self._of("".join(_text_of(message) for message in messages))]

    def encode_response(self, text: str) -> list[int]:
        """Return the characters of a response and the end."""
        return [*self._of(text), self.end]

    def _of(self, text: str) -> list[int]:
        try:
            return [self._ids[character] for character in text]
        except KeyError as error:
            raise CallError(
                f"{self._path}: the alphabet {self.alphabet!r} has no {error.args[0]!r}, which is "
                f"in the text {text[:80]!r}",
                "permanent",
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text, without special tokens."""
        return "".join(self.alphabet[i - 3] for i in ids if i >= 3)

    def same_as(self, other: Tokenizer) -> bool:
        """Return whether token ids mean the same."""
        return isinstance(other, Characters) and other.alphabet == self.alphabet

    def save(self, folder: str) -> None:
        """Write a tokenizer that the transformers library loads."""
        from tokenizers import Regex, decoders, models, pre_tokenizers
        from tokenizers import Tokenizer as Fast
        from transformers import PreTrainedTokenizerFast

        specials = {"<pad>": self.pad, "<s>": self.begin, "</s>": self.end}
        fast = Fast(models.WordLevel({**specials, **self._ids}, unk_token="<pad>"))
        fast.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        fast.decoder = decoders.Fuse()
        factory: Any = PreTrainedTokenizerFast  # it has no types
        tokenizer = factory(
            tokenizer_object=fast, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
        )
        tokenizer.chat_template = _BARE
        tokenizer.save_pretrained(folder)


class Pretrained:
    """A tokenizer of the transformers library.

    Args:
        path: its folder, or its name on a hub.
        template: Jinja text of the chat template in place of the tokenizer's own.
    """

    def __init__(self, path: str, template: str | None = None) -> None:
        from transformers import AutoTokenizer

        self._inner: Any = AutoTokenizer.from_pretrained(path)
        if template is not None:
            self._inner.chat_template = template
        self.size = len(self._inner)
        end = self._inner.eos_token_id
        if end is None:
            raise ValueError("the tokenizer has no end-of-sequence token")
        known = self._inner.get_vocab()
        turn_ends = [name for name in _TURN_ENDS if name in known]
        self.ends = frozenset({end, *(known[name] for name in turn_ends)})
        self._end = end
        self.pad = self._inner.pad_token_id if self._inner.pad_token_id is not None else end

    def encode(self, messages: Sequence[Mapping[str, JSON]]) -> list[int]:
        """Return a prompt by the chat template; without one, roles and contents line by line."""
        plain = [{"role": message["role"], "content": _text_of(message)} for message in messages]
        if self._inner.chat_template is None:
            text = (
                "".join(f"{message['role']}: {message['content']}\n" for message in plain)
                + "assistant: "
            )
            return list(self._inner(text)["input_ids"])
        tokens = self._inner.apply_chat_template(
            plain, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(tokens["input_ids"])

    def encode_response(self, text: str) -> list[int]:
        """Return the tokens of a response and the end."""
        return [*self._inner(text, add_special_tokens=False)["input_ids"], self._end]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text, without special tokens."""
        text: str = self._inner.decode(list(ids), skip_special_tokens=True)
        return text

    def same_as(self, other: Tokenizer) -> bool:
        """Return whether token ids mean the same."""
        if not isinstance(other, Pretrained):
            return False
        same: bool = self._inner.get_vocab() == other._inner.get_vocab()
        return same

    def save(self, folder: str) -> None:
        """Write it as it was loaded."""
        self._inner.save_pretrained(folder)
