"""Tell plain values from awaitable ones: every hook and listener may be plain or async."""

from __future__ import annotations

from collections.abc import Awaitable
from types import AsyncGeneratorType, CoroutineType
from typing import Any, TypeGuard

__all__ = ["is_async_generator", "is_awaitable"]


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Say whether a value has to be awaited; importing `inspect` for this costs 8 ms."""
    return type(value) is CoroutineType or isinstance(value, Awaitable)


def is_async_generator(value: object) -> TypeGuard[AsyncGeneratorType[Any, Any]]:
    """Say whether a value is an async generator, which runs in the task that iterates it."""
    return isinstance(value, AsyncGeneratorType)
