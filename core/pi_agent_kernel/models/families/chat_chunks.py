"""What servers of chat completions get wrong in the chunks of a reply, put right."""

from __future__ import annotations

from typing import Any

from pi_agent_kernel.models.error_kinds import ReplyError, told_by_server
from pi_agent_kernel.models.families.token_counts import whole_counts

__all__ = ["CallFragments", "Chunks"]

#: Counts that every report of usage has.
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


class Chunks:
    """Pass the chunks of an SDK's stream on: without what is no chunk, with whole counts (E19).

    An error among them is raised, whatever its shape.

    Args:
        chunks: The SDK's stream.
        calls: Puts pieces of tool calls right; None where the SDK does.
    """

    def __init__(self, chunks: Any, calls: CallFragments | None = None) -> None:
        self._source = chunks
        self._chunks = aiter(chunks)
        self._calls = calls

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                if self._calls is not None:
                    self._calls.check_end()
                raise
            if getattr(chunk, "object", None) == "error":
                raise told_by_server(chunk)
            if hasattr(chunk, "choices"):
                self._repair(chunk)
                chunk.usage = whole_counts(chunk.usage, always=_COUNTS)
                groq: Any = getattr(chunk, "x_groq", None)
                if hasattr(groq, "usage"):  # to other SDKs it is a dict that they do not read
                    groq.usage = whole_counts(groq.usage, always=_COUNTS)
                return chunk

    def _repair(self, chunk: Any) -> None:
        for choice in chunk.choices or ():
            if choice.finish_reason == "error":
                raise told_by_server(getattr(choice, "error", None))
            fragments = choice.delta.tool_calls if choice.delta else None
            if fragments and self._calls is not None:
                choice.delta.tool_calls = self._calls.assigned(fragments)

    async def close(self) -> None:
        """Close the connection."""
        await self._source.close()


class CallFragments:
    """Give every fragment of a tool call the index of its call, and its name (E02, E03).

    Some servers leave the index out. An id or a name then says which call a fragment belongs to,
    or that a new one begins; a bare piece of arguments belongs to the only call there is.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._named: set[int] = set()
        self._seen: set[int] = set()
        #: Arguments of calls whose name has not come yet.
        self._early: dict[int, list[str]] = {}

    def assigned(self, fragments: list[Any]) -> list[Any]:
        """Return the fragments of one chunk that can be passed on.

        Sets `index` where it is missing, takes a name out that is told again, and holds what
        comes before the name of its call back until that comes.

        Raises:
            ReplyError: One could belong to several calls.
        """
        for fragment in fragments:
            self._assign(fragment)
        return [fragment for fragment in fragments if self._is_named(fragment)]

    def check_end(self) -> None:
        """Look whether every call has got a name.

        Raises:
            ReplyError: One has not.
        """
        if self._early:
            raise ReplyError(
                "The server sent a tool call without a name, so nobody knows what it wanted. "
                "Nothing was run; try again, or use another model.",
                "unexpected",
            )

    def _is_named(self, fragment: Any) -> bool:
        """Say whether a fragment's call has a name; give it the arguments that came before."""
        index, function = fragment.index, getattr(fragment, "function", None)
        if index in self._named:
            early = "".join(self._early.pop(index, ()))
            if early and function is not None:
                function.arguments = early + _text(function.arguments)
            if not fragment.id:
                fragment.id = self._id_of(index)
            return True
        self._early.setdefault(index, []).append(_text(getattr(function, "arguments", None)))
        return False

    def _id_of(self, index: int) -> str | None:
        return next((known for known, own in self._by_id.items() if own == index), None)

    def _assign(self, fragment: Any) -> None:
        index: int | None = getattr(fragment, "index", None)
        call_id: str | None = getattr(fragment, "id", None)
        if index is None:
            function = getattr(fragment, "function", None)
            if call_id and call_id in self._by_id:
                index = self._by_id[call_id]
            elif call_id or getattr(function, "name", None) or not self._seen:
                index = max(self._seen, default=-1) + 1
            elif len(self._seen) == 1:
                index = max(self._seen)
            else:
                raise ReplyError(
                    "The server sent a piece of tool arguments that does not say which of "
                    f"{len(self._seen)} calls it belongs to. Nothing was run; ask for one call at "
                    "a time or use another server.",
                    "unexpected",
                )
            fragment.index = index
        self._seen.add(index)
        if call_id:
            self._by_id[call_id] = index
        function = getattr(fragment, "function", None)
        name: str | None = getattr(function, "name", None)
        if function is not None and name and self._names.setdefault(index, name) == name:
            if index in self._named:
                function.name = None  # pieces of a name would be joined
            self._named.add(index)


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else ""
