"""A simulated flash device."""

import json
from array import array
from typing import Any, Dict

from . import _native


class Device:
    """A simulated flash device without contents: commands in, times and wear out.

    Commands run one after the other in the device's own virtual time, and return their latency in microseconds.
    Equal commands give equal figures on every machine.
    """

    def __init__(
        self, profile: str = "nexus7-emmc", size: int = 2 << 30, *, precondition: int = 0, seed: int = 1
    ) -> None:
        """`profile` may have overrides (`sd-2012:log_blocks=4`) or be a TOML file; `size` is in bytes.

        `precondition` fills the device to so many percent and overwrites it at random first.
        """
        self._native = _native.Device(profile, size, precondition, seed)
        self.profile = profile

    def _command(self, op: str, offset: int = 0, length: int = 0) -> float:
        if offset < 0 or length < 0:
            raise ValueError("offset and length are not negative")
        return self._native.command(op, offset, length) / 1000

    def read(self, offset: int, length: int) -> float:
        """Reads bytes."""
        return self._command("read", offset, length)

    def write(self, offset: int, length: int, *, fua: bool = False) -> float:
        """Writes bytes; with `fua` they are durable when it returns."""
        return self._command("fua" if fua else "write", offset, length)

    def flush(self) -> float:
        """Empties the device's volatile cache."""
        return self._command("flush")

    def discard(self, offset: int, length: int) -> float:
        """Forgets a range."""
        return self._command("discard", offset, length)

    def idle(self, us: float) -> None:
        """Lets `us` microseconds pass without a command."""
        if not us >= 0:
            raise ValueError("time does not go back")
        self._native.idle(int(us * 1000))

    @property
    def size(self) -> int:
        """Bytes of the device."""
        return self._native.size()

    @property
    def time_us(self) -> float:
        """Virtual time since the device was made."""
        return self._native.now_ns() / 1000

    @property
    def erases(self) -> "array[int]":
        """Erases of each block."""
        return array("I", self._native.erases())

    def report(self) -> Dict[str, Any]:
        """Counters, wear, and latencies of each kind of command, microseconds."""
        report: Dict[str, Any] = json.loads(self._native.report())
        return report
