"""What the runs of this notebook are recorded into or replayed from.

A file has one recorder and one player in a kernel, so that a cell which names it goes on where the
one before stopped. What a cell's own option says goes before `pi.record` and `pi.replay`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pi_agent_kernel.errors import ModelError

from pi_notebook.errors import AgentUnavailable

if TYPE_CHECKING:
    from pi_agent_kernel.models.cassette import CassettePlayer, CassetteRecorder
    from pi_agent_kernel.request import Model, StreamFn

__all__ = ["Cassettes", "Recording", "Replaying", "cassettes", "record", "replay"]


class _InUse:
    """Be what `pi.record` or `pi.replay` switched on: until `stop()`, or for a `with` block."""

    #: What was on when it was switched on; a `with` block returns to it.
    before: Recording | Replaying | None = None

    def stop(self) -> None:
        """End it; runs that are active go on as they began."""
        if cassettes.active is self:
            cassettes.active = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if cassettes.active is self:
            cassettes.active = self.before

    def _ipython_display_(self) -> None:
        """Show nothing: a cell that records and one that replays have the same output."""


class Recording(_InUse):
    """Record runs into a file."""

    def __init__(self, recorder: CassetteRecorder) -> None:
        self._recorder = recorder

    def __repr__(self) -> str:
        recorder = self._recorder
        kept = f"; the earlier one is {recorder.backup.name}" if recorder.backup else ""
        return f"recording into {_shown(recorder.path)} ({_counted(recorder.responses)}{kept})"

    def use_for(
        self, model: Model, stream_fn: StreamFn, *, explicit: bool
    ) -> tuple[Model, StreamFn]:
        """Return the model as it is and how to ask it, recorded."""
        del explicit
        return model, self._recorder.wrap(stream_fn)


class Replaying(_InUse):
    """Replay runs from a file."""

    def __init__(self, player: CassettePlayer) -> None:
        self._player = player

    def __repr__(self) -> str:
        player = self._player
        used = f"{player.played} of {_counted(player.responses)} used"
        return f"replaying {_shown(player.path)} ({used})"

    def use_for(
        self, model: Model, stream_fn: StreamFn, *, explicit: bool
    ) -> tuple[Model, StreamFn]:
        """Return the recorded model in place of the chosen one, and how to ask it.

        Args:
            model: The chosen model.
            stream_fn: How it would be asked.
            explicit: Whether somebody named it; otherwise the first recorded one does as well.

        Raises:
            ModelError: The named model was not recorded, or nothing was.
        """
        del stream_fn
        player = self._player
        recorded = player.model_like(model)
        named = (model.provider, model.id)
        if explicit and named != (recorded.provider, recorded.id):
            have = ", ".join(f"{known.provider}:{known.id}" for known in player.models)
            raise ModelError(
                f"{_shown(player.path)} has no recording of the model {':'.join(named)}, only of "
                f"{have}: choose a recorded one, or record again."
            )
        return recorded, player


class Cassettes:
    """Hold what is switched on, and the files of this kernel."""

    def __init__(self) -> None:
        #: What holds for runs that begin now, of any agent; None for nothing.
        self.active: Recording | Replaying | None = None
        self._recorders: dict[Path, CassetteRecorder] = {}
        self._players: dict[Path, tuple[tuple[int, ...], CassettePlayer]] = {}

    def recording(self, file: str | os.PathLike[str]) -> Recording:
        """Record into a file; what this kernel recorded into it before stays in it.

        Raises:
            ModelError: It cannot be written, or is there and is no cassette.
        """
        from pi_agent_kernel.models.cassette import CassetteRecorder

        path = _path(file)
        recorder = self._recorders.get(path)
        if recorder is None:
            recorder = self._recorders[path] = CassetteRecorder(path)
        return Recording(recorder)

    def replaying(self, file: str | os.PathLike[str], *, again: bool = False) -> Replaying:
        """Replay a file: from its start if asked to, or if the file is another one now.

        Raises:
            ModelError: It cannot be read, or is no cassette.
        """
        from pi_agent_kernel.models.cassette import CassettePlayer

        path = _path(file)
        found = path.stat() if path.exists() else None
        state = () if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)
        known = self._players.get(path)
        if known is None or known[0] != state or again:
            known = self._players[path] = (state, CassettePlayer(path))
        return Replaying(known[1])


cassettes = Cassettes()


def record(file: str | os.PathLike[str] | None) -> Recording | None:
    """Record what the agents of this notebook and their models say, from now on.

    The first recording of a file in a kernel starts it anew and keeps an earlier one as
    `FILE.bak` (`FILE.bak2` and so on); later ones add to it. It ends with a `with` block, by
    `stop()` of what this returns, by `pi.record(None)`, or when another `pi.record` or
    `pi.replay` takes its place.

    Args:
        file: The file, relative to the kernel's working directory; None ends recording.

    Raises:
        AgentUnavailable: It cannot be written, or is there and is no cassette.
    """
    if file is None:
        if isinstance(cassettes.active, Recording):
            cassettes.active = None
        return None
    try:
        use = cassettes.recording(file)
    except ModelError as error:
        raise AgentUnavailable(str(error)) from None
    use.before, cassettes.active = cassettes.active, use
    return use


def replay(file: str | os.PathLike[str] | None) -> Replaying | None:
    """Answer the agents of this notebook from a recording, from its start and from now on.

    Needs no key and no network. It ends as `record` does.

    Args:
        file: The file, relative to the kernel's working directory; None ends replaying.

    Raises:
        AgentUnavailable: It cannot be read, or is no cassette.
    """
    if file is None:
        if isinstance(cassettes.active, Replaying):
            cassettes.active = None
        return None
    try:
        use = cassettes.replaying(file, again=True)
    except ModelError as error:
        raise AgentUnavailable(str(error)) from None
    use.before, cassettes.active = cassettes.active, use
    return use


def _path(file: str | os.PathLike[str]) -> Path:
    try:
        return Path(os.path.realpath(Path(file).expanduser()))
    except (RuntimeError, ValueError) as error:  # no such home, a NUL in the name
        raise ModelError(f"{os.fspath(file)!r} names no file: {error}.") from None


def _shown(path: Path) -> str:
    """Name a file as a person in this folder would."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _counted(responses: int) -> str:
    return f"{responses} response{'' if responses == 1 else 's'}"
